"""A small HTTP server: h11 speaks the protocol, asyncio does the I/O, limits are everywhere.

A request has a body of at most so many bytes, arrives within a deadline and is answered within another; there are at
most so many connections, and a handler that raises costs its own request an answer of 500 and one line in the log.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl

import h11

from barnabas.errors import reason_of

BODY_BYTES_MAX = 2 * 1024 * 1024
HEADER_BYTES_MAX = 32 * 1024
CONNECTIONS_MAX = 1_000
PARTS_MAX = 1_000
PART_BYTES_MIN = 64
"""A body of more than PARTS_MAX chunks has chunks of so many bytes on average."""
PARTS_AT_ONCE = 64
CONNECTIONS_OF_ADDRESS_MAX = 200
IDLE_S = 75.0
RECEIVE_S = 30.0
SEND_S = 30.0
CLOSE_S = 5.0
READ_BYTES = 64 * 1024
LINGER_BYTES_MAX = 16 * 1024 * 1024
"""So much is read of a request after it was refused."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Request:
    """A request. `path` is as it was sent, without the query; names of headers are in small letters."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class Response:
    """An answer."""

    status: int
    body: bytes
    content_type: str
    headers: Mapping[str, str] = field(default_factory=dict)


Handler = Callable[[Request], Awaitable[Response]]
Refuse = Callable[[int, str], Response]


class _RefusedError(Exception):
    """A request that is answered without being handled; the connection is closed after that."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class HttpServer:
    """Serves HTTP/1.1 on one address.

    :param handle: answers a request.
    :param refuse: makes the answer to what is no request, of a status and a message.
    """

    def __init__(self, handle: Handler, refuse: Refuse, *, answer_s: float) -> None:
        self._handle = handle
        self._refuse = refuse
        self._answer_s = answer_s
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._of_address: dict[str, dict[asyncio.Task[None], _Connection]] = {}

    async def start(self, host: str, port: int) -> int:
        """Begin to listen; return the port.

        :raises OSError: the address cannot be listened on.
        """
        self._server = await asyncio.start_server(self._connected, host, port, limit=READ_BYTES)
        address: tuple[str, int] = self._server.sockets[0].getsockname()
        return address[1]

    async def stop(self) -> None:
        """Listen no more; answer what is being answered, for CLOSE_S at most."""
        if self._server is not None:
            self._server.close()
        if self._connections:
            await asyncio.wait(self._connections, timeout=CLOSE_S)
        for task in list(self._connections):
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        address = str((writer.get_extra_info("peername") or ("",))[0])
        if not self._make_room(address):
            writer.close()
            return
        connection = _Connection(reader, writer, self._answered, self._refuse)
        self._connections.add(task)
        self._of_address.setdefault(address, {})[task] = connection
        try:
            await connection.serve()
        except (OSError, TimeoutError, h11.ProtocolError) as error:
            log.debug("a connection ended: %s", reason_of(error))
        finally:
            self._forget(address, task)
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    def _make_room(self, address: str) -> bool:
        """Return whether an address may have one more connection; close a waiting one where there are too many.

        The oldest connection that waits for a request makes room: one of the same address, or, when all addresses
        together have too many, one of the address with the most.
        """
        crowd = address
        if len(self._of_address.get(address, ())) < CONNECTIONS_OF_ADDRESS_MAX:
            if len(self._connections) < CONNECTIONS_MAX:
                return True
            crowd = max(self._of_address, key=lambda each: len(self._of_address[each]))
        oldest = next((task for task, each in self._of_address[crowd].items() if each.is_waiting), None)
        if oldest is None:
            return False
        self._forget(crowd, oldest)
        oldest.cancel()
        return True

    def _forget(self, address: str, task: asyncio.Task[None]) -> None:
        self._connections.discard(task)
        connections = self._of_address.get(address, {})
        connections.pop(task, None)
        if not connections:
            self._of_address.pop(address, None)

    async def _answered(self, request: Request) -> Response:
        try:
            async with asyncio.timeout(self._answer_s):
                return await self._handle(request)
        except TimeoutError:
            return self._refuse(500, f"no answer within {self._answer_s:g} s")
        except Exception:
            log.exception("%s %s could not be answered", request.method, request.path)
            return self._refuse(500, "Internal Server Error")


