"""The client's end of a connection to a broker, with pipelined requests.

After connecting, the client requests the versions that the broker serves (ApiVersions, KIP-511). Each request uses the
newest version that both sides support. A request without a response in time ends the connection, as in Kafka's clients:
later responses would most likely also be late.

A faulty broker may announce and send frames of any size, so a frame above the limit ends the connection. A fetch
response contains at most the requested bytes, or one larger batch; all other responses are small.

`RequestBackoff` slows down requests to a broker whose responses are empty or invalid. Otherwise such a broker could
receive thousands of requests a second.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import errno
import functools
import os
import socket
import ssl
import threading
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from barnabas.addresses import host_port
from barnabas.errors import (
    ApiError,
    AuthenticationError,
    BarnabasError,
    DisconnectedError,
    ErrorCode,
    Failure,
    MalformedMessageError,
    TimedOutError,
    UnsupportedVersionError,
)
from barnabas.net.stream import FrameReader, OpenStream, Stream
from barnabas.net.tls import TlsContext, is_refusal, reason_of_failure, secure
from barnabas.net.tls_stream import TlsStream
from barnabas.protocol.codec import (
    API_VERSIONS_KEY,
    Buffer,
    Chunk,
    EncodedRequest,
    decode_response,
    read_correlation_id,
    request_frame,
)
from barnabas.protocol.declare import api_name, message_of, response_of
from barnabas.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from barnabas.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

if TYPE_CHECKING:
    from barnabas.security.sasl import SaslClient

FETCH_KEY = 1
"""The API key of Fetch, as a number, so that clients that never fetch need not import the messages."""

MIB = 1024 * 1024

RESPONSE_BYTES_MAX = 100 * MIB
"""The maximum size of a response other than Fetch and ApiVersions. Metadata of 200,000 partitions takes a fifth of this
size.
"""

VERSIONS_BYTES_MAX = MIB
"""The maximum size of the first response of a connection. A larger size means that the server uses another protocol."""

BATCH_BYTES_MAX = 100 * MIB
"""The maximum size of a batch that exceeds the requested bytes (KIP-74). With the default of
`socket.request.max.bytes`, no broker accepts a larger batch. A larger `fetch.max.bytes` allows larger batches.
"""

PARTITIONS_BYTES_MAX = 16 * MIB
"""The maximum size of a fetch response besides records; enough for 100,000 partitions."""

FETCH_BYTES_MAX = 512 * MIB


@functools.cache
def _api_key(request: type) -> int | None:
    return message_of(request).api_key


def fetch_bytes(request: Any) -> int:
    """Return the number of bytes of records that a request fetches; 0 if it is not a fetch."""
    cls: type = type(request)
    if cls is EncodedRequest:
        return int(request.fetch_bytes)
    return max(0, request.max_bytes) if _api_key(cls) == FETCH_KEY else 0


def response_bytes_max(request: type, asked: int) -> int:
    """Return the maximum size of the response to a request.

    :param asked: the `fetch_bytes` of the request.
    """
    api_key = _api_key(request)
    if api_key == FETCH_KEY:
        return min(asked + BATCH_BYTES_MAX + PARTITIONS_BYTES_MAX, FETCH_BYTES_MAX)
    return VERSIONS_BYTES_MAX if api_key == API_VERSIONS_KEY else RESPONSE_BYTES_MAX


FIRST_PAUSE_S = 0.05
FREE_FUTILE = 3
"""The number of consecutive futile requests without a pause. A few are normal after a leader change or the end of a
fetch session.
"""


class RequestBackoff:
    """Computes the pauses between requests to one peer, which grow with each futile request. The caller passes the
    time.

    >>> pacing = RequestBackoff(pause_s_max=1.0)
    >>> for _ in range(FREE_FUTILE + 2):
    ...     pacing.note_futile(now_s=5.0)
    >>> round(pacing.wait_s(now_s=5.0), 3)
    0.1
    """

    __slots__ = ("_futile", "_not_before_s", "_pause_s_max")

    def __init__(self, pause_s_max: float) -> None:
        self._pause_s_max = pause_s_max
        self._futile = 0
        self._not_before_s = 0.0

    @property
    def is_slow(self) -> bool:
        """True if requests are currently delayed."""
        return self._futile > FREE_FUTILE

    def note_progress(self) -> None:
        """End the pauses, because a response contained data, or arrived after the request's full wait time."""
        self._futile = 0

    def note_futile(self, now_s: float) -> None:
        """Extend the pause, because a request failed, or its response arrived immediately without data."""
        self._futile += 1
        if self.is_slow:
            doublings = min(self._futile - FREE_FUTILE - 1, 16)
            self._not_before_s = now_s + min(FIRST_PAUSE_S * 2.0**doublings, self._pause_s_max)

    def wait_s(self, now_s: float) -> float:
        """Return the time in seconds to wait before the next request; 0 if it can be sent now."""
        return max(0.0, self._not_before_s - now_s) if self.is_slow else 0.0


