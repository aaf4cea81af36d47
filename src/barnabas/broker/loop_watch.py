"""The event loop watch, which logs the duration and the cause of event loop stalls.

A separate thread checks the event loop's thread 25 to 50 times per second. A check does not wake an idle loop. If the
loop is busy, the watch schedules a callback in the loop. The delay of the callback is the time that all requests had to
wait. During a long delay, the watch records the stack of the loop's thread. Each check needs the interpreter lock. If
another thread of this process holds the lock, the check is late, and the loop could not run either. The delay is then
measured from the time at which the check was due. If the whole process did not get CPU time, the machine is the cause,
and the watch logs nothing. The watch logs the first stall. After that, it logs at most one line per `LINE_INTERVAL_S`,
with the number of stalls since the last line.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import NamedTuple

from barnabas.log_lines import LogEvent, event
from barnabas.metrics.metric import Histogram
from barnabas.portable import cpu_s as cpu_s_of_process

STALL_S = 0.05
"""The minimum duration of a logged stall in seconds. Shorter waits of a request for other requests are normal."""
LOOK_S = 0.02
REST_LOOK_S = 0.04
"""The interval between checks of an idle loop, in seconds. It is longer than `LOOK_S`, because each check wakes a CPU.
"""
REST_LOOKS = 50
"""The number of consecutive checks with an idle loop after which the longer interval applies."""
LINE_INTERVAL_S = 10.0
FRAMES_MAX = 6
LAG_BOUNDS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)
IDLE = "nothing; another thread of the broker was busy"

log = logging.getLogger(__name__)


class Stall(NamedTuple):
    """A stall of the event loop that is logged."""

    late_s: float
    doing: str
    """The functions that the loop's thread was running, if known."""
    more: int = 0
    """The number of other stalls since the last log line."""
    longest_s: float = 0.0
    """The duration of the longest of the other stalls, in seconds."""

    def __str__(self) -> str:
        text = f"the event loop stalled for {self.late_s * 1000:.0f} ms while it ran: {self.doing}"
        if self.more:
            text += f" ({self.more} more stalls since the last line, at most {self.longest_s * 1000:.0f} ms)"
        return text


class StallRecord:
    """Decides which stalls are logged. Methods get the monotonic time in seconds as an argument."""

    def __init__(self) -> None:
        self._logged_at_s = -LINE_INTERVAL_S
        self._more = 0
        self._longest_s = 0.0

    def note(self, now_s: float, late_s: float, doing: str | None) -> Stall | None:
        """Record a delay of the loop, with the functions that ran during the delay.

        Return the stall to log, or None.
        """
        if late_s < STALL_S:
            return None
        if now_s - self._logged_at_s < LINE_INTERVAL_S:
            self._more += 1
            self._longest_s = max(self._longest_s, late_s)
            return None
        stall = Stall(late_s, doing or "not seen", self._more, self._longest_s)
        self._logged_at_s, self._more, self._longest_s = now_s, 0, 0.0
        return stall


