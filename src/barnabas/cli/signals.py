"""Handles SIGTERM, SIGHUP and Ctrl-C so that a command ends without a traceback and with its resources closed."""

from __future__ import annotations

import _thread
import os
import signal
import sys

from barnabas.stop_signals import stop_signals

TYPE_CHECKING = False
if TYPE_CHECKING:  # not `typing.TYPE_CHECKING`: importing `typing` would delay the handling of Ctrl-C
    from sys import UnraisableHookArgs
    from types import FrameType

EXIT_INTERRUPTED = 130
SIGNALLED = 128
"""The base of exit codes for signals, as in shells: the exit code is this number plus the signal number."""
RETRY_S = 0.001
_MAIN_THREAD = _thread.get_ident()
"""The id of the thread that receives signals. It imports this module before it starts other threads."""


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


def deliver_ignored_signals_again() -> None:
    """Deliver a stop signal again if Python ignores the exception of its handler.

    A signal handler may run, and raise its exception, while Python executes a destructor or a callback of a weak
    reference. Python ignores all exceptions of such code, so the command would never end.
    """
    sys.unraisablehook = _deliver_again


def _deliver_again(ignored: UnraisableHookArgs) -> None:
    """Deliver a stop signal again if it is the cause of an ignored error. Report other errors as Python does."""
    try:
        number = _signal_of(ignored.exc_value)
        if number is None:
            sys.__unraisablehook__(ignored)
    except (KeyboardInterrupt, SystemExit) as error:  # Python also ignores the exceptions of this function
        number = _signal_of(error)
    if number is not None:
        _thread.start_new_thread(_deliver, (number,))


def _signal_of(error: BaseException | None) -> signal.Signals | None:
    """Return the stop signal whose handler raised an error; None for any other error."""
    if isinstance(error, KeyboardInterrupt):
        return signal.SIGINT
    if isinstance(error, SystemExit):
        return next((number for number in stop_signals() if error.code == SIGNALLED + number), None)
    return None


def _deliver(number: signal.Signals) -> None:
    """Deliver a signal to the main thread after `_deliver_again` has returned there."""
    import threading

    pause = threading.Event().wait
    while _main_thread_is_reporting():
        pause(RETRY_S)
    _thread.interrupt_main(number)


def _main_thread_is_reporting() -> bool:
    frame = sys._current_frames().get(_MAIN_THREAD)
    while frame is not None and frame.f_code is not _deliver_again.__code__:
        frame = frame.f_back
    return frame is not None
