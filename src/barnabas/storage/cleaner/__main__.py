"""The cleaner process: reads jobs from standard input, and writes responses to standard output.

The process exits when its input ends, even during a job, so it never outlives the broker. It runs with low priority
(`nice`).
"""

from __future__ import annotations

import os
import queue
import signal
import sys
import threading
from typing import BinaryIO

from barnabas.clock import SYSTEM_CLOCK
from barnabas.portable import lower_priority
from barnabas.storage.cleaner.cleaner import Cleaner, IoThrottle
from barnabas.storage.cleaner.job import LINE_BYTES_MAX, PROGRESS, decode, encode
from barnabas.storage.cleaner.rewriting import Pace
from barnabas.storage.filesystem import OsFileSystem

NICENESS = 10
PROGRESS_INTERVAL_S = 1.0


def main() -> None:
    """Process jobs until standard input ends."""
    # A terminal also sends these signals to the broker, and the broker then closes the input of this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "SIGHUP"):  # not on Windows
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    lower_priority(NICENESS)
    lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_read_lines, args=(sys.stdin.buffer, lines), daemon=True).start()
    responses = _Responses(sys.stdout.buffer)
    cleaner = Cleaner(OsFileSystem(), responses.pace)
    while True:
        responses.write(encode(cleaner.ask(decode(lines.get()))))


def _read_lines(source: BinaryIO, lines: queue.SimpleQueue[bytes]) -> None:
    while line := source.readline(LINE_BYTES_MAX):
        lines.put(line)
    # The process exits although the main thread may be inside a job. The next start or cleaning removes the files of
    # that job.
    os._exit(0)


class _Responses:
    """Writes responses and progress lines to standard output."""

    def __init__(self, target: BinaryIO) -> None:
        self._target = target
        self._reported_at_s = 0.0

    def write(self, line: bytes) -> None:
        try:
            self._target.write(line)
            self._target.flush()
        except BrokenPipeError:
            os._exit(0)

    def pace(self, bytes_per_second: float) -> Pace:
        return IoThrottle(bytes_per_second, SYSTEM_CLOCK.monotonic, SYSTEM_CLOCK.sleep, self._report_progress).note

    def _report_progress(self) -> None:
        now_s = SYSTEM_CLOCK.monotonic()
        if now_s - self._reported_at_s >= PROGRESS_INTERVAL_S:
            self._reported_at_s = now_s
            self.write(PROGRESS)


if __name__ == "__main__":
    main()
