"""Serves the metrics and the health of this process over HTTP, for Prometheus and for whatever supervises processes.

| path | answer |
|---|---|
| `/metrics` | 200 and the metrics in Prometheus' text format |
| `/healthz` | 200 while the process works; 503 where it is to be restarted |
| `/readyz` | 200 while the process serves; 503 and the reasons, a line each, while it does not |

The server is that of Python's standard library, in threads of its own. It serves strangers within bounds: connections,
bytes of a request head, and time, also for clients that send or read slowly. A connection carries one request.

Errors of a request end its connection. Nothing here raises into the rest of the process.
"""

from __future__ import annotations

import asyncio
import io
import logging
import socket
import socketserver
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from barnabas.addresses import host_port, split_listener
from barnabas.clock import SYSTEM_CLOCK, Clock
from barnabas.errors import UnavailableError
from barnabas.metrics.exposition import CONTENT_TYPE, Snapshots
from barnabas.metrics.metric import Collect

CONNECTIONS_MAX = 32
"""A connection beyond these is closed at once."""

HEAD_BYTES_MAX = 16 * 1024
"""The server reads no more bytes of a request than these."""

SILENT_S_MAX = 5.0
"""A read that brings nothing for so long ends its connection. So does an answer that was not read within this time."""

CONNECTION_S_MAX = 20.0
"""The longest time of a connection."""

SWEEP_S = 0.5
"""The time between two searches for connections that are over their time."""

LOOP_ANSWER_S_MAX = 2.0
"""An event loop that does not answer within this time counts as dead."""

PLAIN_TEXT = "text/plain; charset=utf-8"
METHODS = ("GET", "HEAD")

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StatusPages:
    """The content of the pages. Any thread may call these functions, several at a time.

    :param metrics: returns the text of all metrics, in pieces.
    :param is_alive: returns whether the process works.
    :param not_ready: returns the reasons for which the process does not serve now.
    """

    metrics: Callable[[], Sequence[bytes]]
    is_alive: Callable[[], bool] = lambda: True
    not_ready: Callable[[], Sequence[str]] = list


@contextmanager
def serving_status(
    address: str | None,
    collect: Collect,
    not_ready: Callable[[], Sequence[str]] = list,
    is_alive: Callable[[], bool] = lambda: True,
) -> Iterator[StatusServer | None]:
    """Serve the pages within the context.

    :param address: as of `StatusServer`; None: there are no pages.
    :raises UnavailableError: the address cannot be listened on.
    """
    if address is None:
        yield None
        return
    snapshots = Snapshots(collect, SYSTEM_CLOCK, SYSTEM_CLOCK.sleep)
    server = StatusServer(address, StatusPages(snapshots.pieces, is_alive, not_ready), SYSTEM_CLOCK)
    try:
        server.start()
    except OSError as error:
        raise UnavailableError(f"cannot listen on {address}: {error.strerror}; choose another with --http") from None
    log.info("metrics and health are at %s/metrics, /healthz and /readyz", server.url)
    try:
        yield server
    finally:
        server.close()