@dataclass(frozen=True, slots=True)
class ConnectionSecurity:
    """The security of connections to brokers.

    :param tls: the context of TLS connections; None without TLS.
    :param new_sasl_client: creates the client side of the SASL mechanism for each authentication; called on a thread,
        since a function of the application may supply the token. None without SASL.
    """

    tls: TlsContext | None = None
    new_sasl_client: Callable[[], SaslClient] | None = None


T = TypeVar("T")

REAUTHENTICATION_SHARE = 0.85
"""The share of a session's lifetime after which the client authenticates again; Java's client uses 0.85 to 0.95."""
SASL_STEPS_MAX = 8
"""The maximum number of messages of one authentication; SCRAM needs two."""
AUTHENTICATION_REQUESTS = (SaslHandshakeRequest, SaslAuthenticateRequest)
PLACE_BYTES = 1024 * 1024
"""The maximum number of bytes, beyond the requested bytes, that are allocated for a response before it arrives."""
CORRELATION_ID_MAX = 0x7FFFFFFF
FIRST_REQUESTS = 3
"""The correlation id up to which a request may be the first one after ApiVersions, which may take two requests."""
TLS_ALERT = b"\x15\x03"
"""The first bytes of an alert, with which a TLS listener answers bytes that are not TLS."""
REASON_CHARACTERS_MAX = 500
DEFAULT_TIMEOUT_S = 30.0


OnResponse = Callable[[Any, BarnabasError | None], None]
"""A callback that receives the response to a request, or the error."""


class _Pending:
    """A request that waits for its response."""

    __slots__ = ("correlation_id", "due_at_s", "fetch_bytes", "on_answer", "read", "request", "timeout_s", "version")

    def __init__(
        self,
        correlation_id: int,
        request: type,
        version: int,
        on_answer: OnResponse,
        due_at_s: float,
        timeout_s: float,
        read: Callable[[Buffer], object | None] | None,
        fetch_bytes: int,
    ) -> None:
        self.fetch_bytes = fetch_bytes
        self.correlation_id = correlation_id
        self.request = request
        self.version = version
        self.on_answer = on_answer
        self.due_at_s = due_at_s
        self.timeout_s = timeout_s
        self.read = read


class _Held(NamedTuple):
    """A request that waits until the client has authenticated again, or until the broker permits further requests."""

    request: object
    on_answer: OnResponse | None
    version: int
    timeout_s: float
    due_at_s: float

    @property
    def is_abandoned(self) -> bool:
        """True if nobody waits for the response any more."""
        return isinstance(self.on_answer, _FutureResponse) and self.on_answer.future.done()


class _FutureResponse:
    """A callback that passes the response or the error to a future."""

    __slots__ = ("future",)

    def __init__(self, future: asyncio.Future[Any]) -> None:
        self.future = future

    def __call__(self, response: Any, error: BarnabasError | None) -> None:
        if self.future.done():
            return
        if error is None:
            self.future.set_result(response)
        else:
            self.future.set_exception(error)


