"""The cleaner process: reads jobs from its standard input, and answers on its output.

It ends when its input ends, in the middle of a job too, so it never outlives the broker. All other work on the machine
goes before it (`nice`).
"""

from __future__ import annotations

import os
import queue
import signal
import sys
import threading
from typing import BinaryIO

from barnabas.clock import SYSTEM_CLOCK
from barnabas.storage.cleaner.cleaner import Cleaner, IoThrottle
from barnabas.storage.cleaner.job import LINE_BYTES_MAX, PROGRESS, decode, encode
from barnabas.storage.cleaner.rewriting import Pace
from barnabas.storage.filesystem import OsFileSystem

NICENESS = 10
PROGRESS_INTERVAL_S = 1.0


def main() -> None:
    """Serve until the input ends."""
    # The terminal's signals are for the broker, which then ends this process's input.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    os.nice(NICENESS)
    lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_read_lines, args=(sys.stdin.buffer, lines), daemon=True).start()
    answers = _Answers(sys.stdout.buffer)
    cleaner = Cleaner(OsFileSystem(), answers.pace)
    while True:
        answers.write(encode(cleaner.ask(decode(lines.get()))))


def _read_lines(source: BinaryIO, lines: queue.SimpleQueue[bytes]) -> None:
    while line := source.readline(LINE_BYTES_MAX):
        lines.put(line)
    # The main thread may be anywhere in a job; the next start or cleaning removes the files that it wrote.
    os._exit(0)


class _Answers:
    """The output: answers, and signs of life between them."""

    def __init__(self, target: BinaryIO) -> None:
        self._target = target
        self._told_at_s = 0.0

    def write(self, line: bytes) -> None:
        try:
            self._target.write(line)
            self._target.flush()
        except BrokenPipeError:
            os._exit(0)

    def pace(self, bytes_per_second: float) -> Pace:
        return IoThrottle(bytes_per_second, SYSTEM_CLOCK.monotonic, SYSTEM_CLOCK.sleep, self._tell_progress).note

    def _tell_progress(self) -> None:
        now_s = SYSTEM_CLOCK.monotonic()
        if now_s - self._told_at_s >= PROGRESS_INTERVAL_S:
            self._told_at_s = now_s
            self.write(PROGRESS)


if __name__ == "__main__":
    main()
