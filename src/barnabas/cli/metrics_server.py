"""Serves the metrics of a command that goes on for long to Prometheus, at `/metrics` on this machine."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

REQUEST_TIMEOUT_S = 5.0


@contextmanager
def serving_metrics(port: int | None, text: Callable[[], str]) -> Iterator[ThreadingHTTPServer | None]:
    """Serve what `text` returns on 127.0.0.1, from threads of its own; 0 is a free port, None: serve nothing.

    :raises OSError: the port is taken.
    """
    if port is None:
        yield None
        return
    server = ThreadingHTTPServer(("127.0.0.1", port), _handler(text))
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, name="barnabas-metrics", daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


def _handler(text: Callable[[], str]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = REQUEST_TIMEOUT_S

        def do_GET(self) -> None:  # the name that http.server calls
            if self.path != "/metrics":
                self.send_error(404, "there is only /metrics")
                return
            body = text().encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # overrides
            """Say nothing: each scrape would be a line."""

    return Handler
