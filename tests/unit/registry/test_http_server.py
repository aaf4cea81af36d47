"""The registry's HTTP server: who sends too slowly does not keep a connection."""

from __future__ import annotations

import asyncio
import contextlib
from typing import NoReturn

import pytest

pytest.importorskip("h11")

from barnabas.registry import http_server
from barnabas.registry.http_server import HttpServer, Request, Response


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
