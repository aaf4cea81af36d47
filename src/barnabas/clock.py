"""The clocks. Only this module reads the time of the operating system.

All code that needs the time takes a `Clock` argument, so tests advance the time by hand instead of sleeping.

Wall time, in milliseconds since the epoch, is for stored and displayed timestamps. Monotonic time, in seconds, is for
timeouts and sessions. `Clock.expiry_ms` decides about the deletion of expired data: a wall clock may be a year ahead
for a few seconds, and a deletion cannot be undone.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import Protocol

from barnabas.model import NO_TIMESTAMP

JUMP_S_MAX = 10.0
"""The maximum change of the wall clock in each `HOLD_S` that is not a jump, in seconds. NTP steps are smaller."""

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
        """Return seconds of a clock that never goes back. Only the difference of two readings has a meaning."""
        ...

    def since_boot(self) -> float:
        """Return seconds of a clock that never goes back.

        On Linux, this clock also advances while the machine is suspended.
        """
        ...

    def expiry_ms(self) -> int | None:
        """Return the wall time for decisions about expired data; None if the wall clock may be wrong, so no data may
        expire.

        Only a `GuardedClock` returns None. Programs that delete data by time use a `GuardedClock`.
        """
        ...

    def stored_ms(self) -> int:
        """Return the wall time for a record whose age decides later about its deletion; NO_TIMESTAMP if the clock may
        be wrong.

        After a restart the clock may be right, but a wrong timestamp in the record cannot be detected.
        """
        ...


class SystemClock:
    """The clock of the operating system."""

    # The functions of `time` are attributes, without a Python method around them: each request calls them several
    # times.
    time_s = staticmethod(time.time)
    monotonic = staticmethod(time.monotonic)
    sleep = staticmethod(time.sleep)
    """Sleep, for threads that need a precision of microseconds. `Clock` has no `sleep`: other code waits for events."""

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
    """A clock that only `advance` and `jump` change.

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
        """Change wall time alone, forward or back."""
        self._start_ms += round(seconds * 1000)


class GuardedClock:
    """A clock that lets no data expire while its wall time may be wrong.

    The clock compares wall time with the time since boot. After a jump of wall time that the time since boot does not
    confirm, no data expires for `HOLD_S` seconds. After `HOLD_S` seconds without a further jump, the new wall time
    counts as right. A change of less than `JUMP_S_MAX` in each `HOLD_S` is no jump; small corrections do not add up.

    >>> wall = ManualClock(start_ms=1_000)
    >>> clock = GuardedClock(wall)
    >>> wall.jump(86_400)
    >>> clock.expiry_ms()
    >>> wall.advance(HOLD_S)
    >>> clock.expiry_ms()
    87001000
    """

    def __init__(self, clock: Clock) -> None:
        # The functions of the clock are attributes, without a Python method around them: each request calls them
        # several times.
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
            # The reading that was checked must be the one returned: the clock may jump between two readings.
            return None if now_s < self._held_until_s else round(wall_s * 1000)

    def stored_ms(self) -> int:
        wall_s, boot_s = self.time_s(), self.since_boot()
        if abs(wall_s - boot_s - self._course_s) > JUMP_S_MAX:
            # The wall clock may have jumped, or the thread was suspended between the two readings. `expiry_ms` checks
            # both.
            wall_ms = self.expiry_ms()
            return NO_TIMESTAMP if wall_ms is None else wall_ms
        return int(wall_s * 1000) if boot_s >= self._held_until_s else NO_TIMESTAMP

    def compare_with_last_life(self, last_ms: int) -> None:
        """Let no data expire for `HOLD_S` if this start is not shortly after the end of the previous run of the broker.

        Either the machine was off for that time, or its clock is wrong. The broker cannot distinguish the two cases.

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
        """Return the lower and the upper bound of (wall time - boot time), the boot time, and the wall time.

        The thread may be suspended between two readings; the bounds include the time of the suspension.
        """
        before_s = self.since_boot()
        wall_s = self.time_s()
        after_s = self.since_boot()
        return wall_s - after_s, wall_s - before_s, after_s, wall_s


SYSTEM_CLOCK = SystemClock()
