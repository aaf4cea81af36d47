"""The open loop: records are due at fixed times, even if the system does not keep up.

Latency is measured from the time when a record was due, not when it was sent. So a stall of one second increases the
latency of all records that were due in this second. A loop that waits for the system would not send these records, and
would hide the stall ("coordinated omission").
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
"""The maximum duration in seconds of a sleep that `stop` cannot interrupt."""
_PR_SET_TIMERSLACK = 29
_SHARP_NS = 1


@dataclass(frozen=True, slots=True)
class OpenLoop:
    """The due times of records: record n is due n / rate seconds after the start.

    >>> loop = OpenLoop(start_s=100.0, rate=10.0)
    >>> loop.due_s(5), loop.count_due(100.55), loop.count_due(99.0)
    (100.5, 6, 0)
    """

    start_s: float
    rate: float

    def due_s(self, number: int) -> float:
        """Return the due time of a record. The first record is number 0."""
        return self.start_s + number / self.rate

    def count_due(self, now_s: float) -> int:
        """Return the number of records that are due.

        The result is consistent with `due_s`: the records with lower numbers are due, and the record with this number
        is not.
        """
        count = max(0, int((now_s - self.start_s) * self.rate) + 1)
        while count and self.due_s(count - 1) > now_s:
            count -= 1
        while self.due_s(count) <= now_s:
            count += 1
        return count


def pause(delay_s: float, stopped: threading.Event, sleep: Callable[[float], object] = SYSTEM_CLOCK.sleep) -> bool:
    """Sleep if the delay is positive. Return whether the run should stop.

    :param sleep: the function for short sleeps.

    Most sleeps are short, and there are up to ten thousand per second. Each of them costs only one system call.
    """
    if delay_s > SHORT_S:
        return stopped.wait(delay_s)
    if delay_s > 0:
        sleep(delay_s)
    return stopped.is_set()


def reduce_timer_slack() -> None:
    """Let this thread's sleeps end exactly instead of up to 50 us late, on Linux.

    A sleep that ends late would increase the measured latency. Threads started before the call keep the default.
    """
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):  # a C library without prctl(): sleeps keep the default slack
            ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, _SHARP_NS, 0, 0, 0)
