"""The loop in virtual time, and the hosts in it, each with a clock of its own: killed or stopped at any await.

Everything that runs belongs to a host by its context (`contextvars`). When the host is dead nothing of it runs any
more: no task goes on, no `finally`, no timer. While it is stopped, what is due waits, as with SIGSTOP.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import random
from collections.abc import Callable
from typing import Any

from barnabas.clock import Clock

HOST: contextvars.ContextVar[Host | None] = contextvars.ContextVar("host", default=None)

EPOCH_MS = 1_700_000_000_000
RESOLUTION_S = 1e-7


class DeadlockError(Exception):
    """Nothing is left to happen, and the run has not ended."""


class _Selector:
    """Where the loop would wait for sockets: time passes at once."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[Any]:
        if timeout is None:
            raise DeadlockError("nothing is left to happen")
        if timeout > 0:
            self._loop.pass_time(timeout)
        return []

    def get_map(self) -> dict[int, Any]:
        return {}


class SimulatedLoop(asyncio.BaseEventLoop):
    """An event loop without sockets, whose time passes when nothing is left to do at the present one."""

    def __init__(self) -> None:
        super().__init__()
        self._now_s = 0.0
        self._clock_resolution = RESOLUTION_S
        self._selector = _Selector(self)
        self.unhandled: list[dict[str, Any]] = []
        """Errors that nobody has caught."""
        self.set_task_factory(_begin_task)

    def time(self) -> float:
        return self._now_s

    def pass_time(self, seconds: float) -> None:
        self._now_s += seconds

    def _process_events(self, events: list[Any]) -> None:
        assert not events

    def _write_to_self(self) -> None:
        """Wakes a loop that waits; this one never does."""

    # The parts of asyncio call these two for every step of a task, every callback of a future and every timer.

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        host = HOST.get() if context is None else context.get(HOST)
        if host is not None:
            return super().call_soon(host.run, callback, args, context=context)
        return super().call_soon(callback, *args, context=context)

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        host = HOST.get() if context is None else context.get(HOST)
        if host is not None:
            return super().call_at(when, host.run, callback, args, context=context)
        return super().call_at(when, callback, *args, context=context)

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        """Errors that nobody looks at are errors of the run, unless their host is dead."""
        if not context.get("message", "").startswith("Task was destroyed"):  # of a host that was killed
            self.unhandled.append(context)


def _begin_task(
    loop: asyncio.AbstractEventLoop, work: Any, context: contextvars.Context | None = None
) -> asyncio.Task[Any]:
    """Make a task that its host knows."""
    task = asyncio.Task(work, loop=loop, context=context)
    host = HOST.get() if context is None else context.get(HOST)
    if host is not None:
        host.tasks.add(task)
        task.add_done_callback(host.tasks.discard)
    return task


class HostClock:
    """The clock of one host: it may be wrong, and too fast or too slow."""

    def __init__(self, loop: SimulatedLoop, rate: float, ahead_ms: int) -> None:
        self._loop = loop
        self.rate = rate
        self.ahead_ms = ahead_ms

    def time_s(self) -> float:
        return (EPOCH_MS + self.ahead_ms) / 1000 + self._loop.time() * self.rate

    def time_ms(self) -> int:
        return int(self.time_s() * 1000)

    def monotonic(self) -> float:
        return self._loop.time() * self.rate


class Host:
    """A machine's process: one life of it, from its start to its death.

    :param name: what others call it.
    """

    def __init__(self, world: World, name: str, clock: Clock) -> None:
        self.world = world
        self.name = name
        self.clock = clock
        self.is_alive = True
        self.is_stopped = False
        self._waiting: list[tuple[contextvars.Context, Callable[..., object], tuple[Any, ...]]] = []
        self.context = contextvars.copy_context()
        self.context.run(HOST.set, self)
        self.on_death: list[Callable[[], None]] = []
        self.tasks: set[asyncio.Task[Any]] = set()
        """Those that have not ended. Of the dead they are kept: once freed, they would run their `finally`."""
        world.hosts.append(self)

    def run(self, callback: Callable[..., object], args: tuple[Any, ...]) -> None:
        """Do what is due, if this host is there to do it."""
        if self.is_stopped:
            self._waiting.append((contextvars.copy_context(), callback, args))
        elif self.is_alive:
            callback(*args)

    def task(self, work: Any) -> asyncio.Task[Any]:
        """Begin a task on this host."""
        return self.world.loop.create_task(work, context=self.context)

    def after(self, delay_s: float, callback: Callable[..., object], *args: Any) -> asyncio.TimerHandle:
        """Have something done on this host after a while."""
        return self.world.loop.call_later(delay_s, callback, *args, context=self.context)

    def kill(self) -> None:
        """Nothing of it happens any more."""
        self.is_alive = self.is_stopped = False
        self._waiting.clear()
        for call in self.on_death:
            call()
        self.on_death.clear()

    def stop(self) -> None:
        """Let nothing happen until `go_on`."""
        self.is_stopped = True

    def go_on(self) -> None:
        """Do all that was due in between."""
        self.is_stopped = False
        waiting, self._waiting = self._waiting, []
        for context, callback, args in waiting:
            self.world.loop.call_soon(callback, *args, context=context)


class World:
    """The loop, and chance."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.loop = SimulatedLoop()
        self.hosts: list[Host] = []
        self.story: list[tuple[float, str]] = []

    def end(self) -> None:
        """Let everything go, with all that was never ended, as one leaves a game."""
        for host in self.hosts:
            host.kill()
        self.loop.close()
        for host in self.hosts:
            for task in list(host.tasks):
                # Their `finally` finds a loop that is closed; whatever it says to that is of no interest.
                with contextlib.suppress(Exception):
                    task.get_coro().close()  # type: ignore[union-attr]
            host.tasks.clear()
        self.hosts.clear()

    def tell(self, what: str) -> None:
        """Add a line to the story of this run."""
        self.story.append((self.loop.time(), what))
