"""The registry's HTTP server: uvicorn parses HTTP, Starlette provides requests and responses, and this module enforces
limits.

A request has a maximum size, a deadline for its arrival, and a deadline for its response. Each address has a maximum
number of connections, which includes those in the middle of a TLS handshake. An exception in a handler becomes a
response with status 500 and one log line.
"""

from __future__ import annotations

import asyncio
import http
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import parse_qsl

import starlette.requests
import starlette.responses
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from barnabas.net.open_connections import Deadline, OpenConnections
from barnabas.net.tls import TlsContext, peer_subject
from barnabas.security.principal import DistinguishedName

BODY_BYTES_MAX = 2 * 1024 * 1024
HEADER_BYTES_MAX = 32 * 1024
BACKLOG = 1_024
CONNECTIONS_MAX = 1_000
CONNECTIONS_OF_ADDRESS_MAX = 200
SMALL_BODY_BYTES = 32 * 1024
WIRE_FACTOR_MAX = 2
"""The maximum ratio of received bytes to body bytes, for bodies larger than SMALL_BODY_BYTES."""
IDLE_S = 75.0
RECEIVE_S = 30.0
SEND_S = 30.0
CLOSE_S = 5.0
HANDSHAKE_S = 10.0
LINGER_BYTES_MAX = 16 * 1024 * 1024
"""The maximum number of bytes that the server still reads from a refused request."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Request:
    """An HTTP request. `path` is percent-encoded and without the query; header names are in lower case.

    :param address: the address of the connection's other end.
    :param certificate: the subject of the client's verified certificate; None if it has presented none.
    """

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes = b""
    address: str = ""
    certificate: DistinguishedName | None = None


@dataclass(frozen=True, slots=True)
class Response:
    """An HTTP response."""

    status: int
    body: bytes
    content_type: str
    headers: Mapping[str, str] = field(default_factory=dict)


Handler = Callable[[Request], Awaitable[Response]]
Refuse = Callable[[int, str], Response]
RefuseHead = Callable[[Request], Awaitable[Response | None]]


class _RefusedError(Exception):
    """The server refuses a request before it reaches the handler."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class HttpServer:
    """An HTTP/1.1 server on one address.

    :param handle: returns the response to a request.
    :param refuse: takes a status and a message, and returns the response to an invalid request.
    :param tls: None for HTTP without TLS.
    :param refuse_head: returns the response to a request that is refused before its body is read; None for others.
        Called for requests with a body, so that a stranger costs no memory for it.
    """

    def __init__(
        self,
        handle: Handler,
        refuse: Refuse,
        *,
        answer_s: float,
        tls: TlsContext | None = None,
        refuse_head: RefuseHead | None = None,
    ) -> None:
        self._tls = tls
        self._refuse_head = refuse_head
        self._handle = handle
        self._refuse = refuse
        self._answer_s = answer_s
        self._server: asyncio.Server | None = None
        self._connections: OpenConnections[_Connection] = OpenConnections(CONNECTIONS_MAX, CONNECTIONS_OF_ADDRESS_MAX)
        self._state = ServerState()
        self._config = uvicorn.Config(
            self._serve,
            http=HttpToolsProtocol,
            interface="asgi3",
            ws="none",
            lifespan="off",
            log_config=None,
            log_level=logging.ERROR,  # uvicorn logs a warning for each invalid request: suppress it
            access_log=False,
            proxy_headers=False,  # limits use the address of the connection, not a forwarded address
            timeout_keep_alive=round(IDLE_S),
        )
        self._config.load()

    async def start(self, host: str, port: int) -> int:
        """Start listening; return the port.

        :raises OSError: the server cannot listen on the address.
        """
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: _Connection(self, self._config, self._state, self._tls), host, port, backlog=BACKLOG
        )
        address: tuple[str, int] = self._server.sockets[0].getsockname()
        return address[1]

    async def stop(self) -> None:
        """Stop listening, and finish complete requests within CLOSE_S."""
        if self._server is not None:
            self._server.close()
        for connection in self._connections:
            if connection.is_waiting:
                connection.abort()
        if self._state.tasks:
            await asyncio.wait(self._state.tasks, timeout=CLOSE_S)
        for connection in self._connections:
            connection.abort()
        for task in list(self._state.tasks):
            task.cancel()
        await asyncio.gather(*self._state.tasks, return_exceptions=True)

    # --- connections ------------------------------------------------------------------------------------

    def admit(self, connection: _Connection) -> bool:
        """Return whether to accept a new connection; at a limit, first close the oldest idle connection."""
        return self._connections.admit(connection.peer, connection.peer[0], connection)

    def forget(self, connection: _Connection) -> None:
        """Remove a connection from the counts."""
        self._connections.forget(connection.peer, connection)

    def refusal_of_head(self) -> Response:
        """Return the response to a request whose headers are too large."""
        return self._refuse(431, f"the request line and headers exceed {HEADER_BYTES_MAX} bytes")

    # --- requests ---------------------------------------------------------------------------------------

    async def _serve(self, scope: Any, receive: Any, send: Any) -> None:
        """Handle a request; this is the ASGI application."""
        connection = self._connections.find(tuple(scope["client"]))
        if connection is None:  # the server closed this connection to accept a new one
            return
        try:
            given = starlette.requests.Request(scope, receive)
            try:
                head = self._head(given, connection)
                refused = None if self._refuse_head is None or not _has_body(given) else await self._refuse_head(head)
                if refused is not None:
                    connection.refuse(refused)
                    return
                async with asyncio.timeout(RECEIVE_S):
                    request = replace(head, body=await self._body(given, connection))
            except _RefusedError as error:
                connection.refuse(self._refuse(error.status, str(error)))
                return
            connection.is_waiting = False
            response = await self._answered(request)
            sent = starlette.responses.Response(
                response.body, response.status, dict(response.headers), response.content_type
            )
            async with asyncio.timeout(SEND_S):
                await sent(scope, receive, send)
            connection.finish_request()
        except (OSError, TimeoutError, starlette.requests.ClientDisconnect) as error:
            log.debug("closing a connection: %s", error)
            connection.abort()

    def _head(self, given: starlette.requests.Request, connection: _Connection) -> Request:
        """Return a request without its body."""
        try:
            query = dict(
                parse_qsl(given.scope["query_string"].decode("latin-1"), keep_blank_values=True, max_num_fields=100)
            )
        except ValueError as error:
            raise _RefusedError(400, str(error)) from error
        headers = {name.lower(): value for name, value in given.headers.items()}
        path = given.scope["raw_path"].decode("ascii")
        return Request(given.method, path, query, headers, b"", connection.peer[0], connection.certificate)

    async def _body(self, given: starlette.requests.Request, connection: _Connection) -> bytes:
        too_large = _RefusedError(413, f"the request body exceeds {BODY_BYTES_MAX} bytes")
        announced = given.headers.get("content-length", "0")
        if not announced.isdecimal() or len(announced) > 10 or int(announced) > BODY_BYTES_MAX:
            raise too_large
        body = bytearray()
        async for part in given.stream():
            body += part
            if len(body) > BODY_BYTES_MAX:
                raise too_large
            if connection.bytes_of_request > HEADER_BYTES_MAX + SMALL_BODY_BYTES + WIRE_FACTOR_MAX * len(body):
                raise _RefusedError(413, "the chunks of the body are too small")
        return bytes(body)

    async def _answered(self, request: Request) -> Response:
        try:
            async with asyncio.timeout(self._answer_s):
                return await self._handle(request)
        except TimeoutError:
            return self._refuse(500, f"no response within {self._answer_s:g} s")
        except Exception:
            log.exception("cannot handle %s %s; responding with status 500", request.method, request.path)
            return self._refuse(500, "Internal Server Error")


