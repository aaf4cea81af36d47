"""Watches the event loop: says in the log when it stood still, for how long, and over what.

A thread looks on, some dozens of times a second. An idle loop is not woken by that. Where the thread finds the loop at
work, it asks for an answer (a callback); how late that comes is how long everybody waited. While it is late, the thread
notes the stack of the loop's thread.

To look, the thread needs the interpreter's lock. If it gets that late because somebody in this process held it, that
counts as if the loop had been asked when the look was due: it could not have run either. If the process merely did not
get to run, the machine is to blame, and nothing is logged.

One line for the first stall, then at most one in `LINE_INTERVAL_S`, which counts those in between.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import NamedTuple

from barnabas.log_lines import LogEvent, event
from barnabas.metrics.metric import Histogram

STALL_S = 0.05
"""A stall that is worth a line: as long as a client may have to wait for another one."""
LOOK_S = 0.02
REST_LOOK_S = 0.04
"""While the loop rests, for each look wakes a processor."""
REST_LOOKS = 50
"""A loop rests that was idle so many times in a row."""
LINE_INTERVAL_S = 10.0
FRAMES_MAX = 6
LAG_BOUNDS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)
IDLE = "nothing; another thread of the broker was busy"

log = logging.getLogger(__name__)


class Stall(NamedTuple):
    """What is worth a line."""

    late_s: float
    doing: str
    """What the loop did, as far as it is known."""
    more: int = 0
    """How many others there were since the last line."""
    longest_s: float = 0.0
    """The longest of those."""

    def __str__(self) -> str:
        text = f"the event loop stood still for {self.late_s * 1000:.0f} ms; it did: {self.doing}"
        if self.more:
            text += f" ({self.more} more since the last such line, at most {self.longest_s * 1000:.0f} ms)"
        return text


class StallRecord:
    """Decides what is worth a line. Pure: the time is an argument, in monotonic seconds."""

    def __init__(self) -> None:
        self._told_at_s = -LINE_INTERVAL_S
        self._more = 0
        self._longest_s = 0.0

    def note(self, now_s: float, late_s: float, doing: str | None) -> Stall | None:
        """Given how late the loop was and what was seen meanwhile, return what to log, if anything."""
        if late_s < STALL_S:
            return None
        if now_s - self._told_at_s < LINE_INTERVAL_S:
            self._more += 1
            self._longest_s = max(self._longest_s, late_s)
            return None
        stall = Stall(late_s, doing or "not seen", self._more, self._longest_s)
        self._told_at_s, self._more, self._longest_s = now_s, 0, 0.0
        return stall


class LoopWatch:
    """Watches the event loop in whose thread it is started.

    :param now_s: monotonic seconds.
    :param cpu_s: seconds of computing that this process has used; the system's count if None.
    """

    def __init__(self, now_s: Callable[[], float], cpu_s: Callable[[], float] | None = None) -> None:
        self._now_s = now_s
        self._cpu_s = cpu_s or _cpu_s
        self._record = StallRecord()
        self.lags = Histogram(LAG_BOUNDS_S)
        """How late the loop answered, in seconds, each time that it was found at work."""
        self._due_s = 0.0
        """When the next look is due; `look` may get to run later."""
        self._cpu_at_look_s = 0.0
        self._asked_s: float | None = None
        """Since when an answer of the loop is waited for."""
        self._idle_looks = 0
        self._seen: str | None = None
        """What the loop did while its answer was late."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread_id = 0
        self._ending = threading.Lock()

    def start(self) -> None:
        """Begin to watch."""
        self.attach()
        self._ending.acquire()  # whoever waits for it waits until `stop`
        threading.Thread(target=self._look_on, name="loop watch", daemon=True).start()

    def attach(self) -> None:
        """Begin to watch, with looks that the caller takes."""
        self._loop = asyncio.get_running_loop()
        self._thread_id = threading.get_ident()
        self._expect_look()

    def stop(self) -> None:
        """Watch no longer."""
        self._loop = None
        if self._ending.locked():
            self._ending.release()

    def look(self, stack: Callable[[], FrameType | None]) -> None:
        """Called by another thread, `look_s` after the look before: ask the loop if it is at work, and note what it
        does if it is late.

        :param stack: returns where the loop's thread is.
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
        """How long after a look the next one is due."""
        return REST_LOOK_S if self._idle_looks >= REST_LOOKS else LOOK_S

    def _look_at(self, frame: FrameType | None, now_s: float) -> None:
        late_s, computed_s = now_s - self._due_s, self._cpu_s() - self._cpu_at_look_s
        was_held_up = late_s >= STALL_S / 2 and computed_s > late_s / 2
        if is_idle(frame):
            self._idle_looks += 1
            if was_held_up:
                self._tell(late_s, IDLE)
            return
        since_s = self._due_s if was_held_up else now_s
        if self._idle_looks >= REST_LOOKS:
            # Nobody else has computed anything since the last look. What only waits began at any time since then.
            since_s = now_s - max(min(computed_s, late_s + REST_LOOK_S), REST_LOOK_S / 2)
        self._idle_looks = 0
        self._seen = describe(frame) if now_s - since_s >= STALL_S / 2 else None
        self._ask(since_s)

    def _ask(self, asked_s: float) -> None:
        self._asked_s = asked_s
        loop = self._loop
        if loop is not None:
            with contextlib.suppress(RuntimeError):  # it was closed meanwhile
                loop.call_soon_threadsafe(self._answer)

    def _answer(self) -> None:
        """Called on the loop, as soon as it could."""
        asked_s, seen = self._asked_s, self._seen
        if asked_s is not None:
            late_s = self._now_s() - asked_s
            self.lags.observe(late_s)
            self._tell(late_s, seen)
        self._asked_s = None  # last: from here on `look` may ask again

    def _tell(self, late_s: float, seen: str | None) -> None:
        stall = self._record.note(self._now_s(), late_s, seen)
        if stall:
            log.warning("%s", stall, extra=event(LogEvent.LOOP_STALLED))

    def _expect_look(self) -> None:
        self._due_s = self._now_s() + self.look_s
        self._cpu_at_look_s = self._cpu_s()

    def _look_on(self) -> None:
        while not self._ending.acquire(timeout=self.look_s):
            self.look(lambda: sys._current_frames().get(self._thread_id))


def _cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def is_idle(frame: FrameType | None) -> bool:
    """Whether a thread that runs an event loop waits for something to do."""
    if frame is None:
        return True
    path = frame.f_code.co_filename
    return path.endswith("selectors.py") or path.rpartition("/")[0].endswith("asyncio")


def describe(frame: FrameType | None) -> str:
    """Tell in one line where a thread is: the innermost functions first."""
    places: list[str] = []
    while frame is not None and len(places) < FRAMES_MAX:
        code = frame.f_code
        places.append(f"{code.co_qualname} ({Path(code.co_filename).name}:{frame.f_lineno})")
        frame = frame.f_back
    return " < ".join(places) or "nothing"
