"""The client's side of the network: a connection to one broker, over which requests are pipelined.

At connect the broker is asked which versions it serves (ApiVersions, KIP-511); from then on each request goes out
in the newest version that both sides have. A request that is not answered in time ends the connection, as in
Kafka's clients: what comes after it could not be trusted to come in time either.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections import deque
from typing import Any, NamedTuple

from barnabas.errors import (
    BarnabasError,
    DisconnectedError,
    ErrorCode,
    KafkaError,
    MalformedMessageError,
    TimedOutError,
    UnsupportedVersionError,
)
from barnabas.net.framing import FrameReader
from barnabas.net.stream import Stream
from barnabas.protocol.apis import APIS
from barnabas.protocol.declare import message_of
from barnabas.protocol.frames import decode_response, read_correlation_id, request_frame
from barnabas.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

RESPONSE_BYTES_MAX = 512 * 1024 * 1024
CORRELATION_ID_MAX = 0x7FFFFFFF
DEFAULT_TIMEOUT_S = 30.0


class _Pending(NamedTuple):
    correlation_id: int
    response: type[Any]
    version: int
    future: asyncio.Future[Any]
    timer: asyncio.TimerHandle


async def dial(
    host: str,
    port: int,
    *,
    client_id: str = "barnabas",
    connect_timeout_s: float = DEFAULT_TIMEOUT_S,
    software_version: str = "unknown",
) -> Connection:
    """Connect to a broker and learn what it serves.

    :param client_id: the name that the broker sees.
    :param connect_timeout_s: for the connection and the first exchange together.
    :raises DisconnectedError: nobody listens there, or the other end closed the connection.
    :raises TimedOutError: it took too long.
    """
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(connect_timeout_s):
            sock = await _connect(loop, host, port)
            connection = Connection(loop, sock, f"{host}:{port}", client_id)
            try:
                await connection.negotiate(software_version, connect_timeout_s)
            except BaseException:
                connection.close()
                raise
            return connection
    except TimeoutError:
        raise TimedOutError(f"{host}:{port} did not answer within {connect_timeout_s:g} s") from None
    except OSError as error:
        raise DisconnectedError(f"cannot connect to {host}:{port}: {error.strerror or error}") from None


async def _connect(loop: asyncio.AbstractEventLoop, host: str, port: int) -> socket.socket:
    """Return a socket connected to the first of the host's addresses that takes it."""
    failure: OSError = OSError(f"{host} has no address")
    for family, kind, protocol, _, address in await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        sock = socket.socket(family, kind, protocol)
        sock.setblocking(False)
        try:
            await loop.sock_connect(sock, address)
        except OSError as error:
            sock.close()
            failure = error
        except BaseException:
            sock.close()
            raise
        else:
            if sock.getsockname() != sock.getpeername():
                return sock
            # Where nobody listens on a port of the ephemeral range, TCP may connect a socket to itself.
            sock.close()
            failure = ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
    raise failure


