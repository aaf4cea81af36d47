"""Serves the metrics of a long-running command to Prometheus, at `/metrics` on this machine."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from barnabas.metrics.exposition import CONTENT_TYPE, exposition
from barnabas.metrics.metric import Collect

REQUEST_TIMEOUT_S = 5.0


@contextmanager
def serving_metrics(port: int | None, collect: Collect) -> Iterator[ThreadingHTTPServer | None]:
    """Serve metrics on 127.0.0.1, from threads of the server.

    :param port: 0 takes a free port; None serves nothing.
    :raises OSError: the port is taken.
    """
    if port is None:
        yield None
        return
    server = ThreadingHTTPServer(("127.0.0.1", port), _handler(collect))
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, name="barnabas-metrics", daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


def _handler(collect: Collect) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = REQUEST_TIMEOUT_S

        def do_GET(self) -> None:  # the name that http.server calls
            if self.path != "/metrics":
                self.send_error(404, "there is only /metrics")
                return
            body = exposition(collect())
            self.send_response(200)
            self.send_header("Content-Type", CONTENT_TYPE)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # overrides
            """Log nothing: each scrape would be a line."""

    return Handler
