"""Signals that stop a process cleanly: SIGTERM, Ctrl-C and SIGHUP, which a closed terminal sends."""

from __future__ import annotations

import signal
from contextlib import ExitStack, contextmanager

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
    """Hold back signals within the context, and deliver them afterwards. Ignored signals stay ignored.

    In other threads than the main thread, the context has no effect. If the handler of a held signal raises an error,
    the signals that came later are dropped.
    """
    import threading  # noqa: PLC0415  some commands need no threads

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []

    def deliver() -> None:
        for number in dict.fromkeys(came):
            signal.raise_signal(number)

    with ExitStack() as afterwards:  # it restores all handlers, even if one of them raises an error meanwhile
        afterwards.callback(deliver)
        for number in numbers:
            handler = signal.getsignal(number)
            if handler is not signal.SIG_IGN:
                afterwards.callback(signal.signal, number, handler)
                signal.signal(number, lambda number, _frame: came.append(number))
        yield