class LoopWatch:
    """Watches the event loop of the thread that calls `start`.

    :param now_s: returns monotonic seconds.
    :param cpu_s: returns the CPU seconds of this process. If None, the operating system's value is used.
    """

    def __init__(self, now_s: Callable[[], float], cpu_s: Callable[[], float] | None = None) -> None:
        self._now_s = now_s
        self._cpu_s = cpu_s or cpu_s_of_process
        self._record = StallRecord()
        self.lags = Histogram(LAG_BOUNDS_S)
        """The callback delays in seconds, for all checks of a busy loop."""
        self._due_s = 0.0
        """The monotonic time at which the next check is due. The actual check may be later."""
        self._cpu_at_look_s = 0.0
        self._asked_s: float | None = None
        """The monotonic time since which the loop has been busy, or None if no callback is pending."""
        self._idle_looks = 0
        self._seen: str | None = None
        """The functions that the loop's thread ran during the current delay, or None if unknown."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread_id = 0
        self._ending = threading.Lock()

    def start(self) -> None:
        """Start the watch with its own thread."""
        self.attach()
        self._ending.acquire()  # `stop` releases this lock, which ends the thread.
        threading.Thread(target=self._look_on, name="loop watch", daemon=True).start()

    def attach(self) -> None:
        """Start the watch without a thread. The caller must call `look`."""
        self._loop = asyncio.get_running_loop()
        self._thread_id = threading.get_ident()
        self._expect_look()

    def stop(self) -> None:
        """Stop the watch."""
        self._loop = None
        if self._ending.locked():
            self._ending.release()

    def look(self, stack: Callable[[], FrameType | None]) -> None:
        """Check the loop. Schedule a callback if the loop is busy, and record the loop's stack if a callback is late.

        Another thread calls this method `look_s` seconds after the last check.

        :param stack: returns the current frame of the loop's thread.
        """
        now_s = self._now_s()
        asked_s = self._asked_s
        if asked_s is not None:
            if self._seen is None and now_s - asked_s >= STALL_S / 2:
                self._seen = describe(stack())
        else:
            self._look_at(stack(), now_s)
        self._expect_look()

    @property
    def look_s(self) -> float:
        """The time until the next check, in seconds."""
        return REST_LOOK_S if self._idle_looks >= REST_LOOKS else LOOK_S

    def _look_at(self, frame: FrameType | None, now_s: float) -> None:
        late_s, computed_s = now_s - self._due_s, self._cpu_s() - self._cpu_at_look_s
        was_held_up = late_s >= STALL_S / 2 and computed_s > late_s / 2
        if is_idle(frame):
            self._idle_looks += 1
            if was_held_up:
                self._log_stall(late_s, IDLE)
            return
        since_s = self._due_s if was_held_up else now_s
        if self._idle_looks >= REST_LOOKS:
            # After a long interval, the loop may have become busy any time since the last check. Estimate this time by
            # the CPU time used.
            since_s = now_s - max(min(computed_s, late_s + REST_LOOK_S), REST_LOOK_S / 2)
        self._idle_looks = 0
        self._seen = describe(frame) if now_s - since_s >= STALL_S / 2 else None
        self._ask(since_s)

    def _ask(self, asked_s: float) -> None:
        self._asked_s = asked_s
        loop = self._loop
        if loop is not None:
            with contextlib.suppress(RuntimeError):  # The loop has been closed.
                loop.call_soon_threadsafe(self._answer)

    def _answer(self) -> None:
        """Measure the delay. This is the callback that the loop runs as soon as it is free."""
        asked_s, seen = self._asked_s, self._seen
        if asked_s is not None:
            late_s = self._now_s() - asked_s
            self.lags.observe(late_s)
            self._log_stall(late_s, seen)
        self._asked_s = None  # Do this last, because `look` may then schedule another callback.

    def _log_stall(self, late_s: float, seen: str | None) -> None:
        stall = self._record.note(self._now_s(), late_s, seen)
        if stall:
            log.warning("%s", stall, extra=event(LogEvent.LOOP_STALLED))

    def _expect_look(self) -> None:
        self._due_s = self._now_s() + self.look_s
        self._cpu_at_look_s = self._cpu_s()

    def _look_on(self) -> None:
        while not self._ending.acquire(timeout=self.look_s):
            self.look(lambda: sys._current_frames().get(self._thread_id))


def is_idle(frame: FrameType | None) -> bool:
    """Return whether a thread is waiting for events in its event loop."""
    if frame is None:
        return True
    path = frame.f_code.co_filename
    return path.endswith("selectors.py") or path.rpartition("/")[0].endswith("asyncio")


def describe(frame: FrameType | None) -> str:
    """Return the stack of a thread as one line, with the innermost function first."""
    places: list[str] = []
    while frame is not None and len(places) < FRAMES_MAX:
        code = frame.f_code
        places.append(f"{code.co_qualname} ({Path(code.co_filename).name}:{frame.f_lineno})")
        frame = frame.f_back
    return " < ".join(places) or "nothing"