async def dial(
    host: str,
    port: int,
    *,
    client_id: str = "barnabas",
    connect_timeout_s: float = DEFAULT_TIMEOUT_S,
    software_version: str = "unknown",
    security: ConnectionSecurity | None = None,
) -> ClientConnection:
    """Connect to a broker, request the versions that it serves, and authenticate.

    :param client_id: the name that the broker sees.
    :param security: TLS and SASL; None for a connection without both.
    :param connect_timeout_s: the maximum time in seconds for the connection and the first exchange together.
    :raises DisconnectedError: no broker listens at the address, or the broker closed the connection.
    :raises TimedOutError: the connection took too long.
    :raises AuthenticationError: the certificate of the broker is not accepted, or the broker rejects the credentials.
    """
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(connect_timeout_s):
            sock = await _connect(loop, host, port)
            open_stream: OpenStream = partial(Stream, loop, sock)
            if security is not None and security.tls is not None:
                open_stream = await _open_tls(loop, sock, security.tls, host, port)
            connection = ClientConnection(loop, open_stream, host_port(host, port), client_id)
            try:
                await connection.negotiate(software_version, connect_timeout_s)
                if security is not None and security.new_sasl_client is not None:
                    await connection.authenticate(security.new_sasl_client, connect_timeout_s)
            except BaseException:
                connection.close()
                raise
            return connection
    except DisconnectedError:
        raise
    except TimeoutError:
        raise TimedOutError(f"{host_port(host, port)} did not answer within {connect_timeout_s:g} s") from None
    except OSError as error:
        reason = error.strerror or str(error)
        raise DisconnectedError(f"cannot connect to {host_port(host, port)}: {reason}", reason) from None


async def _open_tls(
    loop: asyncio.AbstractEventLoop, sock: socket.socket, tls: TlsContext, host: str, port: int
) -> OpenStream:
    """Run the TLS handshake; return what creates the stream.

    :raises AuthenticationError: the certificate of the broker is not accepted, or the broker demands another one.
    :raises DisconnectedError: the broker does not speak TLS, or has closed the connection.
    """
    tls.reload()
    address = host_port(host, port)
    try:
        secured = await secure(loop, sock, tls.current, host)
    except ssl.SSLCertVerificationError as error:
        raise AuthenticationError(
            f"{address}: {reason_of_failure(error)}; check ssl_cafile, and the host names in the broker's certificate"
        ) from None
    except OSError as error:
        reason = reason_of_failure(error)
        if is_refusal(error):
            raise _refused_certificate(address, error) from None
        raise DisconnectedError(
            f"the TLS handshake with {address} failed: {reason}; check that this listener uses TLS (security_protocol)",
            reason,
        ) from None
    return partial(TlsStream, loop, secured)


def _refused_certificate(address: str, error: Exception) -> AuthenticationError:
    """Return the error for a broker that does not accept the client's certificate, or demands one."""
    return AuthenticationError(
        f"{address} refuses the TLS connection: {reason_of_failure(error)}; check ssl_certfile, the certificate of this"
        " client"
    )


async def _connect(loop: asyncio.AbstractEventLoop, host: str, port: int) -> socket.socket:
    """Try the addresses of a host in turn. Return a connected socket."""
    failure: OSError = OSError(f"{host} has no address")
    for family, kind, protocol, _, address in await _addresses(loop, host, port):
        sock = socket.socket(family, kind, protocol)
        sock.setblocking(False)
        try:
            await _finish_connect(loop, sock, address)
        except OSError as error:
            sock.close()
            failure = error
        except BaseException:
            sock.close()
            raise
        else:
            if sock.getsockname() != sock.getpeername():
                return sock
            # TCP may connect a socket to itself, if the address is an ephemeral port on which no process listens.
            sock.close()
            failure = ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
    raise failure


# Do not use `loop.getaddrinfo` and `loop.sock_connect`: in uvloop they start threads of libuv, which joins its threads
# when the process ends. A forked child has no such threads, and joining them causes a segmentation fault.


async def _addresses(loop: asyncio.AbstractEventLoop, host: str, port: int) -> list[Any]:
    """Return the result of `socket.getaddrinfo`, without blocking the loop.

    :raises OSError: the host has no address, or its name is malformed.
    """
    # Encode the host, because a str would load the codec for international names, which takes milliseconds.
    name = host.encode("ascii") if host.isascii() else host
    look_up = partial(socket.getaddrinfo, name, port, type=socket.SOCK_STREAM)
    try:
        with contextlib.suppress(socket.gaierror):  # not an address, but a host name, whose lookup may take long
            return look_up(flags=socket.AI_NUMERICHOST)
        return await _on_thread(loop, look_up)
    except UnicodeError as error:
        raise OSError(f"{host!r} is not a valid host name: {error}") from None


