"""SIGTERM and Ctrl-C as ordinary ways to end a command: quietly, and with what is open closed."""

from __future__ import annotations

import os
import signal
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # spelled so because `typing` takes its time, and the entry must be quick to deal with Ctrl-C
    from types import FrameType

EXIT_INTERRUPTED = 130
EXIT_TERMINATED = 143


def end_on_sigterm() -> None:
    """Make SIGTERM leave the command as Ctrl-C does, through its `finally` blocks, with exit code 143."""
    signal.signal(signal.SIGTERM, _leave)


def _leave(_number: int, _frame: FrameType | None) -> None:
    sys.exit(EXIT_TERMINATED)


def end_at_once_on_interrupt() -> None:
    """Make Ctrl-C end the process with exit code 130, without a word; for as long as nothing is open.

    KeyboardInterrupt would be a traceback from the middle of an import. Where Ctrl-C is ignored, as in a shell's
    background jobs, it stays so.
    """
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, _end)


def interrupt_as_usual() -> None:
    """Make Ctrl-C raise KeyboardInterrupt again."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _end(_number: int, _frame: FrameType | None) -> None:
    os._exit(EXIT_INTERRUPTED)
