"""The broker's side of the process that compacts logs.

The first message starts the process. If the process dies, the current job fails, and the next message starts a new
process.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import IO, Protocol

from barnabas.storage.cleaner.job import LINE_BYTES_MAX, PROGRESS, CleaningFailedError, Message, decode, encode

COMMAND = (sys.executable, "-P", "-m", "barnabas.storage.cleaner")
"""The command line of the cleaner process.

`-P` prevents Python from importing modules from the broker's working directory.
"""


class AnyCleaner(Protocol):
    """Runs compaction jobs, in a process or inline."""

    def ask(self, message: Message) -> Message:
        """Send a message and return the response.

        This call blocks, so it must not be made on the event loop's thread.
        """
        ...

    @property
    def silent_s(self) -> float:
        """The time in seconds since the cleaner last received a message or reported progress."""
        ...

    def end(self) -> None:
        """Stop the cleaner immediately, even during a job. Any thread may call this method."""
        ...

    def close(self) -> None:
        """Stop the cleaner for ever. Later messages fail. Any thread may call this method."""
        ...


class CleanerProcess:
    """Runs compaction jobs in a separate process.

    :param now_s: returns monotonic seconds.
    """

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._heard_at_s = now_s()
        self._process: subprocess.Popen[bytes] | None = None
        self._is_closed = False

    @property
    def process_id(self) -> int | None:
        """The process id of the cleaner, or None if no process is running."""
        return self._process.pid if self._process else None

    @property
    def silent_s(self) -> float:
        return self._now_s() - self._heard_at_s

    def ask(self, message: Message) -> Message:
        self._heard_at_s = self._now_s()
        if self._process is not None and self._process.poll() is not None:
            self._ended(self._process)  # The process died while it was idle.
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
            return CleaningFailedError(f"cannot use the cleaner process: {error}")
        if line.endswith(b"\n"):
            with suppress(ValueError):
                return decode(line)
        code = self._ended(process)
        return CleaningFailedError(f"the cleaner process ended with exit code {code}")

    def end(self) -> None:
        process = self._process
        if process is not None:
            process.kill()

    def close(self) -> None:
        self._is_closed = True  # first: a process that another thread starts now sees it
        self.end()

    def _start(self) -> subprocess.Popen[bytes]:
        if self._is_closed:
            raise OSError("the broker is stopping")
        process = self._process = subprocess.Popen(COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        if self._is_closed:
            process.kill()  # `close` was called before this process was known
        return process

    def _read_line(self, source: IO[bytes]) -> bytes:
        while (line := source.readline(LINE_BYTES_MAX)) == PROGRESS:
            self._heard_at_s = self._now_s()
        return line

    def _ended(self, process: subprocess.Popen[bytes]) -> int:
        """Kill and clean up a process that ended or sent an invalid response. Return its exit code."""
        self._process = None
        process.kill()
        with suppress(OSError), process:
            pass  # `with` closes the pipes. Closing raises OSError if an unsent message is left in a buffer.
        return process.wait()
