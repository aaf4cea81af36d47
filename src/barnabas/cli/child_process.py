"""Runs a broker as a child process, forwards its log lines, and turns its readiness and exit into events.

Two threads read the output of the process until it ends. The threads only queue events; the reader of the events
decides how to react.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from queue import SimpleQueue
from threading import Thread
from typing import IO

from barnabas.cli.ends_with_parent import ending_with_this_process

LINE_BYTES_MAX = 64 * 1024
READY = b"ready "
LAST_WORDS_S = 2.0
"""The maximum wait in seconds for the remaining log lines after the process has ended. The limit is necessary because
child processes of the broker may keep the pipe open."""


@dataclass(frozen=True, slots=True)
class Ready:
    """The process is ready and listens on `address` (HOST:PORT)."""

    child: ChildProcess
    address: str


@dataclass(frozen=True, slots=True)
class Ended:
    """The process has ended. `code` is its exit code, or the negative number of the signal that ended it."""

    child: ChildProcess
    code: int


Event = Ready | Ended


class ChildProcess:
    """Starts and stops one process. Create it on the main thread; `barnabas.cli.ends_with_parent` explains why.

    :param on_line: called on a thread with each log line of the process.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        environment: Mapping[str, str],
        events: SimpleQueue[Event],
        on_line: Callable[[str], None],
    ) -> None:
        self.name = name
        self.last_line = ""
        """The last log line of the process, without the prefix `barnabas: `."""
        self._events = events
        self._on_line = on_line
        # The process has its own session, so Ctrl-C in the terminal does not reach it. The parent stops its processes
        # in order.
        self._process = subprocess.Popen(
            ending_with_this_process(command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(environment),
            start_new_session=True,
        )
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._log_reader = Thread(target=self._pass_on, args=(self._process.stderr,), name=f"{name} log", daemon=True)
        self._log_reader.start()
        Thread(target=self._watch, args=(self._process.stdout,), name=f"{name} end", daemon=True).start()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def terminate(self) -> None:
        """Request an orderly shutdown."""
        self._process.terminate()

    def stop(self, timeout_s: float) -> bool:
        """Request an orderly shutdown, and kill the process after `timeout_s`. Return whether the process ended before
        the timeout."""
        self.terminate()
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            return False
        return True

    def kill(self) -> None:
        """Kill the process and wait until it has ended."""
        self._process.kill()
        self._process.wait()

    def _watch(self, output: IO[bytes]) -> None:
        with contextlib.closing(output):
            while line := output.readline(LINE_BYTES_MAX):
                if line.startswith(READY):
                    self._events.put(Ready(self, line.removeprefix(READY).decode(errors="replace").strip()))
        code = self._process.wait()
        self._log_reader.join(LAST_WORDS_S)
        self._events.put(Ended(self, code))

    def _pass_on(self, source: IO[bytes]) -> None:
        with contextlib.closing(source):
            while line := source.readline(LINE_BYTES_MAX):
                text = line.decode(errors="replace").rstrip()
                self.last_line = _message_of(text) or self.last_line
                self._on_line(text)


def _message_of(line: str) -> str:
    """Return the message of a log line.

    >>> _message_of("barnabas: disk full"), _message_of('{"level": "CRITICAL", "message": "disk full"}')
    ('disk full', 'disk full')
    """
    with contextlib.suppress(ValueError, KeyError):
        if line.startswith("{"):
            return str(json.loads(line)["message"])
    return line.removeprefix("barnabas: ")
