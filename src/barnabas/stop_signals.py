"""Signals that stop a process cleanly: SIGTERM, Ctrl-C and SIGHUP, which a closed terminal sends."""

from __future__ import annotations

import signal
from contextlib import contextmanager

TYPE_CHECKING = False
if TYPE_CHECKING:  # imported for type checking only: some commands need no asyncio
    import asyncio
    from collections.abc import Callable, Iterable, Iterator


def stop_signals() -> tuple[signal.Signals, ...]:
    """Return the signals that stop a long-running process.

    SIGHUP is left out if the parent process ignores it: `nohup` keeps a process running after its terminal closes.
    """
    usual = (signal.SIGTERM, signal.SIGINT)
    if not hasattr(signal, "SIGHUP"):  # Windows
        return usual
    return usual if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else (*usual, signal.SIGHUP)


def stop_on_signals(loop: asyncio.AbstractEventLoop, stop: Callable[[], None]) -> None:
    """Call `stop` in the event loop at each stop signal."""
    for number in stop_signals():
        try:
            loop.add_signal_handler(number, stop)
        except NotImplementedError:  # Windows
            signal.signal(number, lambda _number, _frame: loop.call_soon_threadsafe(stop))


@contextmanager
def signals_held(numbers: Iterable[signal.Signals]) -> Iterator[None]:
    """Hold back signals within the context, and deliver them afterwards. Only the main thread receives signals."""
    import threading  # noqa: PLC0415  some commands need no threads

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    before = {number: signal.getsignal(number) for number in numbers}
    for number in before:
        signal.signal(number, lambda number, _frame: came.append(number))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for held in dict.fromkeys(came):
            signal.raise_signal(held)
