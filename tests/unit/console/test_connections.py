"""The limits of a browser's connection."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from barnabas.console import connections
from barnabas.console.connections import Connection
from barnabas.net.open_connections import OpenConnections

GET = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"


class FakeTransport:
    """Records whether the connection was aborted, and what was written."""

    def __init__(self) -> None:
        self.aborted = asyncio.Event()
        self.written = b""

    def abort(self) -> None:
        self.aborted.set()

    def is_closing(self) -> bool:
        return self.aborted.is_set()

    def write(self, data: bytes) -> None:
        self.written += data

    def get_extra_info(self, name: str) -> Any:
        return None

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def close(self) -> None: ...


async def wait_for_request(_scope: Any, receive: Any, _send: Any) -> None:
    await receive()


def run(check: Callable[[Callable[[], tuple[Connection, FakeTransport]]], Any], connections_max: int = 10) -> None:
    """Run a check with a function that opens connections to one server."""

    async def main() -> None:
        config = uvicorn.Config(wait_for_request, http=HttpToolsProtocol, ws="none", lifespan="off", log_config=None)
        config.load()
        state = ServerState()
        opened: OpenConnections[Connection] = OpenConnections(connections_max)

        def connect() -> tuple[Connection, FakeTransport]:
            connection, transport = Connection(opened, config, state, {}), FakeTransport()
            connection.connection_made(transport)  # type: ignore[arg-type]
            return connection, transport

        await check(connect)
        for connection in list(state.connections):
            connection.connection_lost(OSError())  # type: ignore[union-attr]

    asyncio.run(main())


def test_half_sent_request_ends_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "RECEIVE_S", 0.0)

    async def check(connect: Any) -> None:
        connection, transport = connect()
        connection.data_received(GET[:20])
        await transport.aborted.wait()

    run(check)


def test_end_that_does_not_read_ends_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "SEND_S", 0.0)

    async def check(connect: Any) -> None:
        connection, transport = connect()
        connection.data_received(GET)
        connection.pause_writing()
        connection.resume_writing()
        assert not transport.aborted.is_set()
        connection.pause_writing()
        await transport.aborted.wait()

    run(check)


def test_new_connection_takes_the_place_of_the_longest_waiting() -> None:
    async def check(connect: Any) -> None:
        busy, of_busy = connect()
        busy.data_received(GET)
        first, of_first = connect()
        _, of_second = connect()
        first.data_received(GET)
        first.on_response_complete()  # it waits again, and begins after the second
        _, of_new = connect()
        assert [each.aborted.is_set() for each in (of_busy, of_first, of_second, of_new)] == [False, False, True, False]

    run(check, 3)


def test_new_connection_is_refused_if_all_others_are_busy() -> None:
    async def check(connect: Any) -> None:
        busy, of_busy = connect()
        busy.data_received(GET)
        _, of_new = connect()
        assert [each.aborted.is_set() for each in (of_busy, of_new)] == [False, True]

    run(check, 1)