class _Connection(asyncio.Protocol):
    """One connection: passes bytes to uvicorn, and limits size and time of requests."""

    def __init__(self, server: HttpServer, config: uvicorn.Config, state: ServerState, tls: TlsContext | None) -> None:
        self._server = server
        self._tls = tls
        self._handshake: asyncio.Task[None] | None = None
        self._early_bytes = b""
        self._http = HttpToolsProtocol(config, state, {})
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._deadline = Deadline(self._loop, self.abort)
        self._is_admitted = False
        self._is_refused = False
        self._is_at_end = False
        self.peer = ("", 0)
        self.is_waiting = True
        """True while the connection waits for the rest of a request or for the next request."""
        self.bytes_of_request = 0
        """The number of bytes received since the last response."""
        self.certificate: DistinguishedName | None = None
        """The subject of the client's verified certificate."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        peer = transport.get_extra_info("peername") or ("", 0)
        self.peer = (str(peer[0]), int(peer[1]))
        self._is_admitted = self._server.admit(self)
        if not self._is_admitted:
            transport.abort()
            return
        if self._tls is None:
            self._begin(transport)
        else:
            transport.pause_reading()  # until the handshake reads
            self._handshake = self._loop.create_task(self._secure(transport, self._tls))

    def _begin(self, transport: asyncio.Transport) -> None:
        self._http.connection_made(transport)
        self._deadline.start(IDLE_S)

    async def _secure(self, transport: asyncio.Transport, tls: TlsContext) -> None:
        """Run the TLS handshake. A failure ends the connection."""
        try:
            secured = await self._loop.start_tls(
                transport,
                self,
                tls.latest("the registry"),
                server_side=True,
                ssl_handshake_timeout=HANDSHAKE_S,
                ssl_shutdown_timeout=CLOSE_S,
            )
        except (OSError, ValueError) as error:
            log.debug("a TLS handshake failed: %s", error)
            secured = None
        if secured is None:
            transport.abort()
            self._server.forget(self)
            return
        self._transport = secured
        self.certificate = peer_subject(secured.get_extra_info("ssl_object"))
        self._begin(secured)
        if self._early_bytes:
            self.data_received(self._early_bytes)
        self._early_bytes = b""

    def data_received(self, data: bytes) -> None:
        if not self._is_admitted:
            return
        if self._http.transport is None:  # the end of the handshake brought these bytes
            self._early_bytes += data
            return
        room = max(HEADER_BYTES_MAX - self.bytes_of_request, 0)
        self.bytes_of_request += len(data)
        if self._is_refused:
            if self.bytes_of_request > LINGER_BYTES_MAX:
                self.abort()
            return
        if not self._has_head and len(data) > room:
            self._http.data_received(data[:room])
            if not self._has_head:
                self.refuse(self._server.refusal_of_head())
                return
            data = data[room:]
        self._http.data_received(data)
        if self._has_head:
            self._deadline.stop()

    @property
    def _has_head(self) -> bool:
        cycle = self._http.cycle
        return cycle is not None and not cycle.response_complete

    def refuse(self, response: Response) -> None:
        """Respond to an incomplete request, and read the rest of the request up to a limit.

        If the server closed the connection immediately, TCP would reset it, and the client would not receive the
        response.
        """
        if self._transport is None or self._transport.is_closing():
            return
        head = f"HTTP/1.1 {response.status} {_phrase(response.status)}\r\nContent-Type: {response.content_type}\r\n"
        head += "".join(f"{name}: {value}\r\n" for name, value in response.headers.items())
        head += f"Content-Length: {len(response.body)}\r\nConnection: close\r\n\r\n"
        self._transport.write(head.encode() + response.body)
        self._is_refused = True
        self._http.connection_lost(ConnectionAbortedError())  # this prevents a second response by uvicorn
        self._transport.resume_reading()
        self._deadline.start(CLOSE_S)

    def finish_request(self) -> None:
        """Record the end of a request."""
        self.is_waiting = True
        self.bytes_of_request = 0
        if self._transport is None or self._transport.is_closing():
            return
        if self._is_at_end:
            self._transport.close()
        else:
            self._deadline.start(IDLE_S)

    def abort(self) -> None:
        """Close the connection without waiting for pending data."""
        if self._transport is None or self._transport.is_closing():
            return
        self._transport.abort()
        if self._is_admitted and self._http.transport is not None:
            self._http.connection_lost(ConnectionAbortedError())  # this stops uvicorn without an error in the log

    def eof_received(self) -> bool:
        self._is_at_end = True
        # Keep the connection: a client may shut down its side and still wait for the response. With TLS, it has closed
        # the connection.
        return self._tls is None and self._has_head

    def connection_lost(self, exc: Exception | None) -> None:
        self._deadline.stop()
        if self._is_admitted:
            self._server.forget(self)
            if self._http.transport is not None:
                self._http.connection_lost(exc)

    def pause_writing(self) -> None:
        self._http.pause_writing()

    def resume_writing(self) -> None:
        self._http.resume_writing()


def _has_body(given: starlette.requests.Request) -> bool:
    return given.headers.get("content-length", "0") != "0" or "transfer-encoding" in given.headers


def _phrase(status: int) -> str:
    try:
        return http.HTTPStatus(status).phrase
    except ValueError:
        return ""
