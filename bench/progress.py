"""The progress messages of the benchmark: one line per run, with the time since the start."""

from __future__ import annotations

import sys
import time


class Progress:
    """Writes progress lines to standard error."""

    def __init__(self) -> None:
        self._begun_s = time.monotonic()

    def say(self, text: str) -> None:
        minutes, seconds = divmod(int(time.monotonic() - self._begun_s), 60)
        sys.stderr.write(f"[{minutes:2d}:{seconds:02d}] {text}\n")
        sys.stderr.flush()
