"""Time as an argument: the only module that asks the operating system what time it is.

Everything that needs the time takes a `Clock`, so a test moves time by hand instead of sleeping.

Wall time is used for what is stored or shown (timestamps, retention), in milliseconds since the epoch as in
Kafka's protocol. Monotonic time is used for what is waited for (timeouts, sessions), in seconds.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Tells the time. Implementations are safe to use from several threads."""

    def time_ms(self) -> int:
        """Return wall time in milliseconds since the epoch."""
        ...

    def time_s(self) -> float:
        """Return wall time in seconds since the epoch."""
        ...

    def monotonic(self) -> float:
        """Return seconds on a scale that never goes back; only differences mean something."""
        ...


class SystemClock:
    """The machine's clock."""

    # The functions themselves: they are called several times for each request.
    time_s = staticmethod(time.time)
    monotonic = staticmethod(time.monotonic)
    sleep = staticmethod(time.sleep)
    """For threads that have to be on time to within microseconds. No part of `Clock`: others wait for something."""

    def time_ms(self) -> int:
        return time.time_ns() // 1_000_000


class ManualClock:
    """A clock that moves only when told to.

    >>> clock = ManualClock(start_ms=1_000)
    >>> clock.advance(2.5)
    >>> clock.time_ms(), clock.monotonic()
    (3500, 2.5)
    """

    def __init__(self, start_ms: int = 1_700_000_000_000) -> None:
        self._start_ms = start_ms
        self._elapsed_s = 0.0

    def time_ms(self) -> int:
        return self._start_ms + round(self._elapsed_s * 1000)

    def time_s(self) -> float:
        return self.time_ms() / 1000

    def monotonic(self) -> float:
        return self._elapsed_s

    def advance(self, seconds: float) -> None:
        """Move both scales forward.

        :raises ValueError: `seconds` is negative.
        """
        if seconds < 0:
            raise ValueError(f"a clock cannot go back ({seconds} s)")
        self._elapsed_s += seconds


SYSTEM_CLOCK = SystemClock()