class LoopProbe:
    """Asks an event loop from other threads whether it runs."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def is_alive(self) -> bool:
        """Return whether the loop answers within `LOOP_ANSWER_S_MAX`."""
        answered = threading.Event()
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(answered.set)
            return answered.wait(LOOP_ANSWER_S_MAX)
        return False


class StatusServer:
    """Serves the pages from `start` until `close`.

    :param address: see `split_listener`; port 0 is any free one.
    :raises ValueError: it is no address.
    """

    def __init__(self, address: str, pages: StatusPages, clock: Clock) -> None:
        self._host, self._port = split_listener(address)
        self._pages = pages
        self._clock = clock
        self._server: _Server | None = None

    @property
    def url(self) -> str:
        """The address of the pages, once the server has started."""
        return f"http://{host_port(self._host, self._port)}"

    def start(self) -> None:
        """Listen, and begin to serve.

        :raises OSError: the address is in use, or is not one of this machine.
        """
        family, *_, address = socket.getaddrinfo(
            self._host, self._port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        server = self._server = _Server(family, address, self._pages, self._clock)
        self._port = int(server.server_address[1])
        threading.Thread(target=server.serve_forever, args=(SWEEP_S,), name="status server", daemon=True).start()

    def close(self) -> None:
        """Stop serving. Answers under way are cut off."""
        server, self._server = self._server, None
        if server is not None:
            with suppress(OSError):  # wakes `serve_forever`, which else looks at its end after `SWEEP_S` only
                server.socket.shutdown(socket.SHUT_RDWR)
            server.shutdown()
            server.server_close()
            server.end_connections()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = CONNECTIONS_MAX

    def __init__(
        self, family: socket.AddressFamily, address: tuple[Any, ...], pages: StatusPages, clock: Clock
    ) -> None:
        self.address_family = family
        self.pages = pages
        self._clock = clock
        self._due: dict[socket.socket, float] = {}
        """The monotonic time by which each open connection ends."""
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        # Not that of HTTPServer, which asks the name service for the name of the host.
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = "", int(self.server_address[1])

    def process_request(self, request: Any, client_address: Any) -> None:
        if len(self._due) >= CONNECTIONS_MAX:
            self.shutdown_request(request)
            return
        self._due[request] = self._clock.monotonic() + CONNECTION_S_MAX
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._due.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """Called in each round of `serve_forever`: end the connections that are over their time."""
        now_s = self._clock.monotonic()
        for request, due_s in list(self._due.items()):
            if now_s >= due_s:
                _end(request)

    def end_connections(self) -> None:
        for request in list(self._due):
            _end(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        log.debug("a request for metrics or health failed", exc_info=True)


def _end(request: socket.socket) -> None:
    """Let all that a connection's thread does with it fail from now on."""
    with suppress(OSError):  # the client has ended it
        request.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    """Answers the one request of a connection."""

    server: _Server
    timeout = SILENT_S_MAX

    def setup(self) -> None:
        super().setup()
        self.rfile = _Head(self.rfile)  # type: ignore[assignment]

    def parse_request(self) -> bool:
        if not super().parse_request():
            return False
        if self.command not in METHODS:
            self._answer(HTTPStatus.METHOD_NOT_ALLOWED, f"only {' and '.join(METHODS)}", allow=", ".join(METHODS))
            return False
        return True

    def do_GET(self) -> None:
        pages, path = self.server.pages, self.path.partition("?")[0]
        try:
            if path == "/metrics":
                self._answer(HTTPStatus.OK, pages.metrics(), CONTENT_TYPE)
            elif path == "/healthz":
                is_alive = pages.is_alive()
                self._answer(*((HTTPStatus.OK, "ok") if is_alive else (_UNAVAILABLE, "the event loop does not answer")))
            elif path == "/readyz":
                reasons = pages.not_ready()
                self._answer(*((_UNAVAILABLE, "\n".join(reasons)) if reasons else (HTTPStatus.OK, "ok")))
            else:
                self._answer(HTTPStatus.NOT_FOUND, "there are /metrics, /healthz and /readyz")
        except OSError:
            raise  # of the connection
        except Exception:
            log.exception("cannot answer a request for %s; the next request tries again", path)
            self._answer(HTTPStatus.INTERNAL_SERVER_ERROR, "the log has the error")

    def do_HEAD(self) -> None:
        self.do_GET()

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Called by the base class for what is no request."""
        self._answer(HTTPStatus(code), message or HTTPStatus(code).phrase)

    def _answer(
        self,
        status: HTTPStatus,
        content: Sequence[bytes] | str,
        content_type: str = PLAIN_TEXT,
        allow: str | None = None,
    ) -> None:
        pieces = [f"{content}\n".encode()] if isinstance(content, str) else content
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(sum(map(len, pieces))))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        if allow is not None:
            self.send_header("Allow", allow)
        self.end_headers()
        if self.command != "HEAD":
            for piece in pieces:
                self.wfile.write(piece)

    def version_string(self) -> str:
        return "barnabas"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name is that of the base class
        """Log nothing: each request would be a line."""


_UNAVAILABLE = HTTPStatus.SERVICE_UNAVAILABLE


class _Head:
    """The head of a request; it ends after `HEAD_BYTES_MAX`, whatever follows."""

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
