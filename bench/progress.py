"""What the bench says while it runs: a line a run, with the time since the start."""

from __future__ import annotations

import sys
import time


class Progress:
    """Writes lines to standard error."""

    def __init__(self) -> None:
        self._begun_s = time.monotonic()

    def say(self, text: str) -> None:
        """Write a line."""
        minutes, seconds = divmod(int(time.monotonic() - self._begun_s), 60)
        sys.stderr.write(f"[{minutes:2d}:{seconds:02d}] {text}\n")
        sys.stderr.flush()
