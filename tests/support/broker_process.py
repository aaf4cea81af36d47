"""A broker in a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.support.ports import free_port

START_TIMEOUT_S = 60
STOP_TIMEOUT_S = 60


class BrokerProcess:
    """A broker in a process of its own. The port stays the same over restarts.

    :param more_data: its other data folders.
    """

    def __init__(self, data: Path, settings: dict[str, str] | None = None, more_data: Sequence[Path] = ()) -> None:
        self.data = data
        self.more_data = more_data
        self.settings = settings or {}
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None
        self.log = data.with_suffix(".log")

    @property
    def program(self) -> Sequence[str]:
        """The module that is run, and what stands before the subcommand."""
        return ("barnabas.cli.main",)

    @property
    def arguments(self) -> Sequence[str]:
        """What stands behind the usual options."""
        return ()

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self.process
        return self.process.pid

    def start(self) -> None:
        """Start it and wait until it serves."""
        self.begin()
        self.wait_until_ready()

    def begin(self) -> None:
        """Start it; `wait_until_ready` is to follow. Of several, each is begun before the first is waited for."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("BARNABAS_")}
        environment.update({f"BARNABAS_{name.upper()}": value for name, value in self.settings.items()})
        command = [sys.executable, "-m", *self.program, "up", "--port", str(self.port)]
        for folder in (self.data, *self.more_data):
            command += ["--data", str(folder)]
        command += self.arguments
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, env=environment)

    def wait_until_ready(self) -> None:
        """Wait until it serves."""
        assert self.process
        assert self.process.stdout
        line = self.process.stdout.readline().decode()
        if not line.startswith("ready "):
            self.process.wait(START_TIMEOUT_S)
            raise AssertionError(f"the broker did not start: {line!r}\n{self.log.read_text()}")
        assert line.strip().endswith(f":{self.port}"), line

    def kill(self) -> None:
        """Kill it as `kill -9` does."""
        assert self.process
        self.process.kill()
        self._reap()

    def stop(self) -> int:
        """Stop it cleanly and return its exit code."""
        assert self.process
        self.process.send_signal(signal.SIGTERM)
        return self._reap()

    def restart(self) -> None:
        """Start it again on the same port and data, after `kill` or `stop`."""
        self.start()

    def close(self) -> None:
        """End it, however it stands."""
        if self.process and self.process.poll() is None:
            self.kill()

    def _reap(self) -> int:
        assert self.process
        assert self.process.stdout
        code = self.process.wait(STOP_TIMEOUT_S)
        self.process.stdout.close()
        return code
