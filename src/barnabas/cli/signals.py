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
REDELIVERY_S = 0.02
"""The pause before a signal is delivered again, in seconds."""
_undelivered: set[int] = set()
"""The signals that must be delivered again."""


def end_on_sigterm() -> None:
    """Handle SIGTERM and SIGHUP: run the command's `finally` blocks and exit with code 143 or 129."""
    for number in stop_signals():
        if number is not signal.SIGINT:
            signal.signal(number, _leave)


def interrupt_on(*numbers: signal.Signals) -> None:
    """Make signals raise KeyboardInterrupt."""
    for number in numbers:
        signal.signal(number, _interrupt)


def interrupt_on_stop_signals() -> None:
    """Make SIGTERM, SIGHUP and Ctrl-C raise KeyboardInterrupt."""
    interrupt_on(*stop_signals())


def end_at_once_on_interrupt() -> None:
    """Make Ctrl-C end the process immediately with exit code 130. Use this only while no resources are open.

    A KeyboardInterrupt during an import would print a traceback. If Ctrl-C is ignored, as in a shell's background jobs,
    it stays ignored.
    """
    sys.unraisablehook = sys.__unraisablehook__
    _undelivered.clear()
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, _end)


def interrupt_as_usual() -> None:
    """Make Ctrl-C raise KeyboardInterrupt, and deliver a stop signal again if Python ignores the error of its handler.

    Python may run the handler during a destructor, a callback of a weak reference, or the end of a generator. It
    ignores all errors of such code, so the command would continue as if there had been no signal.
    """
    sys.unraisablehook = _handle_ignored_error
    if signal.getsignal(signal.SIGINT) in (_end, signal.default_int_handler):
        interrupt_on(signal.SIGINT)


def _end(_number: int, _frame: FrameType | None) -> None:
    os._exit(EXIT_INTERRUPTED)


def _interrupt(number: int, frame: FrameType | None) -> None:
    if not _has_deferred(number, frame):
        raise KeyboardInterrupt(number)


def _leave(number: int, frame: FrameType | None) -> None:
    if not _has_deferred(number, frame):
        sys.exit(SIGNALLED + number)


def _handle_ignored_error(ignored: UnraisableHookArgs) -> None:
    """Deliver a stop signal again if it is the cause of an ignored error. Report other errors as Python does."""
    number = _signal_of(ignored.exc_value)
    if number is None:
        sys.__unraisablehook__(ignored)
    else:
        _deliver_again(number)


def _signal_of(error: BaseException | None) -> signal.Signals | None:
    """Return the stop signal whose handler raised an error; None for any other error."""
    if isinstance(error, KeyboardInterrupt):
        return next((number for number in stop_signals() if error.args == (number,)), signal.SIGINT)
    if isinstance(error, SystemExit):
        return next((number for number in stop_signals() if error.code == SIGNALLED + number), None)
    return None


def _has_deferred(number: int, frame: FrameType | None) -> bool:
    """Deliver a signal later if it interrupts `_handle_ignored_error`, whose errors Python ignores, too.

    :returns: whether the signal is delivered later, so that its handler must not raise an error now.
    """
    while frame is not None and frame.f_code is not _handle_ignored_error.__code__:
        frame = frame.f_back
    if frame is None:
        _undelivered.discard(number)
        return False
    _deliver_again(number)
    return True


def _deliver_again(number: int) -> None:
    _undelivered.add(number)
    _thread.start_new_thread(_deliver, (number,))


def _deliver(number: int) -> None:
    """Deliver a signal to the main thread until its handler has raised an error.

    Once is not enough: if the signal arrives immediately before a system call, it does not end the call.
    """
    import threading

    receiver = threading.main_thread().ident
    assert receiver is not None
    pause = threading.Event()
    pause.wait(REDELIVERY_S)
    while number in _undelivered:
        if signal.getsignal(number) not in (_interrupt, _leave):
            _undelivered.discard(number)  # the current handler needs the signal only once
        if hasattr(signal, "pthread_kill"):
            signal.pthread_kill(receiver, number)
        else:  # Windows
            _thread.interrupt_main(signal.Signals(number))
        pause.wait(REDELIVERY_S)
