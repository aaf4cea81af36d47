"""The registry's HTTP server: deadlines, and limits of chunks and connections."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from pathlib import Path
from typing import NoReturn

import pytest

pytest.importorskip("uvicorn")

from barnabas.net.tls import TlsContext, server_context
from barnabas.registry import http_server
from barnabas.registry.http_server import HttpServer, Request, Response
from barnabas.security.tls_settings import TlsSettings
from tests.support.certificates import Certificates


async def no_request(_request: Request) -> NoReturn:
    raise AssertionError("no request was sent")


def refuse(status: int, message: str) -> Response:
    return Response(status, message.encode(), "text/plain")


def test_head_that_comes_byte_by_byte_has_a_deadline_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "IDLE_S", 0.3)

    async def drip() -> None:
        server = HttpServer(no_request, refuse, answer_s=1)
        port = await server.start("127.0.0.1", 0)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        ended = asyncio.create_task(reader.read())
        writer.write(b"GET / HTTP/1.1\r\nname: ")
        with contextlib.suppress(ConnectionError):
            async with asyncio.timeout(60):
                while not ended.done():
                    writer.write(b"x")
                    await asyncio.wait([ended], timeout=0.02)
        writer.close()
        assert ended.done()
        await server.stop()

    asyncio.run(drip())


async def show_length(request: Request) -> Response:
    return Response(200, str(len(request.body)).encode(), "text/plain")


async def exchange(port: int, data: bytes) -> bytes:
    """Send a request on a connection of its own; return the first line of the answer and its body."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    answer = await reader.readuntil(b"\r\n")
    writer.close()
    return answer.strip()


HEAD = b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("chunks", "status"),
    [
        (b"1\r\nx\r\n" * 900, b"200"),
        (b"1\r\nx\r\n" * 20_000, b"413"),
        ((b"%x\r\n" % 100 + b"x" * 100 + b"\r\n") * 10_000, b"200"),
    ],
    ids=["few", "tiny", "many"],
)
def test_body_in_tiny_chunks_is_refused(chunks: bytes, status: bytes) -> None:
    async def check() -> None:
        server = HttpServer(show_length, refuse, answer_s=5)
        port = await server.start("127.0.0.1", 0)
        assert status in await exchange(port, HEAD + chunks + b"0\r\n\r\n")
        await server.stop()

    asyncio.run(check())


@pytest.mark.parametrize("limit", ["CONNECTIONS_MAX", "CONNECTIONS_OF_ADDRESS_MAX"])
def test_silent_connections_make_room_for_a_new_one(monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    monkeypatch.setattr(http_server, limit, 3)

    async def check() -> None:
        server = HttpServer(show_length, refuse, answer_s=5)
        port = await server.start("127.0.0.1", 0)
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(5)]
        assert b"200" in await exchange(port, b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        async with asyncio.timeout(60):
            assert await silent[0][0].read() == b"", "the oldest connection was closed"
        for _, writer in silent:
            writer.close()
        await server.stop()

    asyncio.run(check())


def test_connection_that_is_being_answered_does_not_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "CONNECTIONS_MAX", 1)

    async def check() -> None:
        asked, go = asyncio.Event(), asyncio.Event()

        async def wait(_request: Request) -> Response:
            asked.set()
            await go.wait()
            return Response(200, b"", "text/plain")

        server = HttpServer(wait, refuse, answer_s=60)
        port = await server.start("127.0.0.1", 0)
        first = asyncio.create_task(exchange(port, b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"))
        await asked.wait()
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await exchange(port, b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        go.set()
        assert b"200" in await first
        await server.stop()

    asyncio.run(check())


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"GET /" + b"x" * 100_000, b"431"),
        (b"GET /" + b"x" * 100_000 + b" HTTP/1.1\r\nhost: x\r\n\r\n", b"431"),
        (b"GET / HTTP/1.1\r\nname: " + b"x" * 100_000, b"431"),
        (b"GET / HTTP/1.1\r\n" + b"name: x\r\n" * 10_000 + b"\r\n", b"431"),
        (b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 3000000\r\n\r\n" + b"x" * 3_000_000, b"413"),
        (b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 99999999999999999999\r\n\r\n", b"4"),
        (HEAD + (b"%x\r\n" % 100_000 + b"x" * 100_000 + b"\r\n") * 30, b"413"),
        (b"no request\r\n\r\n", b"400"),
        (b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\ncontent-length: 7\r\n\r\n12345", b"400"),
        (b"GET /?" + b"a=b&" * 200 + b" HTTP/1.1\r\nhost: x\r\n\r\n", b"400"),
        (b"GET /%00%ff?x=%ff HTTP/1.1\r\nhost: [\r\n\r\n", b"200"),
    ],
)
def test_request_beyond_a_limit_is_answered(data: bytes, status: bytes) -> None:
    async def check() -> None:
        server = HttpServer(show_length, refuse, answer_s=5)
        port = await server.start("127.0.0.1", 0)
        assert (await exchange(port, data)).split()[1].startswith(status)
        assert b"200" in await exchange(port, b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        await server.stop()

    asyncio.run(check())


def test_body_that_does_not_come_has_a_deadline(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(http_server, "RECEIVE_S", 0.1)

    async def check() -> None:
        server = HttpServer(no_request, refuse, answer_s=5)
        port = await server.start("127.0.0.1", 0)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\n\r\n123")
        async with asyncio.timeout(60):
            with contextlib.suppress(ConnectionError):
                assert await reader.read() == b""
        writer.close()
        await server.stop()

    asyncio.run(check())
    assert not caplog.records, "a slow client does not fill the log"


def test_connection_serves_one_request_after_the_other_and_ends_with_its_client() -> None:
    async def check() -> None:
        server = HttpServer(show_length, refuse, answer_s=5)
        port = await server.start("127.0.0.1", 0)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for method in (b"POST", b"HEAD", b"POST"):
            writer.write(method + b" / HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 5\r\n\r\n12345")
            head = await reader.readuntil(b"\r\n\r\n")
            if b" 100 " in head:
                head = await reader.readuntil(b"\r\n\r\n")
            assert b" 200 " in head
            if method == b"POST":
                assert await reader.readexactly(1) == b"5"
        writer.write_eof()
        async with asyncio.timeout(60):
            assert await reader.read() == b""
        writer.close()
        await server.stop()

    asyncio.run(check())


def test_silent_tls_clients_do_not_shut_others_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(http_server, "CONNECTIONS_OF_ADDRESS_MAX", 5)
    certificates = Certificates(tmp_path)
    tls = TlsContext(TlsSettings(key_store=str(certificates.server("registry"))), server_context)
    context = ssl.create_default_context(cafile=str(certificates.ca))

    async def check() -> None:
        server = HttpServer(show_length, refuse, answer_s=5, tls=tls)
        port = await server.start("127.0.0.1", 0)
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(20)]
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        writer.write(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\n\r\nabc")
        assert b"200" in await reader.readline()
        writer.close()
        for _, each in silent:
            each.close()
        await server.stop()

    asyncio.run(check())


def test_tls_handshake_has_a_deadline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(http_server, "HANDSHAKE_S", 0.1)
    tls = TlsContext(TlsSettings(key_store=str(Certificates(tmp_path).server("registry"))), server_context)

    async def check() -> None:
        server = HttpServer(no_request, refuse, answer_s=5, tls=tls)
        port = await server.start("127.0.0.1", 0)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        with contextlib.suppress(ConnectionResetError):
            async with asyncio.timeout(60):
                assert await reader.read() == b""
        writer.close()
        await server.stop()

    asyncio.run(check())
