"""Watches the event loop: says in the log when it stood still, for how long, and over what.

A timer on the loop is due at regular times (a beat); how late it comes is how long everybody waited. A thread looks on:
when a beat is late, it notes the stack of the loop's thread. Together they cost a few dozen wake-ups a second. If the
loop was idle and the process merely did not get to run, the machine is to blame, and nothing is logged.

One line for the first stall, then at most one in `LINE_INTERVAL_S`, which counts those in between.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import NamedTuple

STALL_S = 0.05
"""A stall that is worth a line: as long as a client may have to wait for another one."""
BEAT_S = 0.02
LINE_INTERVAL_S = 10.0
FRAMES_MAX = 6
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
        """Given how late a beat came and what was seen meanwhile, return what to log, if anything."""
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
        self._cpu_at_beat_s = 0.0
        self._record = StallRecord()
        self._due_s = 0.0
        self._seen: tuple[float, str] = (0.0, "")
        """What the loop did when a beat was late, and when that was due."""
        self._timer: asyncio.TimerHandle | None = None
        self._thread_id = 0
        self._stopped = threading.Event()

    def start(self) -> None:
        """Begin to watch."""
        self._thread_id = threading.get_ident()
        self._next_beat()
        threading.Thread(target=self._look_on, name="loop watch", daemon=True).start()

    def stop(self) -> None:
        """Watch no longer."""
        self._stopped.set()
        if self._timer:
            self._timer.cancel()

    def beat(self) -> None:
        """Called on the loop, at the time of the beat or as soon after it as the loop could."""
        now_s = self._now_s()
        due_s, doing = self._seen
        late_s = now_s - self._due_s
        seen = doing if due_s == self._due_s else None
        if seen != IDLE or self._cpu_s() - self._cpu_at_beat_s > late_s / 2:
            stall = self._record.note(now_s, late_s, seen)
            if stall:
                log.warning("%s", stall)
        self._next_beat()

    def look(self, stack: Callable[[], FrameType | None]) -> None:
        """Called in between, by another thread: note what the loop does, once it is late."""
        due_s = self._due_s
        if self._seen[0] != due_s and self._now_s() - due_s >= STALL_S / 2:
            frame = stack()
            self._seen = due_s, IDLE if is_idle(frame) else describe(frame)

    def _next_beat(self) -> None:
        self._due_s = self._now_s() + BEAT_S
        self._cpu_at_beat_s = self._cpu_s()
        self._timer = asyncio.get_running_loop().call_later(BEAT_S, self.beat)

    def _look_on(self) -> None:
        while not self._stopped.wait(BEAT_S):
            self.look(lambda: sys._current_frames().get(self._thread_id))


def _cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def is_idle(frame: FrameType | None) -> bool:
    """Whether a thread that runs an event loop waits for something to do."""
    if frame is None:
        return True
    path = Path(frame.f_code.co_filename)
    return path.name == "selectors.py" or path.parent.name == "asyncio"


def describe(frame: FrameType | None) -> str:
    """Tell in one line where a thread is: the innermost functions first."""
    places: list[str] = []
    while frame is not None and len(places) < FRAMES_MAX:
        code = frame.f_code
        places.append(f"{code.co_qualname} ({Path(code.co_filename).name}:{frame.f_lineno})")
        frame = frame.f_back
    return " < ".join(places) or "nothing"
