"""A console in a process of its own."""

from __future__ import annotations

import contextlib
import http.client
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urlencode

from tests.support.ports import free_port
from tests.support.reading import TIMEOUT_S

Answer = tuple[int, str, http.client.HTTPMessage]


@dataclass
class Console:
    """A running console."""

    port: int
    pid: int = 0
    scheme: str = "http"

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}"

    def get(self, path: str, **headers: str) -> Answer:
        return self.ask("GET", path, None, **headers)

    def ask(self, method: str, path: str, body: str | None, **headers: str) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT_S)
        with contextlib.closing(connection):
            connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
            response = connection.getresponse()
            return response.status, response.read().decode(), response.headers

    def post(self, path: str, fields: dict[str, str], **headers: str) -> Answer:
        own = {"origin": self.url, "content_type": "application/x-www-form-urlencoded"}
        return self.ask("POST", path, urlencode(fields), **{**own, **headers})

    def page(self, path: str, **headers: str) -> str:
        status, text, _ = self.get(path, **headers)
        assert status == 200, text
        return text


@contextlib.contextmanager
def running_console(bootstrap: str, *options: str) -> Iterator[Console]:
    """Run a console until the block ends."""
    port = free_port()
    command = [sys.executable, "-m", "barnabas.cli.main", "console", "-b", bootstrap, "--port", str(port), *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout
        console = Console(port, process.pid, "https" if "--http-certfile" in options else "http")
        assert process.stdout.readline() == f"ready {console.url}/\n"
        yield console
    finally:
        process.terminate()
        assert process.wait(TIMEOUT_S) == 0
