"""Serves the metrics and the health of this process over HTTP, for Prometheus and for process supervisors.

| path | response |
|---|---|
| `/metrics` | 200 and the metrics in Prometheus' text format |
| `/healthz` | 200 while the process works; 503 if it should be restarted |
| `/readyz` | 200 while the process is ready; 503 and the reasons, one per line, while it is not |

With authentication, `/metrics` needs a principal that may describe the cluster. `/healthz` and `/readyz` stay open,
because supervisors have no credentials, but only such a principal sees the reasons.

The server is that of Python's standard library, in its own threads. It limits the resources of untrusted clients: the
number of connections, the size of a request head, and the time, even if a client sends or reads slowly. A connection
carries one request.

An error of a request ends its connection, and does not affect the rest of the process.
"""

from __future__ import annotations

import asyncio
import io
import logging
import socket
import socketserver
import ssl
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from barnabas.addresses import host_port, split_listener
from barnabas.clock import SYSTEM_CLOCK, Clock
from barnabas.errors import ConfigurationError, UnavailableError
from barnabas.metrics.exposition import CONTENT_TYPE, Snapshots
from barnabas.metrics.metric import Collect
from barnabas.net.tls import TlsContext, server_context
from barnabas.security.http_authentication import (
    CHALLENGE,
    HttpAuthentication,
    HttpCredentials,
    HttpIdentity,
    HttpRefusedError,
)
from barnabas.security.http_settings import OPEN, HttpAddress, HttpSecurity
from barnabas.security.principal import Principal
from barnabas.security.security_log import HttpSecurityLog

CONNECTIONS_MAX = 32
"""The maximum number of connections. Further connections are closed immediately."""

HEAD_BYTES_MAX = 16 * 1024
"""The maximum number of bytes that the server reads of a request."""

SILENT_S_MAX = 5.0
"""The maximum idle time in seconds: of a read without new bytes, and of a write to a client that does not read."""

CONNECTION_S_MAX = 20.0
"""The maximum time of a connection, in seconds."""

SWEEP_S = 0.5
"""The time between two checks for expired connections, in seconds."""

LOOP_ANSWER_S_MAX = 2.0
"""The time in seconds within which an event loop must respond. Otherwise it counts as dead."""

PLAIN_TEXT = "text/plain; charset=utf-8"
METHODS = ("GET", "HEAD")

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StatusPages:
    """The content of the pages. Any thread may call these functions, also concurrently.

    :param metrics: returns the text of all metrics, in chunks.
    :param is_alive: returns whether the process works.
    :param not_ready: returns the reasons that the process is not ready; empty if it is.
    """

    metrics: Callable[[], Sequence[bytes]]
    is_alive: Callable[[], bool] = lambda: True
    not_ready: Callable[[], Sequence[str]] = list


Prove = Callable[[HttpCredentials], HttpIdentity]
"""Returns the identity of credentials; raises AuthenticationError for wrong ones. Called on any thread."""
MaySee = Callable[[Principal, str], bool]


@contextmanager
def serving_status(
    http: HttpAddress | None,
    collect: Collect,
    not_ready: Callable[[], Sequence[str]] = list,
    is_alive: Callable[[], bool] = lambda: True,
    prove: Prove | None = None,
    may_see: MaySee | None = None,
) -> Iterator[StatusServer | None]:
    """Serve the pages within the context.

    :param http: None serves no pages.
    :param prove, may_see: see `StatusServer`.
    :raises UnavailableError: the server cannot listen on the address.
    :raises ConfigurationError: other machines could connect without authentication, or a certificate is not valid.
    """
    if http is None:
        yield None
        return
    snapshots = Snapshots(collect, SYSTEM_CLOCK, SYSTEM_CLOCK.sleep)
    pages = StatusPages(snapshots.pieces, is_alive, not_ready)
    server = StatusServer(http.address, pages, SYSTEM_CLOCK, http.security, prove, may_see)
    try:
        server.start()
    except OSError as error:
        raise UnavailableError(
            f"cannot listen on {http.address}: {error.strerror}; choose another address with --http"
        ) from None
    log.info("metrics and health are at %s/metrics, /healthz and /readyz", server.url)
    try:
        yield server
    finally:
        server.close()


