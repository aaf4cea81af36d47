"""A schema registry in a process of its own, and calls of its REST interface."""

from __future__ import annotations

import http.client
import itertools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote

from barnabas.serialization import http_calls

STOP_TIMEOUT_S = 60
CALL_TIMEOUT_S = 60
_numbers = itertools.count(1)


class RegistryProcess:
    """A registry; all with the same number share a topic."""

    def __init__(self, bootstrap: str, log: Path, number: int | None = None) -> None:
        self.number = next(_numbers) if number is None else number
        self.topic = f"_schemas-{self.number}"
        self.log = log
        command = [sys.executable, "-m", "barnabas.cli.main", "registry", "--port", "0", "--bootstrap", bootstrap]
        command += ["--topic", self.topic]
        with log.open("ab") as lines:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=lines, text=True)
        assert self.process.stdout
        ready = self.process.stdout.readline()
        assert ready.startswith("ready "), log.read_text()
        self.url = ready.split()[1]

    def call(self, method: str, path: str, body: object = None, **headers: str) -> tuple[int, Any]:
        """Return status and JSON of an answer."""
        content = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
        status, answer, _ = http_calls.call(f"{self.url}{path}", method, content, headers, CALL_TIMEOUT_S)
        return status, json.loads(answer)

    def get(self, path: str) -> Any:
        """Return the JSON of an answer that is no error."""
        status, answer = self.call("GET", path)
        assert status == http.client.OK, answer
        return answer

    def register(self, subject: str, schema: object, **more: object) -> int:
        """Register a schema; return its id."""
        body = {"schema": schema if isinstance(schema, str) else json.dumps(schema), **more}
        status, answer = self.call("POST", f"/subjects/{quote(subject, safe='')}/versions", body)
        assert status == http.client.OK, answer
        assert isinstance(answer["id"], int)
        return answer["id"]

    def kill(self) -> None:
        """Kill it as `kill -9` does."""
        self.process.kill()
        self.process.wait(STOP_TIMEOUT_S)

    def close(self) -> None:
        """Stop it if it runs."""
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait(STOP_TIMEOUT_S)
        if self.process.stdout:
            self.process.stdout.close()