class _Connection:
    """One connection: requests one after the other."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, handle: Handler, refuse: Refuse
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._handle = handle
        self._refuse = refuse
        self.is_waiting = True
        """Whether it has sent no complete request that is not answered yet."""
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=HEADER_BYTES_MAX)

    async def serve(self) -> None:
        """Answer requests until the other side has no more, or sends what is none."""
        while True:
            try:
                request = await self._receive()
            except (_RefusedError, h11.RemoteProtocolError) as error:
                status = error.status if isinstance(error, _RefusedError) else error.error_status_hint
                if self._http.our_state in (h11.IDLE, h11.SEND_RESPONSE):
                    await self._send(self._refuse(status, str(error)), last=True)
                    await self._linger()
                return
            if request is None:
                return
            self.is_waiting = False
            response = await self._handle(request)
            await self._send(response, head_only=request.method == "HEAD")
            if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
                return
            self._http.start_next_cycle()
            self.is_waiting = True

    async def _receive(self) -> Request | None:
        async with asyncio.timeout(IDLE_S):  # as a whole: a byte now and then does not keep a connection
            head = await self._event(IDLE_S)
        if not isinstance(head, h11.Request):
            return None
        async with asyncio.timeout(RECEIVE_S):
            body = await self._body(head)
        path, _, query = head.target.decode("ascii").partition("?")
        try:
            given = dict(parse_qsl(query, keep_blank_values=True, max_num_fields=100))
        except ValueError as error:
            raise _RefusedError(400, str(error)) from error
        headers = {name.decode("ascii").lower(): value.decode("latin-1") for name, value in head.headers}
        return Request(head.method.decode("ascii"), path, given, headers, body)

    async def _body(self, head: h11.Request) -> bytes:
        announced = dict(head.headers).get(b"content-length", b"0")
        too_large = f"the body may have {BODY_BYTES_MAX} bytes"
        if int(announced) > BODY_BYTES_MAX:
            raise _RefusedError(413, too_large)
        if self._http.they_are_waiting_for_100_continue:
            await self._write(self._http.send(h11.InformationalResponse(status_code=100, headers=[])))
        body, parts = bytearray(), 0
        while isinstance(event := await self._event(RECEIVE_S), h11.Data):
            body += event.data
            parts += 1
            if len(body) > BODY_BYTES_MAX:
                raise _RefusedError(413, too_large)
            if parts > PARTS_MAX + len(body) // PART_BYTES_MIN:
                raise _RefusedError(413, f"the body comes in chunks of less than {PART_BYTES_MIN} bytes")
            if parts % PARTS_AT_ONCE == 0:
                await asyncio.sleep(0)  # chunks that were received already do not delay other connections
        return bytes(body)

    async def _event(self, timeout_s: float) -> Any:
        while True:
            event = self._http.next_event()
            if event is not h11.NEED_DATA:
                return event
            async with asyncio.timeout(timeout_s):
                self._http.receive_data(await self._reader.read(READ_BYTES))

    async def _send(self, response: Response, *, last: bool = False, head_only: bool = False) -> None:
        headers = [
            ("Content-Type", response.content_type),
            ("Content-Length", str(len(response.body))),
            *response.headers.items(),
        ]
        if last:
            headers.append(("Connection", "close"))
        sent = self._http.send(h11.Response(status_code=response.status, headers=headers)) or b""
        if not head_only:
            sent += self._http.send(h11.Data(data=response.body)) or b""
        sent += self._http.send(h11.EndOfMessage()) or b""
        await self._write(sent)

    async def _linger(self) -> None:
        """Read what the other side still sends of a refused request: to close before would reset the connection, and
        it would not see the answer."""
        left = LINGER_BYTES_MAX
        async with asyncio.timeout(CLOSE_S):
            while left > 0 and (data := await self._reader.read(READ_BYTES)):
                left -= len(data)

    async def _write(self, data: bytes | None) -> None:
        self._writer.write(data or b"")
        async with asyncio.timeout(SEND_S):
            await self._writer.drain()