async def _on_thread(loop: asyncio.AbstractEventLoop, call: Callable[[], T]) -> T:
    """Return the result of a call on a thread of its own."""
    # Use a thread instead of an executor: executors no longer work when a client delivers its last records at
    # interpreter exit.
    answer: concurrent.futures.Future[T] = concurrent.futures.Future()
    threading.Thread(target=_settle_by, args=(answer, call), name="barnabas-client", daemon=True).start()
    return await asyncio.wrap_future(answer, loop=loop)


def _settle_by(answer: concurrent.futures.Future[T], call: Callable[[], T]) -> None:
    if answer.set_running_or_notify_cancel():
        try:
            result = call()
        except Exception as error:  # noqa: BLE001 - raised at the `await`
            answer.set_exception(error)
        else:
            answer.set_result(result)


async def _finish_connect(loop: asyncio.AbstractEventLoop, sock: socket.socket, address: Any) -> None:
    """Connect a non-blocking socket, without blocking the event loop.

    :raises OSError: the connection failed.
    """
    try:
        sock.connect(address)
    except BlockingIOError:
        connected = loop.create_future()
        loop.add_writer(sock, _settle, connected)
        try:
            await connected
        finally:
            loop.remove_writer(sock)
        code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            raise OSError(code, os.strerror(code)) from None


def _settle(connected: asyncio.Future[None]) -> None:
    if not connected.done():
        connected.set_result(None)


