"""Streams with TLS and their handshakes, over pairs of sockets."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from barnabas.broker.main import _new_event_loop
from barnabas.model import FileRegion
from barnabas.net.tls import TlsHandshake, client_context, secure, server_context
from barnabas.net.tls_stream import PIECE_BYTES, READ_BYTES_PER_TURN, TlsStream
from barnabas.protocol.codec import Chunk
from barnabas.security.tls_settings import TlsSettings
from tests.support.certificates import Certificates
from tests.support.searches import examples

TIMEOUT_S = 60.0
LARGE = 3 * READ_BYTES_PER_TURN + 1


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> TlsSettings:
    certificates = Certificates(tmp_path_factory.mktemp("pki"))
    return TlsSettings(key_store=str(certificates.server("broker")), trust_store=str(certificates.ca))


def run(scenario: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(TIMEOUT_S):
            await scenario

    with asyncio.Runner(loop_factory=_new_event_loop) as runner:
        runner.run(bounded())


class End:
    """One end of a connection, with what it has received."""

    def __init__(self, sock: ssl.SSLSocket) -> None:
        self.received = bytearray()
        self.is_drained = False
        self.closed: list[Exception | None] = []
        self._changed = asyncio.Event()
        self.sock = sock
        self.stream = TlsStream(asyncio.get_running_loop(), sock, self._on_bytes, self._on_drained, self._on_closed)

    def _on_bytes(self, data: memoryview) -> None:
        self.received += data
        self._changed.set()

    def _on_drained(self) -> None:
        self.is_drained = True
        self._changed.set()

    def _on_closed(self, error: Exception | None) -> None:
        self.closed.append(error)
        self._changed.set()

    async def wait(self, condition: Callable[[], object]) -> None:
        while not condition():
            self._changed.clear()
            await self._changed.wait()


def connected() -> tuple[socket.socket, socket.socket]:
    """Return the two ends of a TCP connection."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        first = socket.create_connection(listening.getsockname())
        second, _ = listening.accept()
    for each in (first, second):
        each.setblocking(False)
    return first, second


def server_side(
    sock: socket.socket, context: ssl.SSLContext, threads: ThreadPoolExecutor
) -> tuple[TlsHandshake, asyncio.Future[ssl.SSLSocket]]:
    loop = asyncio.get_running_loop()
    done: asyncio.Future[ssl.SSLSocket] = loop.create_future()

    def on_done(secured: ssl.SSLSocket | None, error: Exception | None) -> None:
        assert not done.done(), "on_done is called once"
        if secured is None:
            done.set_exception(error or AssertionError("neither socket nor error"))
        else:
            done.set_result(secured)

    return TlsHandshake(loop, sock, context, threads, on_done), done


@contextlib.asynccontextmanager
async def pair(tls: TlsSettings, version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3) -> AsyncIterator[tuple[End, End]]:
    """Yield the client's and the server's end of a connection."""
    client, server = connected()
    context = client_context(tls)
    context.minimum_version = context.maximum_version = version
    with ThreadPoolExecutor(1) as threads:
        _, done = server_side(server, server_context(tls), threads)
        ends = End(await secure(asyncio.get_running_loop(), client, context, "127.0.0.1")), End(await done)
        try:
            yield ends
        finally:
            for each in ends:
                each.stream.close()
                assert len(each.closed) == 1


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_bytes_arrive_in_both_directions_at_once(tls: TlsSettings, version: ssl.TLSVersion) -> None:
    async def scenario() -> None:
        there, back = random.Random(1).randbytes(LARGE), random.Random(2).randbytes(LARGE)
        async with pair(tls, version) as (client, server):
            client.stream.send([there[:10], there[10:]])
            server.stream.send([back])
            assert client.stream.unsent_bytes <= LARGE
            await server.wait(lambda: len(server.received) == LARGE)
            await client.wait(lambda: len(client.received) == LARGE)
            assert bytes(server.received) == there
            assert bytes(client.received) == back
            assert client.stream.unsent_bytes == server.stream.unsent_bytes == client.stream.unsent_memory_bytes == 0
            assert client.is_drained

    run(scenario())


SIZES = st.sampled_from([0, 1, 16_384, 16_385, PIECE_BYTES, 300_000]) | st.integers(0, 70_000)


