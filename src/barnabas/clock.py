"""Time as an argument: the only module that asks the operating system what time it is.

Everything that needs the time takes a `Clock`, so a test moves time by hand instead of sleeping.

Wall time is used for what is stored or shown (timestamps), in milliseconds since the epoch as in Kafka's protocol.
Monotonic time is used for what is waited for (timeouts, sessions), in seconds. Whether data has expired is decided by
`Clock.expiry_ms`: a wall clock may be a year ahead for four seconds, and what is deleted then does not come back.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import Protocol

from barnabas.model import NO_TIMESTAMP

JUMP_S_MAX = 10.0
"""A step of the wall clock up to this length is no jump; NTP steps by less. The clock may make one in each `HOLD_S`."""

HOLD_S = 600.0
"""After a jump of the wall clock no data expires for this time."""

log = logging.getLogger(__name__)


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

    def since_boot(self) -> float:
        """Return seconds on a scale that never goes back and goes on while the machine is suspended, if it has one."""
        ...

    def expiry_ms(self) -> int | None:
        """Return the wall time by which data expires; None while the wall clock is in doubt and no data may expire.

        Only a `GuardedClock` doubts. A program that deletes by time takes one.
        """
        ...

    def stored_ms(self) -> int:
        """Return wall time for a record by which data expires later; NO_TIMESTAMP while the wall clock is in doubt.

        A later start may have the right time, and cannot see that the stored time is wrong.
        """
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

    def since_boot(self) -> float:
        # Linux has a scale that counts suspension. Other systems' monotonic scales differ in that.
        return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()

    def expiry_ms(self) -> int | None:
        return self.time_ms()

    def stored_ms(self) -> int:
        return self.time_ms()


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

    def since_boot(self) -> float:
        return self._elapsed_s

    def expiry_ms(self) -> int | None:
        return self.time_ms()

    def stored_ms(self) -> int:
        return self.time_ms()

    def advance(self, seconds: float) -> None:
        """Move both scales forward.

        :raises ValueError: `seconds` is negative.
        """
        if seconds < 0:
            raise ValueError(f"a clock cannot go back ({seconds} s)")
        self._elapsed_s += seconds

    def jump(self, seconds: float) -> None:
        """Move wall time alone, forward or back."""
        self._start_ms += round(seconds * 1000)


class GuardedClock:
    """A clock by which no data expires while its wall time is in doubt.

    Wall time is compared with the time since the boot. After a jump that this scale does not confirm, ahead or back, no
    data expires for `HOLD_S`; a wall clock that keeps its new course for so long is believed. The course may change by
    `JUMP_S_MAX` in each `HOLD_S`, so that small corrections do not add up to a jump.

    >>> wall = ManualClock(start_ms=1_000)
    >>> clock = GuardedClock(wall)
    >>> wall.jump(86_400)
    >>> clock.expiry_ms()
    >>> wall.advance(HOLD_S)
    >>> clock.expiry_ms()
    87001000
    """

    def __init__(self, clock: Clock) -> None:
        # The functions themselves, as they are called several times for each request.
        self.time_ms = clock.time_ms
        self.time_s = clock.time_s
        self.monotonic = clock.monotonic
        self.since_boot = clock.since_boot
        self._lock = threading.Lock()
        low_s, high_s, now_s, _ = self._read_course()
        self._course_s = (low_s + high_s) / 2
        self._course_read_s = now_s
        self._held_until_s = now_s
        self._logged_s = now_s - HOLD_S

    def expiry_ms(self) -> int | None:
        with self._lock:
            low_s, high_s, now_s, wall_s = self._read_course()
            jump_s = max(0.0, low_s - self._course_s) or min(0.0, high_s - self._course_s)
            if abs(jump_s) > JUMP_S_MAX:
                self._hold(
                    f"the wall clock jumped by {jump_s:+.0f} s, which the monotonic clock does not confirm", now_s
                )
            if abs(jump_s) > JUMP_S_MAX or now_s - self._course_read_s >= HOLD_S:
                self._course_s = (low_s + high_s) / 2
                self._course_read_s = now_s
            # The reading that was compared, and no other: the clock may jump between two.
            return None if now_s < self._held_until_s else round(wall_s * 1000)

    def stored_ms(self) -> int:
        wall_s, boot_s = self.time_s(), self.since_boot()
        if abs(wall_s - boot_s - self._course_s) > JUMP_S_MAX:
            # Perhaps a jump, or the thread stood still between the two readings: `expiry_ms` finds out.
            wall_ms = self.expiry_ms()
            return NO_TIMESTAMP if wall_ms is None else wall_ms
        return int(wall_s * 1000) if boot_s >= self._held_until_s else NO_TIMESTAMP

    def compare_with_last_life(self, last_ms: int) -> None:
        """Doubt the wall clock of a start that does not follow closely upon the program's last sign of life.

        The machine may have been off for so long, or its clock is wrong: nothing tells which.

        :param last_ms: the wall time of that sign, as when the newest file was written.
        """
        away_s = self.time_s() - last_ms / 1000
        if -JUMP_S_MAX <= away_s <= HOLD_S:
            return
        when = f"{away_s:.0f} s before" if away_s > 0 else f"{-away_s:.0f} s after"
        with self._lock:
            self._hold(f"the newest file in the data folders was written {when} this start", self.since_boot())

    def _hold(self, why: str, now_s: float) -> None:
        self._held_until_s = now_s + HOLD_S
        if now_s - self._logged_s >= HOLD_S:
            self._logged_s = now_s
            log.warning("%s; no data expires for %.0f minutes", why, HOLD_S / 60)

    def _read_course(self) -> tuple[float, float, float, float]:
        """Return the least and the most by which wall time is ahead of the boot time, the boot time, and wall time.

        The thread may stand still between two readings: what passed then is no jump.
        """
        before_s = self.since_boot()
        wall_s = self.time_s()
        after_s = self.since_boot()
        return wall_s - after_s, wall_s - before_s, after_s, wall_s


SYSTEM_CLOCK = SystemClock()
