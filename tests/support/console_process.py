"""A console as a process, and requests to it."""

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


@dataclass
class Console:
    """A running console."""

    port: int

    def get(self, path: str, **headers: str) -> tuple[int, str, http.client.HTTPMessage]:
        return self.ask("GET", path, None, **headers)

    def ask(self, method: str, path: str, body: str | None, **headers: str) -> tuple[int, str, http.client.HTTPMessage]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT_S)
        with contextlib.closing(connection):
            connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
            response = connection.getresponse()
            return response.status, response.read().decode(), response.headers

    def post(self, path: str, fields: dict[str, str], **headers: str) -> tuple[int, str, http.client.HTTPMessage]:
        own = {"origin": f"http://127.0.0.1:{self.port}", "content_type": "application/x-www-form-urlencoded"}
        return self.ask("POST", path, urlencode(fields), **{**own, **headers})

    def page(self, path: str, **headers: str) -> str:
        status, text, _ = self.get(path, **headers)
        assert status == 200, text
        return text


@contextlib.contextmanager
def running_console(bootstrap: str, *options: str) -> Iterator[Console]:
    port = free_port()
    command = [sys.executable, "-m", "barnabas.cli.main", "console", "-b", bootstrap, "--port", str(port), *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout
        assert process.stdout.readline() == f"ready http://127.0.0.1:{port}/\n"
        yield Console(port)
    finally:
        process.terminate()
        assert process.wait(TIMEOUT_S) == 0
