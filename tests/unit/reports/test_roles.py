"""Which column of a table is what."""

from __future__ import annotations

import pytest

from barnabas.errors import ConfigurationError
from barnabas.reports.roles import Role, Roles

CLICKS = ["topic", "timestamp", "value", "type", "id", "time", "member", "session", "address", "item", "impression"]
ACCESS = ["timestamp", "event_time", "host", "ident", "user", "time", "method", "path", "status", "size"]


def test_usual_names_are_found() -> None:
    roles = Roles(CLICKS)
    assert [roles.find(role) for role in (Role.TIME, Role.ITEM, Role.VISITOR, Role.SESSION, Role.ADDRESS)] == [
        "timestamp",
        "item",
        "member",
        "session",
        "address",
    ]
    assert (roles.find(Role.TYPE), roles.find(Role.ID), roles.find(Role.IMPRESSION)) == ("type", "id", "impression")


def test_in_an_access_log_the_visitor_is_the_address_and_time_is_that_of_the_event() -> None:
    roles = Roles(ACCESS)
    assert [roles.need(role) for role in (Role.TIME, Role.ITEM, Role.VISITOR, Role.ADDRESS)] == [
        "event_time",
        "path",
        "host",
        "host",
    ]
    assert roles.find(Role.SESSION) is None


def test_what_was_named_goes_before_what_is_usual() -> None:
    assert Roles(ACCESS, {Role.ITEM: "method"}).need(Role.ITEM) == "method"


def test_what_is_missing_is_told_with_the_option_and_the_columns_that_there_are() -> None:
    with pytest.raises(
        ConfigurationError, match=r"like type \(.*\); name it with --type-column NAME. The columns are a, b"
    ):
        Roles(["a", "b"]).need(Role.TYPE)
    with pytest.raises(ConfigurationError, match=r"--item-column: there is no column 'page'; the columns are a, b"):
        Roles(["a", "b"], {Role.ITEM: "page"})
