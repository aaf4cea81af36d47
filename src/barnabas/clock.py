"""The clocks. Only this module reads the time of the operating system.

All code that needs the time takes a `Clock` argument, so tests advance the time by hand instead of sleeping.

Wall time, in milliseconds since the epoch, is for stored and displayed timestamps. Monotonic time, in seconds, is for
timeouts and sessions. `Clock.expiry_ms` is the time that decides which data has expired. It is None while the wall
clock may be wrong, because a deletion cannot be undone.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import Protocol

from barnabas.model import NO_TIMESTAMP

JUMP_S_MAX = 10.0
"""The maximum wall clock adjustment within `HOLD_S` seconds that is not treated as a jump, in seconds. NTP steps are
smaller.
"""

HOLD_S = 600.0
"""The time after a jump of the wall clock during which no data expires, in seconds."""

log = logging.getLogger(__name__)


class Clock(Protocol):
    """A source of wall time and monotonic time. Implementations are thread-safe."""

    def time_ms(self) -> int:
        """Return wall time in milliseconds since the epoch."""
        ...

    def time_s(self) -> float:
        """Return wall time in seconds since the epoch."""
        ...

    def monotonic(self) -> float:
        """Return the time of a clock that never goes backward, in seconds. Only the difference between two readings is
        meaningful.
        """
        ...

    def since_boot(self) -> float:
        """Return the time of a clock that never goes backward, in seconds.

        On Linux, this clock also advances while the machine is suspended.
        """
        ...

    def expiry_ms(self) -> int | None:
        """Return the wall time for deciding which data has expired, or None if the wall clock may be wrong and no data
        may expire.

        Only a `GuardedClock` returns None. Programs that delete data by time use a `GuardedClock`.
        """
        ...

    def stored_ms(self) -> int:
        """Return the wall time to store in a record that will be deleted by age, or NO_TIMESTAMP if the clock may be
        wrong.

        A wrong timestamp in the record cannot be detected later, for example after a restart.
        """
        ...


class SystemClock:
    """The clock of the operating system."""

    # Use the functions of `time` directly: each request calls them several times, and a Python method would add
    # overhead.
    time_s = staticmethod(time.time)
    monotonic = staticmethod(time.monotonic)
    sleep = staticmethod(time.sleep)
    """Sleep with microsecond precision. `Clock` has no `sleep`, because most code waits for events instead."""

    def time_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def since_boot(self) -> float:
        # CLOCK_BOOTTIME exists on Linux only. On other systems, the monotonic clock may stop during suspension.
        return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()

    def expiry_ms(self) -> int | None:
        return self.time_ms()

    def stored_ms(self) -> int:
        return self.time_ms()


class ManualClock:
    """A clock for tests. Its time changes only when a test calls `advance` or `jump`.

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
        """Advance both wall time and monotonic time.

        :raises ValueError: `seconds` is negative.
        """
        if seconds < 0:
            raise ValueError(f"a clock cannot go back ({seconds} s)")
        self._elapsed_s += seconds

    def jump(self, seconds: float) -> None:
        """Move wall time forward or backward, without changing monotonic time."""
        self._start_ms += round(seconds * 1000)


class GuardedClock:
    """A clock that prevents data from expiring while its wall time may be wrong.

    The clock compares wall time with the time since boot. After a jump of wall time that the time since boot does not
    confirm, no data expires for `HOLD_S` seconds. After `HOLD_S` seconds without another jump, the clock trusts the new
    wall time. Adjustments of less than `JUMP_S_MAX` within `HOLD_S` seconds are not jumps, and they do not add up over
    longer periods.

    >>> wall = ManualClock(start_ms=1_000)
    >>> clock = GuardedClock(wall)
    >>> wall.jump(86_400)
    >>> clock.expiry_ms()
    >>> wall.advance(HOLD_S)
    >>> clock.expiry_ms()
    87001000
    """

    def __init__(self, clock: Clock) -> None:
        # Use the methods of `clock` directly: each request calls them several times, and another Python method would
        # add overhead.
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
            # Return the same reading that was checked above: the clock may jump before another reading.
            return None if now_s < self._held_until_s else round(wall_s * 1000)

    def stored_ms(self) -> int:
        wall_s, boot_s = self.time_s(), self.since_boot()
        if abs(wall_s - boot_s - self._course_s) > JUMP_S_MAX:
            # Either the wall clock jumped, or the thread was suspended between the two readings. `expiry_ms`
            # distinguishes the cases.
            wall_ms = self.expiry_ms()
            return NO_TIMESTAMP if wall_ms is None else wall_ms
        return int(wall_s * 1000) if boot_s >= self._held_until_s else NO_TIMESTAMP

    def compare_with_last_life(self, last_ms: int) -> None:
        """Prevent data from expiring for `HOLD_S` seconds unless the broker was stopped only briefly.

        If the last activity was long ago, either the broker was stopped for that long, or the wall clock is wrong. The
        broker cannot distinguish the two cases.

        :param last_ms: the wall time of the last activity before this start, such as the last write to a file.
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
        """Return a lower and an upper bound of the difference between wall time and boot time, then the boot time and
        the wall time.

        The bounds allow for a suspension of the thread between two readings.
        """
        before_s = self.since_boot()
        wall_s = self.time_s()
        after_s = self.since_boot()
        return wall_s - after_s, wall_s - before_s, after_s, wall_s


SYSTEM_CLOCK = SystemClock()