@settings(max_examples=examples(10), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(sizes=st.lists(st.tuples(st.booleans(), SIZES), max_size=12))
def test_chunks_and_file_regions_arrive_in_order(
    tls: TlsSettings, tmp_path_factory: pytest.TempPathFactory, sizes: list[tuple[bool, int]]
) -> None:
    content = random.Random(3).randbytes(400_000)
    path = tmp_path_factory.mktemp("region") / "segment"
    path.write_bytes(content)

    async def scenario() -> None:
        with path.open("rb") as file:
            chunks: list[Chunk] = []
            expected = b""
            for number, (is_region, size) in enumerate(sizes):
                data = content[number : number + size]
                expected += data
                chunks.append(FileRegion(file, number, size) if is_region else data)
            async with pair(tls) as (client, server):
                client.stream.send(chunks[:3])
                client.stream.send(chunks[3:])
                await server.wait(lambda: len(server.received) >= len(expected))
                assert bytes(server.received) == expected

    run(scenario())


def test_paused_stream_receives_nothing_and_then_everything(tls: TlsSettings) -> None:
    """OpenSSL may hold decrypted bytes for which the socket is not readable."""

    async def scenario() -> None:
        async with pair(tls) as (client, server):
            server.stream.pause_reading()
            client.stream.send([b"x" * 100_000])
            await client.wait(lambda: not client.stream.unsent_bytes)
            assert not server.received
            server.stream.resume_reading()
            await server.wait(lambda: len(server.received) == 100_000)

    run(scenario())


def test_stream_that_is_paused_by_its_receiver_stops_at_once(tls: TlsSettings) -> None:
    async def scenario() -> None:
        async with pair(tls) as (client, server):
            take = server._on_bytes
            calls: list[int] = []

            def pausing(data: memoryview) -> None:
                calls.append(len(data))
                server.stream.pause_reading()
                take(data)

            server.stream._on_bytes = pausing
            client.stream.send([b"x" * LARGE])
            while len(server.received) < LARGE:
                count = len(calls)
                await server.wait(lambda count=count: len(calls) > count)  # type: ignore[misc]
                assert len(calls) == count + 1
                assert not server.stream.is_reading
                server.stream.resume_reading()

    run(scenario())


def test_close_reaches_the_other_end(tls: TlsSettings) -> None:
    async def scenario() -> None:
        async with pair(tls) as (client, server):
            client.stream.send([b"last"])
            client.stream.close()
            await server.wait(lambda: server.closed)
            assert server.closed == [None]
            assert server.received == b"last"
            client.stream.send([b"ignored"])
            assert not client.stream.is_open
            assert client.stream.unsent_bytes == 0

    run(scenario())


def test_bytes_below_tls_end_the_stream_with_an_error(tls: TlsSettings) -> None:
    async def scenario() -> None:
        async with pair(tls) as (client, server):
            socket.socket.send(client.sock, b"\x17\x03\x03\x00\x20" + bytes(32))
            await server.wait(lambda: server.closed)
            assert isinstance(server.closed[0], ssl.SSLError)

    run(scenario())


def test_connection_that_is_cut_ends_the_stream(tls: TlsSettings) -> None:
    async def scenario() -> None:
        async with pair(tls) as (client, server):
            server.stream.send([b"x" * LARGE])
            socket.socket.shutdown(client.sock, socket.SHUT_RDWR)
            await server.wait(lambda: server.closed)
            assert server.stream.unsent_bytes == 0

    run(scenario())


def test_region_of_a_file_that_is_too_short_ends_the_stream(tls: TlsSettings, tmp_path: Path) -> None:
    path = tmp_path / "short"
    path.write_bytes(b"short")

    async def scenario() -> None:
        async with pair(tls) as (client, server):
            with path.open("rb") as file:
                client.stream.send([FileRegion(file, 0, 100)])
                await server.wait(lambda: server.closed)
            assert isinstance(client.closed[0], OSError)
            assert server.received == b"short" or not server.received

    run(scenario())


# --- handshakes -------------------------------------------------------------------------------------------------


def test_aborted_handshake_closes_the_socket(tls: TlsSettings) -> None:
    async def scenario() -> None:
        client, server = connected()
        with ThreadPoolExecutor(1) as threads:
            handshake, done = server_side(server, server_context(tls), threads)
            handshake.abort(TimeoutError("too slow"))
            with pytest.raises(TimeoutError, match="too slow"):
                await done
            handshake.abort(TimeoutError("again"))
        client.setblocking(True)
        assert client.recv(1) == b""
        client.close()

    run(scenario())


def test_handshake_that_is_aborted_during_a_step_closes_the_socket_after_it(tls: TlsSettings) -> None:
    async def scenario() -> None:
        client, server = connected()
        with ThreadPoolExecutor(1) as threads:
            handshake, done = server_side(server, server_context(tls), threads)
            handshake._begin_step()
            handshake.abort(TimeoutError("too slow"))
            with pytest.raises(TimeoutError):
                await done
        await asyncio.sleep(0)  # the end of the step reaches the loop
        client.setblocking(True)
        client.settimeout(TIMEOUT_S)
        await asyncio.sleep(0)
        assert await asyncio.to_thread(client.recv, 1) == b""
        client.close()

    run(scenario())


def test_failed_handshake_leaves_the_reason_with_a_client_that_sends_more(tls: TlsSettings) -> None:
    """Unread bytes of the client would reset the connection, and the client would lose the alert."""

    async def scenario() -> None:
        client, server = connected()
        with ThreadPoolExecutor(1) as threads:
            _, done = server_side(server, server_context(tls), threads)
            client.setblocking(True)
            client.sendall(b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00" + b"more" * 1_000)
            alert = await asyncio.to_thread(client.recv, 100)
            assert alert[:2] == b"\x15\x03"
            client.sendall(b"still more")
            assert await asyncio.to_thread(client.recv, 100) == b""
            assert not done.done(), "the listener waits for the client"
            client.close()
            with pytest.raises(ssl.SSLError):
                await done

    run(scenario())


def test_listener_does_not_wait_for_ever_after_a_failed_handshake(
    tls: TlsSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("barnabas.net.tls.LINGER_S", 0.05)

    async def scenario() -> None:
        for more in (b"", b"x" * 200_000):
            client, server = connected()
            with ThreadPoolExecutor(1) as threads:
                _, done = server_side(server, server_context(tls), threads)
                client.send(b"GET / HTTP/1.1\r\n\r\n" + more)
                with pytest.raises(ssl.SSLError):
                    await done
            client.close()

    run(scenario())


def test_cancelled_client_closes_its_socket(tls: TlsSettings) -> None:
    async def scenario() -> None:
        client, server = connected()
        task = asyncio.create_task(secure(asyncio.get_running_loop(), client, client_context(tls), "127.0.0.1"))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        server.setblocking(True)
        while await asyncio.to_thread(server.recv, 10_000):
            pass
        server.close()

    run(scenario())
