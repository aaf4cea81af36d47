"""The process that compacts logs, as the broker sees it: started when it is first asked something.

Its death is an answer like others: the job failed. The next question starts another one.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import IO, Protocol

from barnabas.storage.cleaner.job import LINE_BYTES_MAX, PROGRESS, CleaningFailedError, Message, decode, encode

COMMAND = (sys.executable, "-P", "-m", "barnabas.storage.cleaner")
"""`-P`: what lies in the folder in which the broker was started is none of its modules."""


class AnyCleaner(Protocol):
    """Does jobs, in a process of its own or inline."""

    def ask(self, message: Message) -> Message:
        """Return the answer; may take long, and is called on a thread of its own."""
        ...

    @property
    def silent_s(self) -> float:
        """How long nothing was heard of it while it was asked something."""
        ...

    def end(self) -> None:
        """Stop, in the middle of a job too. Called from any thread."""
        ...


class CleanerProcess:
    """A process that compacts.

    :param now_s: monotonic seconds.
    """

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._heard_at_s = now_s()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def process_id(self) -> int | None:
        """The number of the process, if it was started."""
        return self._process.pid if self._process else None

    @property
    def silent_s(self) -> float:
        return self._now_s() - self._heard_at_s

    def ask(self, message: Message) -> Message:
        self._heard_at_s = self._now_s()
        if self._process is not None and self._process.poll() is not None:
            self._ended(self._process)  # while it had nothing to do
        try:
            process = self._process or self._start()
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(encode(message))
            process.stdin.flush()
            line = self._read_line(process.stdout)
        except OSError as error:
            if self._process is not None:
                self._ended(self._process)
            return CleaningFailedError(f"the process that compacts cannot be used: {error}")
        if line.endswith(b"\n"):
            with suppress(ValueError):
                return decode(line)
        code = self._ended(process)
        return CleaningFailedError(f"the process that compacts ended with exit code {code}")

    def end(self) -> None:
        process = self._process
        if process is not None:
            process.kill()

    def _start(self) -> subprocess.Popen[bytes]:
        self._process = subprocess.Popen(COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        return self._process

    def _read_line(self, source: IO[bytes]) -> bytes:
        while (line := source.readline(LINE_BYTES_MAX)) == PROGRESS:
            self._heard_at_s = self._now_s()
        return line

    def _ended(self, process: subprocess.Popen[bytes]) -> int:
        """Let go of a process that ended, or answers nothing that can be understood; return its exit code."""
        self._process = None
        process.kill()
        with suppress(OSError), process:
            pass  # closed; the end of a job that it was being told has nowhere to go
        return process.wait()
