"""The authentication of one connection: its states, the end of a session, and what a failure shows."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from barnabas.broker.authentication import ConnectionAuthentication, ListenerAuthentication
from barnabas.broker.fair_threads import FairThreads
from barnabas.broker.security_log import SecurityLog
from barnabas.clock import ManualClock
from barnabas.errors import ApiError, AuthenticationError, ErrorCode
from barnabas.net.server_connection import Endpoints
from barnabas.security.principal import ANONYMOUS, Principal
from barnabas.security.sasl import SaslServer

ENDPOINTS = Endpoints("10.0.0.1", 1234, "10.0.0.9")


class FakeServer:
    """Accepts `name` as the user, after `ask` as often as it comes; refuses anything else."""

    def __init__(self, expires_ms: int | None = None) -> None:
        self.expires_ms = expires_ms
        self.principal = ""
        self.is_complete = False

    def respond(self, message: bytes) -> bytes:
        if message == b"ask":
            return b"more"
        if not message.startswith(b"user "):
            raise AuthenticationError("the message is wrong")
        self.principal, self.is_complete = message.decode().removeprefix("user "), True
        return b"done"


class Stage:
    """One connection of a listener."""

    def __init__(self, expires_ms: int | None = None, session_ms_max: int = 0) -> None:
        self.clock = ManualClock()
        self.expires_ms = expires_ms
        mechanisms: Mapping[str, Callable[[], SaslServer]] = {
            "A": lambda: FakeServer(self.expires_ms),
            "B": FakeServer,
        }
        self.listener = ListenerAuthentication(
            mechanisms=mechanisms,
            threads=FairThreads(ThreadPoolExecutor(1), self.clock.monotonic),
            clock=self.clock,
            listener_name="SASL_SSL",
            security_log=SecurityLog(self.clock.monotonic),
            session_ms_max=session_ms_max,
            failure_delay_s=0.0,
            check=self.check,
        )
        self.connection: ConnectionAuthentication = self.listener.of_connection(ENDPOINTS)

    def check(self, principal: Principal) -> None:
        if principal.name == "mallory":
            raise AuthenticationError("the listener does not serve mallory")

    @property
    def is_valid(self) -> bool:
        return self.connection.is_valid(self.clock.monotonic())

    async def log_in(self, user: str = "alice", mechanism: str = "A") -> int:
        """Authenticate; return the lifetime of the session."""
        self.connection.begin(mechanism, raw=False)
        _, lifetime_ms = await self.connection.step(f"user {user}".encode())
        return lifetime_ms


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(scenario())


async def refusal(step: Coroutine[Any, Any, Any]) -> ErrorCode | str:
    try:
        await step
    except ApiError as error:
        return error.code
    except AuthenticationError as error:
        return str(error)
    raise AssertionError("not refused")


def test_client_is_anonymous_until_the_last_step() -> None:
    async def scenario() -> None:
        stage = Stage()
        assert await refusal(stage.connection.step(b"ask")) is ErrorCode.ILLEGAL_SASL_STATE
        stage.connection.begin("A", raw=False)
        assert await stage.connection.step(b"ask") == (b"more", 0)
        assert not stage.is_valid
        assert stage.connection.principal == ANONYMOUS
        assert await stage.connection.step(b"user alice") == (b"done", 0)
        assert stage.is_valid
        assert str(stage.connection.principal) == "User:alice"
        stage.clock.advance(1e9)
        assert stage.is_valid

    run(scenario)


def test_failure_ends_the_authentication_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        stage = Stage()
        stage.connection.begin("A", raw=True)
        assert await refusal(stage.connection.step(b"no")) == "the message is wrong"
        assert await refusal(stage.connection.step(b"user alice")) is ErrorCode.ILLEGAL_SASL_STATE
        assert not stage.is_valid

    run(scenario)
    shown = 'address=10.0.0.1:1234 listener=SASL_SSL mechanism=A result=failed reason="the message is wrong"'
    assert f"failed to authenticate: {shown}" in caplog.text


def test_failed_second_authentication_ends_the_session() -> None:
    async def scenario() -> None:
        stage = Stage()
        await stage.log_in()
        stage.connection.begin("A", raw=False)
        assert stage.is_valid, "requests are served meanwhile"
        await refusal(stage.connection.step(b"no"))
        assert not stage.is_valid

    run(scenario)


@pytest.mark.parametrize(
    ("expires_in_ms", "session_ms_max", "expected"),
    [(None, 0, 0), (None, 5_000, 5_000), (3_000, 0, 3_000), (3_000, 5_000, 3_000), (9_000, 5_000, 5_000), (-1, 0, 1)],
)
def test_session_ends_with_the_first_limit(expires_in_ms: int | None, session_ms_max: int, expected: int) -> None:
    async def scenario() -> None:
        stage = Stage(session_ms_max=session_ms_max)
        stage.expires_ms = None if expires_in_ms is None else stage.clock.time_ms() + expires_in_ms
        assert await stage.log_in() == expected
        if expected:
            stage.clock.advance(expected / 1000 - 0.001)
            assert stage.is_valid or expected == 1
            stage.clock.advance(0.001)
            assert not stage.is_valid

    run(scenario)


def test_session_is_renewed_by_the_same_principal_and_mechanism_only() -> None:
    async def scenario() -> None:
        stage = Stage(session_ms_max=5_000)
        await stage.log_in()
        stage.clock.advance(4.0)
        await stage.log_in()
        stage.clock.advance(4.0)
        assert stage.is_valid
        stage.clock.advance(2.0)
        assert not stage.is_valid
        for mechanism, raw in (("B", False), ("A", True), ("C", False)):
            with pytest.raises(ApiError):
                stage.connection.begin(mechanism, raw=raw)
        assert await refusal(stage.log_in("bob")) == "a connection cannot change its principal"
        assert not stage.is_valid

    run(scenario)


def test_principal_that_the_listener_does_not_serve_gets_no_session() -> None:
    async def scenario() -> None:
        stage = Stage()
        assert await refusal(stage.log_in("mallory")) == "the listener does not serve mallory"
        assert not stage.is_valid
        assert stage.connection.principal == ANONYMOUS
        assert stage.listener.counts.failed == 1

    run(scenario)


@pytest.mark.parametrize("mechanism", ["", "C", "a", "A ", "A\0", "x" * 10_000])
def test_other_mechanism_is_refused_and_not_echoed(mechanism: str, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        with pytest.raises(ApiError) as caught:
            Stage().connection.begin(mechanism, raw=False)
        assert caught.value.code is ErrorCode.UNSUPPORTED_SASL_MECHANISM
        assert caught.value.reason == "this listener offers A, B"

    run(scenario)
    assert "x" * 100 not in caplog.text


def test_mechanism_cannot_change_in_the_middle() -> None:
    async def scenario() -> None:
        stage = Stage()
        stage.connection.begin("A", raw=False)
        with pytest.raises(ApiError) as caught:
            stage.connection.begin("B", raw=False)
        assert caught.value.code is ErrorCode.ILLEGAL_SASL_STATE

    run(scenario)
