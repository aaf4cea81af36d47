"""The event loop in virtual time: when nothing is left to do at an instant, it is the next one at once.

It is a loop of asyncio without sockets, and a lean one, since a run does little else than go round it: timers are
compared in C, and whether the host of a callback is there to run it is asked in the loop itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import heapq
import sys
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Protocol
from unittest import mock

MOST_STEPS = 5_000_000
"""A hundred times what a run takes: one that takes more goes round in circles."""
INSTANT_STEPS, TICK_S = 1_000, 0.000_001
"""Time passes after so many steps at one instant, as it does on machines. A host whose clock is slow would else wait
for ever for what is less ahead than the loop's time can tell."""


class DeadlockError(Exception):
    """Nothing is left to happen, and the run has not ended."""


class EndlessError(Exception):
    """So much has happened that the run will not end."""


class DiedError(BaseException):
    """The host of what runs has died within it. Nothing that runs there may catch it and go on."""


class Home(Protocol):
    """What the loop knows of a host."""

    is_running: bool
    """Whether it is alive, and not stopped."""

    def hold(self, due: Due) -> None:
        """Keep what was due while it was not running, or forget it."""


HOST: contextvars.ContextVar[Any] = contextvars.ContextVar("host", default=None)
"""The host that whatever runs belongs to."""


class Due:
    """What is called later: `asyncio.Handle` and `asyncio.TimerHandle` in one."""

    __slots__ = ("_when_s", "args", "callback", "context", "host")

    def __init__(
        self,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: contextvars.Context | None,
        when_s: float = 0.0,
    ) -> None:
        if context is None:
            self.context = contextvars.copy_context()
            self.host: Home | None = HOST.get()
        else:
            self.context = context
            self.host = context.get(HOST)
        self.callback: Callable[..., object] | None = callback
        self.args = args
        self._when_s = when_s

    def cancel(self) -> None:
        self.callback = None
        self.args = ()

    def cancelled(self) -> bool:
        return self.callback is None

    def when(self) -> float:
        return self._when_s


class _NumberedTask(asyncio.Task[Any]):
    """A task whose place in a set does not depend on where it is in memory: sets of tasks are gone through, too."""

    def __init__(self, number: int, coro: Any, **options: Any) -> None:
        # Before anything else: a task adds itself to the set of all tasks.
        self._number = number
        super().__init__(coro, **options)

    def __hash__(self) -> int:
        return self._number


class SimulatedLoop(asyncio.BaseEventLoop):
    """An event loop without sockets, whose time passes when nothing is left to do at the present one."""

    def __init__(self) -> None:
        super().__init__()
        self._now_s = 0.0
        self._due_now: deque[Due] = deque()
        self._due_later: list[tuple[float, int, Due]] = []
        self._timers = 0
        self._tasks = 0
        self.steps = 0
        """How much has happened."""
        self._look_at_step = min(INSTANT_STEPS, MOST_STEPS)
        self.unhandled: list[dict[str, Any]] = []
        """Errors that nobody has caught."""
        # Asked for as often as anything of a loop: so no code of Python runs for it.
        self.create_future = functools.partial(asyncio.Future, loop=self)  # type: ignore[method-assign]

    get_debug = staticmethod(bool)  # type: ignore[assignment]
    """False: each future and each task asks for it."""

    @contextlib.contextmanager
    def found_quickly(self) -> Iterator[None]:
        """Have those who ask for the running loop told without a look: before Python 3.12 that is a call of the system
        each time, for the process' number, and a run asks ten thousand times."""
        if sys.version_info >= (3, 12):
            yield
            return

        def found() -> SimulatedLoop:  # a mock would take as long as the call
            return self

        with (
            mock.patch.object(asyncio, "get_running_loop", found),
            mock.patch.object(asyncio.events, "get_running_loop", found),
        ):
            yield

    def time(self) -> float:
        return self._now_s

    # asyncio calls these for every step of a task, every callback of a future and every timer.

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> Due:
        due = Due(callback, args, context)
        self._due_now.append(due)
        return due

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> Due:
        due = Due(callback, args, context, when)
        self._timers += 1  # of two at one instant the one that was asked for first comes first
        heapq.heappush(self._due_later, (when, self._timers, due))
        return due

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> Due:
        when_s = self._now_s + delay
        due = Due(callback, args, context, when_s)
        self._timers += 1
        heapq.heappush(self._due_later, (when_s, self._timers, due))
        return due

    def call_again(self, dues: list[Due]) -> None:
        """Have done what a host had held up."""
        self._due_now.extend(dues)

    def create_task(  # type: ignore[override]
        self, coro: Any, *, name: str | None = None, context: contextvars.Context | None = None
    ) -> asyncio.Task[Any]:
        self._tasks += 1
        return _NumberedTask(self._tasks, coro, loop=self, name=name, context=context)

    def _run_once(self) -> None:
        """Run until told to stop: `run_forever` would do no more in between than look whether it was."""
        due_now = self._due_now
        while not self._stopping:  # type: ignore[attr-defined]
            due = due_now.popleft() if due_now else self._next_later()
            callback = due.callback
            if callback is None:
                continue
            host = due.host
            if host is not None and not host.is_running:
                host.hold(due)
                continue
            self.steps = steps = self.steps + 1
            if steps > self._look_at_step:
                self._pass_time()
            try:
                due.context.run(callback, *due.args)
            except (SystemExit, KeyboardInterrupt):
                raise
            except DiedError:
                continue
            except BaseException as error:  # noqa: BLE001 - as asyncio does
                self.call_exception_handler({"message": f"in {callback!r}", "exception": error})

    def _next_later(self) -> Due:
        """Let time pass until the next timer."""
        if not self._due_later:
            raise DeadlockError("nothing is left to happen")
        when_s, _, due = heapq.heappop(self._due_later)
        if due.callback is not None and when_s > self._now_s:
            self._now_s = when_s
            look_at_step = self.steps + INSTANT_STEPS
            self._look_at_step = look_at_step if look_at_step < MOST_STEPS else MOST_STEPS
        return due

    def _pass_time(self) -> None:
        """Let the least time pass, after much has happened at an instant.

        :raises EndlessError: too much has happened in all.
        """
        if self.steps > MOST_STEPS:
            raise EndlessError(f"{MOST_STEPS} steps, and no end")
        self._now_s += TICK_S
        self._look_at_step = min(self.steps + INSTANT_STEPS, MOST_STEPS)
        while self._due_later and self._due_later[0][0] <= self._now_s:
            self._due_now.append(heapq.heappop(self._due_later)[2])

    def _write_to_self(self) -> None:
        """Wakes a loop that waits; this one never does."""

    def close(self) -> None:
        self._due_now.clear()
        self._due_later.clear()
        super().close()

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        """Errors that nobody looks at are errors of the run, unless their host is dead."""
        if isinstance(context.get("exception"), DiedError):
            return
        if not context.get("message", "").startswith("Task was destroyed"):  # of a host that was killed
            self.unhandled.append(context)
