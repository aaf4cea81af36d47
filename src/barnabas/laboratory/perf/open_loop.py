"""An open loop: records are due at fixed moments, whether the system keeps up or not.

Latency is counted from the moment a record was due, not from when it was sent. A system that stalls for a second
is so charged for all the records that were due in it; a loop that waits for the system instead would leave them out
("coordinated omission").
"""

from __future__ import annotations

import contextlib
import ctypes
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass

from barnabas.clock import SYSTEM_CLOCK

SHORT_S = 0.01
"""A sleep that need not be broken off when the run is to stop."""
_PR_SET_TIMERSLACK = 29
_SHARP_NS = 1


@dataclass(frozen=True, slots=True)
class OpenLoop:
    """Record number n is due n / rate seconds after the start.

    >>> loop = OpenLoop(start_s=100.0, rate=10.0)
    >>> loop.due_s(5), loop.count_due(100.55), loop.count_due(99.0)
    (100.5, 6, 0)
    """

    start_s: float
    rate: float

    def due_s(self, number: int) -> float:
        """Return when a record is due, the first being number 0."""
        return self.start_s + number / self.rate

    def count_due(self, now_s: float) -> int:
        """Return how many records are due by now.

        Agrees with `due_s`: the record with this number is due later than now, all before it are not.
        """
        count = max(0, int((now_s - self.start_s) * self.rate) + 1)
        while count and self.due_s(count - 1) > now_s:
            count -= 1
        while self.due_s(count) <= now_s:
            count += 1
        return count


def pause(delay_s: float, stopped: threading.Event, sleep: Callable[[float], object] = SYSTEM_CLOCK.sleep) -> bool:
    """Sleep, if there is something to sleep for; return whether the run is to stop.

    :param sleep: for short sleeps.

    Short sleeps are the usual ones, ten thousand a second: they cost a system call each, and nothing more.
    """
    if delay_s > SHORT_S:
        return stopped.wait(delay_s)
    if delay_s > 0:
        sleep(delay_s)
    return stopped.is_set()


def reduce_timer_slack() -> None:
    """Let the sleeps of this thread end when they should, and not, as is usual, up to 50 us later. Linux only.

    What is late here would be counted as latency. Threads that were started before keep their ways.
    """
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):  # a C library without it: sleeps stay as they are
            ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, _SHARP_NS, 0, 0, 0)
