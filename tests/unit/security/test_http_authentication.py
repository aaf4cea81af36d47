"""Basic and bearer authentication of HTTP requests: what is accepted, remembered, refused and limited."""

from __future__ import annotations

import base64
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.clock import ManualClock
from barnabas.errors import AuthenticationError, DisconnectedError
from barnabas.security import http_authentication
from barnabas.security.http_authentication import (
    FAILURE_FORGOTTEN_S,
    FAILURES_MAX,
    REFUSED_S,
    REMEMBERED_S,
    HttpAuthentication,
    HttpCredentials,
    HttpIdentity,
    HttpRefusedError,
    parse_authorization,
)
from barnabas.security.principal import Principal, is_valid_name
from tests.support.searches import examples

ALICE, PASSWORD, ADDRESS = "alice", "planted-password", "10.0.0.1"


def basic(user: str = ALICE, password: str = PASSWORD) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


class Users:
    """Proves the password of alice, and counts the proofs."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.reports: list[tuple[str, str, str]] = []
        self.proofs = 0
        self.is_there = True
        self.authentication = HttpAuthentication(self.clock.monotonic, lambda *report: self.reports.append(report))

    def prove(self, credentials: HttpCredentials) -> HttpIdentity:
        self.proofs += 1
        if not self.is_there:
            raise DisconnectedError("no broker responds")
        if credentials.secret.reveal() != PASSWORD:
            raise AuthenticationError("the user name or the password is wrong")
        return HttpIdentity(Principal("User", credentials.user or "token"), True)

    def ask(self, header: str | None, address: str = ADDRESS) -> int:
        """Return the status of a request with a header."""
        try:
            self.authentication.authenticate(header, address, self.prove)
        except HttpRefusedError as error:
            return error.status
        return 200


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "Basic",
        "Basic !!!",
        "Basic " + base64.b64encode(b"no colon").decode(),
        "Basic " + base64.b64encode(b":password").decode(),
        "Basic " + base64.b64encode(b"alice:").decode(),
        "Basic " + base64.b64encode(b"ali\xffce:x").decode(),
        "Basic " + base64.b64encode(b"alice:a\0b").decode(),
        "Basic " + base64.b64encode(b"al\nice:secret").decode(),
        "Basic " + base64.b64encode(b"alice:" + b"x" * 1025).decode(),
        "Bearer ",
        "Bearer a b",
        "Digest username=alice",
        "x" * 100_000,
    ],
)
def test_header_without_credentials_is_refused_without_a_proof(header: str | None) -> None:
    users = Users()
    assert users.ask(header) == 401
    assert users.proofs == 0


@settings(max_examples=examples(50))
@given(st.one_of(st.text(), st.binary().map(lambda data: "Basic " + base64.b64encode(data).decode())))
def test_any_header_is_refused_or_gives_credentials(header: str) -> None:
    try:
        credentials = parse_authorization(header)
    except HttpRefusedError:
        return
    assert credentials.is_token or is_valid_name(credentials.user)


def test_header_gives_user_and_password_or_token() -> None:
    user, password = parse_authorization(basic("alice", "a:b"))
    assert (user, password.reveal()) == ("alice", "a:b")
    token = parse_authorization("bearer abc.def.ghi")
    assert token.is_token
    assert token.secret.reveal() == "abc.def.ghi"


def test_proved_password_is_valid_for_a_limited_time() -> None:
    users = Users()
    assert [users.ask(basic()) for _ in range(3)] == [200] * 3
    assert users.proofs == 1
    users.clock.advance(REMEMBERED_S)
    assert users.ask(basic()) == 200
    assert users.proofs == 2


def test_identity_does_not_outlive_its_token() -> None:
    users = Users()
    lifetimes = iter([1.5, -3.0, -3.0])

    def prove(credentials: HttpCredentials) -> HttpIdentity:
        users.proofs += 1
        return HttpIdentity(Principal("User", "token"), True, next(lifetimes))

    for seconds in (0, 1, 1):
        users.clock.advance(seconds)
        users.authentication.authenticate("Bearer abc", ADDRESS, prove)
    assert users.proofs == 2
    users.authentication.authenticate("Bearer abc", ADDRESS, prove)
    assert users.proofs == 3  # an expired token is proved each time


def test_user_and_password_are_not_confused() -> None:
    users = Users()
    assert users.ask(basic("alice", PASSWORD)) == 200
    digests = {
        users.authentication.digest(parse_authorization(each))
        for each in (basic("a", "bc"), basic("ab", "c"), "Bearer abc", basic("a", "b:c"))
    }
    assert len(digests) == 4


def test_wrong_password_is_refused_again_without_a_proof() -> None:
    users = Users()
    assert [users.ask(basic(password="wrong")) for _ in range(50)] == [401] * 50
    assert users.proofs == 1
    users.clock.advance(REFUSED_S)
    assert users.ask(basic(password="wrong")) == 401
    assert users.proofs == 2


def test_failures_of_an_address_are_limited_and_others_are_not_affected() -> None:
    users = Users()
    assert users.ask(basic()) == 200
    statuses = [users.ask(basic(password=f"guess-{number}")) for number in range(FAILURES_MAX + 5)]
    assert statuses == [401] * FAILURES_MAX + [429] * 5
    assert users.proofs == 1 + FAILURES_MAX
    assert users.ask(basic()) == 200  # proved credentials need no proof
    assert users.ask(basic("bob"), "10.0.0.2") == 200
    users.clock.advance(FAILURE_FORGOTTEN_S)
    assert users.ask(basic(password="one more")) == 401
    assert users.ask(basic(password="and another")) == 429


def test_successes_do_not_use_up_the_failures() -> None:
    users = Users()
    assert [users.ask(basic(f"user-{number}")) for number in range(FAILURES_MAX * 3)] == [200] * FAILURES_MAX * 3


def test_network_of_ipv6_counts_as_one_address() -> None:
    users = Users()
    for number in range(FAILURES_MAX):
        assert users.ask(basic(password=f"guess-{number}"), f"2001:db8::{number:x}") == 401
    assert users.ask(basic(password="guess"), "2001:db8::ffff") == 429
    assert users.ask(basic(password="guess"), "2001:db9::1") == 401


def test_unreachable_broker_is_no_failure_and_is_not_remembered() -> None:
    users = Users()
    users.is_there = False
    assert [users.ask(basic()) for _ in range(FAILURES_MAX * 2)] == [503] * FAILURES_MAX * 2
    users.is_there = True
    assert users.ask(basic()) == 200


def test_tables_have_a_maximum_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_authentication, "REMEMBERED_MAX", 10)
    users = Users()
    for number in range(30):
        users.ask(basic(f"user-{number}"), f"10.0.1.{number}")
        users.ask(basic(f"user-{number}", "wrong"), f"10.0.2.{number}")
    own = users.authentication
    assert [len(each) for each in (own._proved, own._refused, own._failures)] == [10, 10, 10]


@pytest.mark.parametrize("show", [repr, str])
def test_nothing_shows_a_password(show: Callable[[object], str]) -> None:
    users = Users()
    credentials = parse_authorization(basic(password="planted-wrong"))
    users.ask(basic(password="planted-wrong"))
    users.ask(basic())
    assert users.reports == [(ADDRESS, ALICE, "the user name or the password is wrong")]
    assert "planted" not in show(credentials) + show(users.authentication.__dict__) + show(users.reports)
