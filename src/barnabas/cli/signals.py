"""SIGTERM as an ordinary way to end a command: what is open is closed, what was done is noted."""

from __future__ import annotations

import signal
import sys
from types import FrameType

EXIT_TERMINATED = 143


def end_on_sigterm() -> None:
    """Make SIGTERM leave the command as Ctrl-C does, through its `finally` blocks, with exit code 143."""
    signal.signal(signal.SIGTERM, _leave)


def _leave(_number: int, _frame: FrameType | None) -> None:
    sys.exit(EXIT_TERMINATED)
