"""Handles SIGTERM, SIGHUP and Ctrl-C so that a command ends without a traceback and with its resources closed."""

from __future__ import annotations

import os
import signal
import sys

from barnabas.stop_signals import stop_signals

TYPE_CHECKING = False
if TYPE_CHECKING:  # not `typing.TYPE_CHECKING`: importing `typing` would delay the handling of Ctrl-C
    from types import FrameType

EXIT_INTERRUPTED = 130
SIGNALLED = 128
"""The base of exit codes for signals, as in shells: the exit code is this number plus the signal number."""


def end_on_sigterm() -> None:
    """Handle SIGTERM and SIGHUP: run the command's `finally` blocks and exit with code 143 or 129."""
    for number in stop_signals():
        if number is not signal.SIGINT:
            signal.signal(number, _leave)


def _leave(number: int, _frame: FrameType | None) -> None:
    sys.exit(SIGNALLED + number)


def interrupt_on_stop_signals() -> None:
    """Make SIGTERM, SIGHUP and Ctrl-C raise KeyboardInterrupt."""
    for number in stop_signals():
        signal.signal(number, signal.default_int_handler)


def end_at_once_on_interrupt() -> None:
    """Make Ctrl-C end the process immediately with exit code 130. Use this only while no resources are open.

    A KeyboardInterrupt during an import would print a traceback. If Ctrl-C is ignored, as in a shell's background jobs,
    it stays ignored.
    """
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, _end)


def interrupt_as_usual() -> None:
    """Make Ctrl-C raise KeyboardInterrupt."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _end(_number: int, _frame: FrameType | None) -> None:
    os._exit(EXIT_INTERRUPTED)