class LoopProbe:
    """Checks whether an event loop still responds. Other threads call this."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def is_alive(self) -> bool:
        """Return whether the loop runs a callback within `LOOP_ANSWER_S_MAX`."""
        answered = threading.Event()
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(answered.set)
            return answered.wait(LOOP_ANSWER_S_MAX)
        return False


class StatusServer:
    """Serves the pages from `start` until `close`.

    :param address: see `split_listener`; port 0 selects a free port.
    :param prove: proves the credentials of clients; needed with authentication.
    :param may_see: returns whether a principal at an address may see the metrics now, in addition to its identity.
    :raises ValueError: the address is invalid.
    :raises ConfigurationError: other machines could connect without authentication, or a certificate is not valid.
    """

    def __init__(
        self,
        address: str,
        pages: StatusPages,
        clock: Clock,
        security: HttpSecurity = OPEN,
        prove: Prove | None = None,
        may_see: MaySee | None = None,
    ) -> None:
        self._host, self._port = split_listener(address)
        self._scheme = security.scheme
        security.check(f"--http {address}", self._host)
        if security.is_open_to_all(self._host):
            log.warning("--http %s shows its pages to all clients without authentication (--allow-anonymous)", address)
        tls = None if security.tls is None else TlsContext(security.tls, server_context)
        guard = None
        if security.authenticates:
            if prove is None:
                raise ConfigurationError("these pages cannot authenticate clients; use --http-auth none")
            guard = _Guard(prove, may_see, clock)
        self._serving = _Serving(pages, clock, tls, guard)
        self._server: _Server | None = None

    @property
    def url(self) -> str:
        """The URL of the pages, after the start of the server."""
        return f"{self._scheme}://{host_port(self._host, self._port)}"

    def start(self) -> None:
        """Listen, and start to serve.

        :raises OSError: the address is in use, or does not belong to this machine.
        """
        family, *_, address = socket.getaddrinfo(
            self._host, self._port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        server = self._server = _Server(family, address, self._serving)
        self._port = int(server.server_address[1])
        threading.Thread(target=server.serve_forever, args=(SWEEP_S,), name="status server", daemon=True).start()

    def close(self) -> None:
        """Stop the server. Responses that are being sent are truncated."""
        server, self._server = self._server, None
        if server is not None:
            with suppress(OSError):  # wake `serve_forever`, which otherwise checks every `SWEEP_S` whether it must stop
                server.socket.shutdown(socket.SHUT_RDWR)
            server.shutdown()
            server.server_close()
            server.end_connections()


class _Guard:
    """Authenticates the clients of the pages. Any thread may use it."""

    def __init__(self, prove: Prove, may_see: MaySee | None, clock: Clock) -> None:
        self._prove = prove
        self._may_see = may_see
        self._log = HttpSecurityLog("http", clock.monotonic)
        self._authentication = HttpAuthentication(clock.monotonic, self._log.note_failed_authentication)

    def identity(self, header: str | None, address: str, path: str) -> HttpIdentity:
        """Return the identity of a client that may see everything.

        :param path: the path of the request, for the log.
        :raises HttpRefusedError: the client does not authenticate, or may not describe the cluster (403).
        """
        found = self._authentication.authenticate(header, address, self._prove)
        if not found.sees_cluster or not (self._may_see is None or self._may_see(found.principal, address)):
            reason = f"{found.principal} may not describe the cluster"
            self._log.note_refusal(found.principal, address, path, reason)
            raise HttpRefusedError(403, reason)
        return found


@dataclass(frozen=True, slots=True)
class _Serving:
    """The parts of a server.

    :param tls: None for HTTP without TLS.
    :param guard: None without authentication.
    """

    pages: StatusPages
    clock: Clock
    tls: TlsContext | None
    guard: _Guard | None


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = CONNECTIONS_MAX

    def __init__(self, family: socket.AddressFamily, address: tuple[Any, ...], serving: _Serving) -> None:
        self.address_family = family
        self.pages = serving.pages
        self.guard = serving.guard
        self._tls = serving.tls
        self._clock = serving.clock
        self._due: dict[socket.socket, float] = {}
        """The monotonic time at which each open connection expires."""
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        # Do not call HTTPServer's method: it looks up the host name, which can take long.
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = "", int(self.server_address[1])

    def process_request(self, request: Any, client_address: Any) -> None:
        if len(self._due) >= CONNECTIONS_MAX:
            self.shutdown_request(request)
            return
        self._due[request] = self._clock.monotonic() + CONNECTION_S_MAX
        super().process_request(request, client_address)

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Called on the thread of a connection."""
        if self._tls is None:
            super().finish_request(request, client_address)
            return
        request.settimeout(SILENT_S_MAX)
        context = self._tls.latest("--http")
        secured = context.wrap_socket(request, server_side=True, do_handshake_on_connect=False)
        self._due[secured] = self._due.pop(request, self._clock.monotonic() + CONNECTION_S_MAX)
        try:
            secured.do_handshake()
            super().finish_request(secured, client_address)
            _say_goodbye(secured)
        finally:
            self._due.pop(secured, None)
            secured.close()

    def shutdown_request(self, request: Any) -> None:
        self._due.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """Called in each iteration of `serve_forever`: close the expired connections."""
        now_s = self._clock.monotonic()
        for request, due_s in list(self._due.items()):
            if now_s >= due_s:
                _end(request)

    def end_connections(self) -> None:
        for request in list(self._due):
            _end(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        log.debug("an HTTP request for metrics or health failed", exc_info=True)


def _end(request: socket.socket) -> None:
    """Shut down a connection, so that all reads and writes of its thread fail."""
    with suppress(OSError):  # the client has already closed the connection
        # The method of SSLSocket would end the encryption first, while another thread still writes.
        socket.socket.shutdown(request, socket.SHUT_RDWR)


def _say_goodbye(secured: ssl.SSLSocket) -> None:
    """Send TLS's close_notify, without waiting for the peer's."""
    with suppress(OSError, ValueError):
        secured.settimeout(0)
        secured.unwrap()


class _Handler(BaseHTTPRequestHandler):
    """Responds to the single request of a connection."""

    server: _Server
    timeout = SILENT_S_MAX

    def setup(self) -> None:
        super().setup()
        self.rfile = _Head(self.rfile)  # type: ignore[assignment]

    def parse_request(self) -> bool:
        if not super().parse_request():
            return False
        if self.command not in METHODS:
            self._answer(
                HTTPStatus.METHOD_NOT_ALLOWED,
                f"method not allowed; use {' or '.join(METHODS)}",
                allow=", ".join(METHODS),
            )
            return False
        return True

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        try:
            status, content, content_type = self._page(path)
        except HttpRefusedError as error:
            self._answer(HTTPStatus(error.status), str(error), challenge=error.status == HTTPStatus.UNAUTHORIZED)
            return
        except Exception:
            log.exception("cannot respond to a request for %s", path)
            status, content, content_type = _FAILED
        self._answer(status, content, content_type)

    def _page(self, path: str) -> _Page:
        pages = self.server.pages
        if path == "/metrics":
            self._check_client()
            return HTTPStatus.OK, pages.metrics(), CONTENT_TYPE
        if path == "/healthz":
            return _OK if pages.is_alive() else (_UNAVAILABLE, "the event loop does not respond", PLAIN_TEXT)
        if path == "/readyz":
            reasons = pages.not_ready()
            if not reasons:
                return _OK
            return _UNAVAILABLE, "\n".join(reasons) if self._may_see_all() else "not ready", PLAIN_TEXT
        return _NOT_FOUND

    def _check_client(self) -> None:
        """Check that the client may see everything.

        :raises HttpRefusedError: it may not.
        """
        if self.server.guard is not None:
            path = self.path.partition("?")[0]
            self.server.guard.identity(self.headers.get("Authorization"), self.client_address[0], path)

    def _may_see_all(self) -> bool:
        if self.server.guard is not None and "Authorization" not in self.headers:
            return False
        try:
            self._check_client()
        except HttpRefusedError:
            return False
        return True

    def do_HEAD(self) -> None:
        self.do_GET()

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Called by the base class for an invalid request."""
        self._answer(HTTPStatus(code), message or HTTPStatus(code).phrase)

    def _answer(
        self,
        status: HTTPStatus,
        content: Sequence[bytes] | str,
        content_type: str = PLAIN_TEXT,
        allow: str | None = None,
        *,
        challenge: bool = False,
    ) -> None:
        pieces = [f"{content}\n".encode()] if isinstance(content, str) else content
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(sum(map(len, pieces))))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        if allow is not None:
            self.send_header("Allow", allow)
        if challenge:
            self.send_header("WWW-Authenticate", CHALLENGE)
        self.end_headers()
        if self.command != "HEAD":
            for piece in pieces:
                self.wfile.write(piece)

    def version_string(self) -> str:
        return "barnabas"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - parameter name of the base class
        """Suppress the base class's log line for each request."""


_Page = tuple[HTTPStatus, Sequence[bytes] | str, str]
"""The status, content and content type of a response."""
_UNAVAILABLE = HTTPStatus.SERVICE_UNAVAILABLE
_OK: _Page = HTTPStatus.OK, "ok", PLAIN_TEXT
_NOT_FOUND: _Page = HTTPStatus.NOT_FOUND, "not found; the pages are /metrics, /healthz and /readyz", PLAIN_TEXT
_FAILED: _Page = HTTPStatus.INTERNAL_SERVER_ERROR, "internal error; see the log of this process", PLAIN_TEXT


class _Head:
    """The head of a request, limited to `HEAD_BYTES_MAX`."""

    def __init__(self, stream: io.BufferedIOBase) -> None:
        self._stream = stream
        self._left = HEAD_BYTES_MAX

    def readline(self, size: int = -1) -> bytes:
        line = self._stream.readline(min(size, self._left) if size >= 0 else self._left)
        self._left -= len(line)
        return line

    def close(self) -> None:
        self._stream.close()

    @property
    def closed(self) -> bool:
        return self._stream.closed
