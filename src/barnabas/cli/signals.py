"""SIGTERM, SIGHUP and Ctrl-C as ordinary ways to end a command: quietly, and with what is open closed."""

from __future__ import annotations

import os
import signal
import sys

from barnabas.stop_signals import stop_signals

TYPE_CHECKING = False
if TYPE_CHECKING:  # spelled so because `typing` takes its time, and the entry must be quick to deal with Ctrl-C
    from types import FrameType

EXIT_INTERRUPTED = 130
SIGNALLED = 128
"""A shell's exit code of a process that a signal ended is this plus the signal's number."""


def end_on_sigterm() -> None:
    """Make SIGTERM and SIGHUP leave the command through its `finally` blocks, with exit code 143 or 129."""
    for number in stop_signals():
        if number is not signal.SIGINT:
            signal.signal(number, _leave)


def _leave(number: int, _frame: FrameType | None) -> None:
    sys.exit(SIGNALLED + number)


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