class ClientConnection:
    """A connection to one broker, created by `dial`. Use it only from the thread of its event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, open_stream: OpenStream, address: str, client_id: str) -> None:
        self.address = address
        self._loop = loop
        self._client_id = client_id
        self._versions: dict[int, range] = {}
        self._newest: dict[type[Any], int] = {}
        self._pending: deque[_Pending] = deque()
        self._outbox: list[Chunk] = []
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at_s = 0.0
        self._correlation_id = 0
        self._failure: Failure | None = None
        self._session: asyncio.Task[None] | None = None  # authenticates again before the session ends
        # The requests since the beginning of that authentication, or since a response with a time to wait; None before
        # and after it. The session may end while the authentication waits for earlier requests, and the broker ends a
        # connection without a session.
        self._held: list[_Held] | None = None
        self._is_authenticating_again = False
        self._throttled_until_s = 0.0  # the time until which the broker permits no requests (KIP-219)
        self._throttle_timer: asyncio.TimerHandle | None = None
        self.on_progress: Callable[[], None] | None = None
        """A callback for callers with many requests in flight, which handle several events together. It is called after
        all responses of one read were delivered, when waiting chunks have been sent, and when the connection ends.
        """
        self._reader = FrameReader(FETCH_BYTES_MAX, self._response_bytes_max)
        self._stream = open_stream(self._on_bytes, self._progress, self._on_closed)
        self._stream.in_place_receiver = self

    @property
    def is_open(self) -> bool:
        """True if requests can still be sent."""
        return self._stream.is_open

    @property
    def in_flight(self) -> int:
        """The number of requests that have no response yet."""
        return len(self._pending) + len(self._held or ())

    def version_for(self, request: type[Any]) -> int:
        """Return the newest version of a request class that both sides support.

        :raises UnsupportedVersionError: there is no such version.
        """
        newest = self._newest.get(request)
        if newest is not None:
            return newest
        spec = message_of(request)
        assert spec.api_key is not None
        served = self._versions.get(spec.api_key, range(0))
        newest = min(served.stop, spec.versions.stop) - 1
        if newest < max(served.start, spec.versions.start):
            theirs = f"{served.start} to {served.stop - 1}" if served else "none"
            ours = f"{spec.versions.start} to {spec.versions.stop - 1}"
            raise UnsupportedVersionError(
                f"{self.address} serves versions {theirs} of {api_name(request)}, this client has {ours}"
            )
        self._newest[request] = newest
        return newest

    async def send(self, request: object, *, version: int | None = None, timeout_s: float = DEFAULT_TIMEOUT_S) -> Any:
        """Send a request and return its response.

        Requests are sent in the order of the calls, without waiting for each other's responses.

        :param version: the version of the request, or None for the newest version that both sides support.
        :raises DisconnectedError: the connection ended before the response; the broker may have executed the request.
        :raises TimedOutError: no response arrived in time; the connection is closed, and the broker may have executed
            the request.
        :raises UnsupportedVersionError: the broker does not serve the request.
        """
        return await self.send_soon(request, version=version, timeout_s=timeout_s)

    def send_soon(
        self, request: object, *, version: int | None = None, timeout_s: float = DEFAULT_TIMEOUT_S
    ) -> asyncio.Future[Any]:
        """Send a request now and return the future of its response; see `send`."""
        future: asyncio.Future[Any] = self._loop.create_future()
        self.submit(request, _FutureResponse(future), version=version, timeout_s=timeout_s)
        self.flush()
        return future

    def submit(
        self,
        request: object,
        on_answer: OnResponse | None,
        *,
        version: int | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> None:
        """Queue a request for the next `flush`, without a future, for callers that send many requests.

        :param request: a message, or an `EncodedRequest`.
        :param on_answer: called on the loop with the response or the error; it must not raise. Pass None if the broker
            sends no response (Produce with acks=0).
        :raises DisconnectedError: the connection has ended.
        :raises UnsupportedVersionError: the broker does not serve the request.
        """
        cls, read = type(request), None
        if isinstance(request, EncodedRequest):
            cls, read = request.cls, request.read
        version = self.version_for(cls) if version is None else version
        if self._held is not None and cls not in AUTHENTICATION_REQUESTS:
            self._hold(_Held(request, on_answer, version, timeout_s, self._loop.time() + timeout_s))
            return
        self._outbox += self._frame(request, version)
        if on_answer is None:
            return
        due_at_s = self._loop.time() + timeout_s
        self._pending.append(
            _Pending(self._correlation_id, cls, version, on_answer, due_at_s, timeout_s, read, fetch_bytes(request))
        )
        if self._timer is None or due_at_s < self._timer_at_s:
            self._look_again_at(due_at_s)

    def post(self, request: object, *, version: int | None = None) -> None:
        """Send a request without a response (Produce with acks=0).

        :raises DisconnectedError: the connection has ended.
        """
        self.submit(request, None, version=version)
        self.flush()

    def flush(self) -> None:
        """Send all queued requests in one system call, because each system call may yield the interpreter lock to
        another thread.
        """
        if self._outbox:
            outbox, self._outbox = self._outbox, []
            self._stream.send(outbox)

    @property
    def unsent_bytes(self) -> int:
        """The number of bytes of requests that the socket has not accepted yet."""
        return self._stream.unsent_bytes

    def close(self) -> None:
        """End the connection; requests in flight fail with DisconnectedError."""
        self._stream.close()

    async def negotiate(self, software_version: str, timeout_s: float) -> None:
        """Request the versions that the broker serves; `dial` calls this once.

        :raises ApiError: the broker returned an error.
        """
        request = ApiVersionsRequest(client_software_name="barnabas", client_software_version=software_version)
        newest = message_of(ApiVersionsRequest).versions.stop - 1
        response: ApiVersionsResponse = await self.send(request, version=newest, timeout_s=timeout_s)
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
            response = await self.send(ApiVersionsRequest(), version=0, timeout_s=timeout_s)
        if response.error_code:
            raise ApiError(response.error_code, f"{self.address} refused to list its API versions")
        self._versions = {api.api_key: range(api.min_version, api.max_version + 1) for api in response.api_keys}
        self._newest.clear()

    async def authenticate(self, new_client: Callable[[], SaslClient], timeout_s: float) -> None:
        """Authenticate with SASL. If the session has an end, authenticate again before it.

        :param new_client: creates the client side of the mechanism; called on a thread.
        :raises AuthenticationError: the broker rejects the credentials, or cannot prove its own identity.
        """
        client = await _on_thread(self._loop, new_client)
        handshake = SaslHandshakeRequest(mechanism=client.mechanism)
        chosen: SaslHandshakeResponse = await self.send(handshake, version=1, timeout_s=timeout_s)
        if chosen.error_code:
            offered = ", ".join(chosen.mechanisms) or "no mechanism"
            code = ErrorCode.of(chosen.error_code).name
            raise AuthenticationError(f"{self.address} refuses {client.mechanism} ({code}); it offers {offered}")
        message = client.first()
        for _ in range(SASL_STEPS_MAX):
            request = SaslAuthenticateRequest(auth_bytes=message)
            response: SaslAuthenticateResponse = await self.send(request, timeout_s=timeout_s)
            if response.error_code:
                reason = response.error_message or ErrorCode.of(response.error_code).name
                raise AuthenticationError(
                    f"{self.address} rejects {client.mechanism}: {reason[:REASON_CHARACTERS_MAX]}"
                )
            # SCRAM hashes the password thousands of times, which would block the event loop.
            message = await _on_thread(self._loop, partial(client.respond, bytes(response.auth_bytes)))
            if client.is_complete:
                if response.session_lifetime_ms > 0:
                    self._authenticate_again_in(response.session_lifetime_ms / 1000, new_client, timeout_s)
                return
        raise AuthenticationError(f"{self.address} did not complete {client.mechanism} in {SASL_STEPS_MAX} steps")

    def _authenticate_again_in(self, lifetime_s: float, new_client: Callable[[], SaslClient], timeout_s: float) -> None:
        pause_s = lifetime_s * REAUTHENTICATION_SHARE

        async def again() -> None:
            await asyncio.sleep(pause_s)
            self._is_authenticating_again = True
            self._held = self._held or []
            # The broker responds to earlier requests first, and some of them wait for minutes.
            now_s = self._loop.time()
            wait_s = max((pending.due_at_s - now_s for pending in self._pending), default=0.0)
            try:
                await self.authenticate(new_client, timeout_s + max(0.0, wait_s))
            except BarnabasError as error:
                self._failure = self._failure or Failure.of(error)
                self._stream.close(error)
            else:
                self._is_authenticating_again = False
                self._send_held()

        self._session = self._loop.create_task(again())

    # --- requests that wait -----------------------------------------------------------------------------

    def _throttle(self, time_ms: int) -> None:
        """Send no requests for the time in a response. The broker would not read them (KIP-219)."""
        self._throttled_until_s = max(self._throttled_until_s, self._loop.time() + time_ms / 1000)
        self._held = self._held or []
        self._look_at_held()

    def _hold(self, request: _Held) -> None:
        assert self._held is not None
        self._held.append(request)
        if self._throttled_until_s:
            self._look_at_held()

    def _look_at_held(self) -> None:
        """Fail the requests whose time is over, and send the others as soon as the broker permits it.

        The failed requests were not sent, so the connection stays open.
        """
        if self._throttle_timer is not None:
            self._throttle_timer.cancel()
            self._throttle_timer = None
        if not self._stream.is_open:
            return
        now_s = self._loop.time()
        if now_s >= self._throttled_until_s:
            self._throttled_until_s = 0.0
            self._send_held()
            self._progress()
            return
        held = self._held or []
        late = [each for each in held if each.due_at_s <= now_s]
        self._held = [each for each in held if each.due_at_s > now_s]
        at_s = min([self._throttled_until_s, *(each.due_at_s for each in self._held)])
        self._throttle_timer = self._loop.call_at(at_s, self._look_at_held)
        wait_s = self._throttled_until_s - now_s
        for each in late:
            if each.on_answer is not None:
                message = (
                    f"{self.address} permits the next request in {wait_s:.3g} s, because of a quota of this client"
                )
                each.on_answer(None, TimedOutError(message))
        if late:
            self._progress()

    def _send_held(self) -> None:
        """Send the held requests, unless another reason holds them."""
        if self._is_authenticating_again or self._throttled_until_s:
            return
        held, self._held = self._held or [], None
        for each in held:
            if not each.is_abandoned:
                self.submit(each.request, each.on_answer, version=each.version, timeout_s=each.timeout_s)
        self.flush()

    def _frame(self, request: object, version: int) -> list[Any]:
        if not self._stream.is_open:
            raise (
                DisconnectedError(f"the connection to {self.address} is closed")
                if self._failure is None
                else self._failure.error()
            )
        self._correlation_id = (self._correlation_id + 1) & CORRELATION_ID_MAX
        return request_frame(request, version, self._correlation_id, self._client_id)

    def get_buffer(self) -> memoryview | None:
        """Return the memory for the next bytes of a large response."""
        asked = self._pending[0].fetch_bytes if self._pending else 0
        return self._reader.get_buffer(asked + PLACE_BYTES)

    def _response_bytes_max(self, number: int) -> int:
        """Return the maximum size of the response after the next `number` responses, or -1 if no request waits for such
        a response.
        """
        if number >= len(self._pending):
            return -1
        pending = self._pending[number]
        return response_bytes_max(pending.request, pending.fetch_bytes)

    def buffer_updated(self, size: int) -> None:
        """Process `size` bytes that were received into the buffer. Handle the response if it is complete."""
        frame = self._reader.buffer_updated(size)
        if frame is not None:
            self._take([frame])

    def _on_bytes(self, data: memoryview) -> None:
        is_first = not self._versions
        try:
            frames = self._reader.feed(data)
        except MalformedMessageError as error:
            speaks_tls = is_first and bytes(data[:2]) == TLS_ALERT
            self._refuse(MalformedMessageError("it speaks TLS; set security_protocol to SSL") if speaks_tls else error)
        else:
            self._take(frames)

    def _take(self, frames: Iterable[Buffer]) -> None:
        try:
            for frame in frames:
                if not self._stream.is_open:
                    return  # the callback of the last response has closed the connection
                self._answer(frame)
        except MalformedMessageError as error:
            self._refuse(error)
        else:
            self._progress()

    def _refuse(self, error: MalformedMessageError) -> None:
        self._failure = Failure.of(DisconnectedError(f"{self.address} sent an invalid response: {error}"))
        self._stream.close(error)

    def _answer(self, frame: Buffer) -> None:
        correlation_id = read_correlation_id(frame)
        if not self._pending or self._pending[0].correlation_id != correlation_id:
            raise MalformedMessageError(f"no request waits for correlation id {correlation_id}")
        # Remove the request only after its response is decoded: if the decoding fails, the caller must get the error.
        pending = self._pending[0]
        response = None if pending.read is None else pending.read(frame)
        if response is None:
            response = self._decode(pending, frame)
            if time_ms := getattr(response, "throttle_time_ms", 0):
                self._throttle(time_ms)
        self._pending.popleft().on_answer(response, None)

    def _decode(self, pending: _Pending, frame: Buffer) -> Any:
        if pending.request is ApiVersionsRequest and frame[4:6] == b"\x00\x23":
            # A broker that does not serve the version responds in version 0 (KIP-511).
            return decode_response(ApiVersionsResponse, 0, frame)
        return decode_response(response_of(pending.request), pending.version, frame)

    def _progress(self) -> None:
        if self.on_progress is not None:
            self.on_progress()

    # All requests share one timer, because most responses arrive long before the timeout. A timer per request would
    # cost more than all other bookkeeping.

    def _look_again_at(self, at_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at_s = at_s
        self._timer = self._loop.call_at(at_s, self._check_timeouts)

    def _check_timeouts(self) -> None:
        self._timer = None
        if not self._pending:
            return
        first = min(self._pending, key=lambda pending: pending.due_at_s)
        if first.due_at_s > self._loop.time():
            self._look_again_at(first.due_at_s)
            return
        asked = f"a {api_name(first.request)} request"
        error = TimedOutError(f"{self.address} did not answer {asked} within {first.timeout_s:g} s")
        self._failure = Failure.of(error)
        self._stream.close(error)

    def _reason_of_end(self, error: Exception | None) -> BarnabasError:
        if error is not None and is_refusal(error):
            return _refused_certificate(self.address, error)
        reason = f": {error}" if error else ""
        # A listener with TLS or SASL cannot explain itself to a client without. It closes the connection instead of the
        # response to the first request.
        is_first = bool(self._pending) and self._pending[0].correlation_id <= FIRST_REQUESTS
        may_not_fit = is_first or not self._versions
        hint = "; if it repeats, check that security_protocol fits this listener" if may_not_fit else ""
        return DisconnectedError(f"the connection to {self.address} was closed{reason}{hint}")

    def _on_closed(self, error: Exception | None) -> None:
        if self._failure is None:
            self._failure = Failure.of(self._reason_of_end(error))
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._session is not None and self._session is not asyncio.current_task(self._loop):
            self._session.cancel()
        if self._throttle_timer is not None:
            self._throttle_timer.cancel()
            self._throttle_timer = None
        self._outbox.clear()
        held, self._held = self._held or [], None
        while self._pending:
            self._pending.popleft().on_answer(None, self._failure.error())
        for each in held:
            if each.on_answer is not None:
                each.on_answer(None, self._failure.error())
        self._progress()
