"""A process group for the brokers of a test, and its guard, which ends them when this process has ended."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from barnabas.testing import guard

STOP_TIMEOUT_S = 10.0


class ChildGroup:
    """Starts processes that end with this process, also if it is killed. Not thread-safe.

    :param folder: the folder to remove after the end of this process; None to keep all data.
    """

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self._guard: subprocess.Popen[bytes] | None = None

    @property
    def id(self) -> int:
        """The id of the process group."""
        if self._guard is None or self._guard.poll() is not None:
            self._guard = self._start_guard()
        return self._guard.pid

    def start(self, command: Sequence[str], environment: Mapping[str, str], log: IO[bytes]) -> subprocess.Popen[bytes]:
        """Start a process in the group. Its standard input and output are pipes, and `log` is its standard error."""
        return subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env=dict(environment),
            process_group=self.id,
        )

    def close(self) -> None:
        """Kill all processes of the group, and end its guard."""
        if self._guard is None:
            return
        assert self._guard.stdin is not None
        with contextlib.suppress(OSError):
            self._guard.stdin.close()
        try:
            self._guard.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._guard.kill()
            self._guard.wait()
        self._guard = None

    def _start_guard(self) -> subprocess.Popen[bytes]:
        # -I and -S skip imports that the guard does not need.
        command = [sys.executable, "-I", "-S", guard.__file__, *([str(self.folder)] if self.folder else [])]
        return subprocess.Popen(command, stdin=subprocess.PIPE, process_group=0)