class Connection:
    """A connection to one broker. Used from the thread of its event loop only; made by `dial`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, sock: socket.socket, address: str, client_id: str) -> None:
        self.address = address
        self._loop = loop
        self._client_id = client_id
        self._versions: dict[int, range] = {}
        self._pending: deque[_Pending] = deque()
        self._correlation_id = 0
        self._error: BarnabasError | None = None
        self._reader = FrameReader(RESPONSE_BYTES_MAX)
        self._stream = Stream(loop, sock, self._on_bytes, lambda: None, self._on_closed)

    @property
    def is_open(self) -> bool:
        """Whether requests can still be sent."""
        return self._stream.is_open

    @property
    def in_flight(self) -> int:
        """Requests that were sent and not answered yet."""
        return len(self._pending)

    def version_for(self, request: type[Any]) -> int:
        """Return the newest version of a request class that both sides have.

        :raises UnsupportedVersionError: there is none.
        """
        spec = message_of(request)
        assert spec.api_key is not None
        served = self._versions.get(spec.api_key, range(0))
        newest = min(served.stop, spec.versions.stop) - 1
        if newest < max(served.start, spec.versions.start):
            theirs = f"{served.start} to {served.stop - 1}" if served else "none"
            ours = f"{spec.versions.start} to {spec.versions.stop - 1}"
            raise UnsupportedVersionError(
                f"{self.address} serves versions {theirs} of {APIS[spec.api_key].name}, this client has {ours}"
            )
        return newest

    async def send(self, request: object, *, version: int | None = None, timeout_s: float = DEFAULT_TIMEOUT_S) -> Any:
        """Send a request and return its response.

        Requests go out in the order of the calls, without waiting for each other's answers.

        :param version: a version of the request; None for the newest that both sides have.
        :raises DisconnectedError: the connection ended first; the request may have been carried out.
        :raises TimedOutError: no answer in time; the connection is closed, the request may have been carried out.
        :raises UnsupportedVersionError: the broker does not serve the request.
        """
        return await self.send_soon(request, version=version, timeout_s=timeout_s)

    def send_soon(
        self, request: object, *, version: int | None = None, timeout_s: float = DEFAULT_TIMEOUT_S
    ) -> asyncio.Future[Any]:
        """Send a request now and return the future of its response; see `send`."""
        version = self.version_for(type(request)) if version is None else version
        frame = self._frame(request, version)
        future: asyncio.Future[Any] = self._loop.create_future()
        api_key = message_of(type(request)).api_key
        assert api_key is not None
        api = APIS[api_key]
        timer = self._loop.call_later(timeout_s, self._expire, api.name, timeout_s)
        self._pending.append(_Pending(self._correlation_id, api.response, version, future, timer))
        self._stream.send(frame)
        return future

    def post(self, request: object, *, version: int | None = None) -> None:
        """Send a request that the broker does not answer (Produce with acks=0).

        :raises DisconnectedError: the connection has ended.
        """
        self._stream.send(self._frame(request, self.version_for(type(request)) if version is None else version))

    @property
    def unsent_bytes(self) -> int:
        """Bytes of requests that the socket has not taken yet."""
        return self._stream.unsent_bytes

    def close(self) -> None:
        """End the connection; requests under way fail with DisconnectedError."""
        self._stream.close()

    async def negotiate(self, software_version: str, timeout_s: float) -> None:
        """Ask which versions the broker serves; called once, by `dial`.

        :raises KafkaError: the broker refuses to tell.
        """
        request = ApiVersionsRequest(client_software_name="barnabas", client_software_version=software_version)
        newest = message_of(ApiVersionsRequest).versions.stop - 1
        response: ApiVersionsResponse = await self.send(request, version=newest, timeout_s=timeout_s)
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
            response = await self.send(ApiVersionsRequest(), version=0, timeout_s=timeout_s)
        if response.error_code:
            raise KafkaError(response.error_code, f"{self.address} does not tell what it serves")
        self._versions = {api.api_key: range(api.min_version, api.max_version + 1) for api in response.api_keys}

    def _frame(self, request: object, version: int) -> list[Any]:
        if not self._stream.is_open:
            raise self._error or DisconnectedError(f"the connection to {self.address} is closed")
        self._correlation_id = (self._correlation_id + 1) & CORRELATION_ID_MAX
        return request_frame(request, version, self._correlation_id, self._client_id)

    def _on_bytes(self, data: memoryview) -> None:
        try:
            for frame in self._reader.feed(data):
                self._answer(frame)
        except MalformedMessageError as error:
            self._error = DisconnectedError(f"{self.address} sent what is not an answer: {error}")
            self._stream.close(error)

    def _answer(self, frame: bytes | bytearray) -> None:
        correlation_id = read_correlation_id(frame)
        if not self._pending or self._pending[0].correlation_id != correlation_id:
            raise MalformedMessageError(f"nobody waits for an answer with correlation id {correlation_id}")
        pending = self._pending.popleft()
        pending.timer.cancel()
        if not pending.future.done():
            pending.future.set_result(self._decode(pending, frame))

    def _decode(self, pending: _Pending, frame: bytes | bytearray) -> Any:
        if pending.response is ApiVersionsResponse and frame[4:6] == b"\x00\x23":
            # A broker that lacks the version asked for answers in version 0 (KIP-511).
            return decode_response(ApiVersionsResponse, 0, frame)
        return decode_response(pending.response, pending.version, frame)

    def _expire(self, api: str, timeout_s: float) -> None:
        error = TimedOutError(f"{self.address} did not answer a {api} request within {timeout_s:g} s")
        self._error = error
        self._stream.close(error)

    def _on_closed(self, error: Exception | None) -> None:
        if self._error is None:
            reason = f": {error}" if error else ""
            self._error = DisconnectedError(f"the connection to {self.address} was closed{reason}")
        while self._pending:
            pending = self._pending.popleft()
            pending.timer.cancel()
            if not pending.future.done():
                pending.future.set_exception(self._error)
