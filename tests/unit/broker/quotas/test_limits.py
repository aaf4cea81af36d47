"""The limits of a client follow Kafka's precedence."""

from __future__ import annotations

import pytest

from barnabas.broker.quotas.entities import Entity, entity
from barnabas.broker.quotas.limits import Limit, QuotaLimits

KEY = "producer_byte_rate"

PRECEDENCE: list[tuple[Entity, tuple[str, str]]] = [
    (entity("alice", "app"), ("alice", "app")),
    (entity("alice", None), ("alice", "app")),
    (entity("alice"), ("alice", "")),
    (entity(None, "app"), ("alice", "app")),
    (entity(None, None), ("alice", "app")),
    (entity(None), ("alice", "")),
    (entity(client_id="app"), ("", "app")),
    (entity(client_id=None), ("", "app")),
]
"""The entities from the strongest to the weakest, and the user and client id that share the limit."""


@pytest.mark.parametrize("first", range(len(PRECEDENCE)))
def test_most_specific_quota_applies(first: int) -> None:
    quotas = {of: {KEY: 1.0 + number} for number, (of, _) in enumerate(PRECEDENCE) if number >= first}
    assert QuotaLimits(quotas).of_client(KEY, "alice", "app") == Limit(1.0 + first, *PRECEDENCE[first][1])


def test_other_clients_have_the_quotas_of_the_defaults_only() -> None:
    limits = QuotaLimits({of: {KEY: 1.0 + number} for number, (of, _) in enumerate(PRECEDENCE)})
    assert limits.of_client(KEY, "bob", "other") == Limit(5.0, "bob", "other")
    assert limits.of_client("consumer_byte_rate", "alice", "app") is None
    assert QuotaLimits({entity("alice"): {KEY: 1.0}}).of_client(KEY, "bob", "app") is None


def test_each_key_has_its_own_precedence() -> None:
    limits = QuotaLimits({entity("alice", "app"): {"request_percentage": 1.0}, entity("alice"): {KEY: 2.0}})
    assert limits.of_client(KEY, "alice", "app") == Limit(2.0, "alice", "")


def test_client_without_an_id_has_the_quotas_without_one() -> None:
    limits = QuotaLimits({entity("alice"): {KEY: 2.0}, entity(client_id=None): {KEY: 3.0}})
    assert limits.of_client(KEY, "alice", "") == Limit(2.0, "alice", "")
    assert limits.of_client(KEY, "bob", "") == Limit(3.0, "", "")


def test_addresses_have_their_own_rate_or_the_default() -> None:
    rate = {"connection_creation_rate": 5.0}
    limits = QuotaLimits({entity(ip="10.0.0.1"): rate, entity(ip="::1"): {"connection_creation_rate": 0.0}})
    assert [limits.connection_rate(each) for each in ("10.0.0.1", "10.0.0.2", "::1", "strange")] == [5.0, None, 0, None]
    limits = QuotaLimits({entity(ip=None): rate})
    assert limits.connection_rate("10.0.0.2") == limits.connection_rate("strange") == 5.0
