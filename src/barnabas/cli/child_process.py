"""A broker's process: what it logs is passed on line by line, that it serves and that it ended are events.

Two threads read what it writes. They end with the process, and neither of them decides anything: who waits for the
events does.
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
"""How long the end of a process waits for the end of what it logged: children of its own may hold that open."""


@dataclass(frozen=True, slots=True)
class Ready:
    """A process says that it serves, and where: HOST:PORT."""

    child: ChildProcess
    address: str


@dataclass(frozen=True, slots=True)
class Ended:
    """A process is gone. `code` is its exit code, or the negative number of the signal that ended it."""

    child: ChildProcess
    code: int


Event = Ready | Ended


class ChildProcess:
    """Starts the process. Make it on the main thread (`barnabas.cli.ends_with_parent` says why).

    :param on_line: called with each line that it logs, on a thread.
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
        """What it logged last, without `barnabas: `."""
        self._events = events
        self._on_line = on_line
        # In a session of its own, so that the terminal's Ctrl-C reaches only whoever ends the processes in order.
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
        """The process's number."""
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether it has not ended yet."""
        return self._process.poll() is None

    def terminate(self) -> None:
        """Let it end in order."""
        self._process.terminate()

    def stop(self, timeout_s: float) -> bool:
        """Let it end in order; kill it when that takes longer. Return whether it ended by itself."""
        self.terminate()
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            return False
        return True

    def kill(self) -> None:
        """End it at once, and return when it is gone."""
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
                self.last_line = _said_in(text) or self.last_line
                self._on_line(text)


def _said_in(line: str) -> str:
    """Return what a line of the log says.

    >>> _said_in("barnabas: no room"), _said_in('{"level": "CRITICAL", "message": "no room"}')
    ('no room', 'no room')
    """
    with contextlib.suppress(ValueError, KeyError):
        if line.startswith("{"):
            return str(json.loads(line)["message"])
    return line.removeprefix("barnabas: ")
