"""The loop in virtual time, and the hosts in it, each with a clock of its own: killed or stopped at any await.

Everything that runs belongs to a host by its context (`contextvars`). When the host is dead nothing of it runs any
more: no task goes on, no `finally`, no timer. While it is stopped, what is due waits, as with SIGSTOP.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
import random
from collections.abc import Callable
from typing import Any

from barnabas.broker.pipeline.call import LaterReply
from barnabas.clock import Clock
from tests.simulation.loop import HOST, Due, SimulatedLoop

EPOCH_MS = 1_700_000_000_000
INSIDER = "insider"
"""The identity of brokers and of usual clients. It is a super user."""


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

    def since_boot(self) -> float:
        return self.monotonic()

    def expiry_ms(self) -> int | None:
        return self.time_ms()

    def stored_ms(self) -> int:
        return self.time_ms()


class Host:
    """A machine's process: one life of it, from its start to its death.

    :param name: what others call it.
    :param identity: the common name of its certificate, where brokers have ACLs.
    """

    def __init__(self, world: World, name: str, clock: Clock, identity: str = INSIDER) -> None:
        self.world = world
        self.name = name
        self.identity = identity
        self.clock = clock
        self.is_alive = self.is_running = True
        self.is_stopped = False
        self._held: list[Due] = []
        self.context = contextvars.copy_context()
        self.context.run(HOST.set, self)
        self.on_death: list[Callable[[], None]] = []
        world.hosts.append(self)

    def hold(self, due: Due) -> None:
        """Keep what is due while this host is stopped; of a dead one nothing is due any more."""
        if self.is_stopped:
            self._held.append(due)

    def task(self, work: Any) -> asyncio.Task[Any]:
        """Begin a task on this host."""
        return self.world.loop.create_task(work, context=self.context)

    def soon(self, callback: Callable[..., object], *args: Any) -> None:
        """Have something done on this host at once, but not within what is being done."""
        self.world.loop.call_soon(callback, *args, context=self.context)

    def after(self, delay_s: float, callback: Callable[..., object], *args: Any) -> Due:
        """Have something done on this host after a while."""
        return self.world.loop.call_later(delay_s, callback, *args, context=self.context)

    def kill(self) -> None:
        """Nothing of it happens any more."""
        self.world.keep_tasks()
        self.is_alive = self.is_stopped = self.is_running = False
        self._held.clear()
        for call in self.on_death:
            call()
        self.on_death.clear()

    def stop(self) -> None:
        """Let nothing happen until `run_slice`."""
        self.is_stopped = True
        self.is_running = False

    def go_on(self) -> None:
        """Do all that was due in between."""
        self.is_stopped = False
        self.is_running = self.is_alive
        held, self._held = self._held, []
        self.world.loop.call_again(held)


class World:
    """The loop, and chance."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.loop = SimulatedLoop()
        self.scale = 1.0
        """What all timeouts and the lengths of all faults are multiplied by; what disks and networks take is not."""
        self.hosts: list[Host] = []
        self.story: list[tuple[float, str]] = []
        self.at_end: list[Callable[[], None]] = []
        """Called when everything is let go."""
        self._kept: set[asyncio.Task[Any]] = set()

    def keep_tasks(self) -> None:
        """Keep all tasks there are, since some of them are about to be of a dead host.

        Once freed, they would run their `finally`.
        """
        self._kept |= asyncio.all_tasks(self.loop)

    def end(self) -> None:
        """Let everything go, with all that was never ended, as one leaves a game."""
        self.keep_tasks()
        for host in self.hosts:
            host.is_alive = host.is_running = False
        for call in self.at_end:
            call()
        self.loop.close()
        for task in self._kept:
            # Their `finally` finds a loop that is closed; whatever it says to that is of no interest.
            with contextlib.suppress(Exception):
                _close(task.get_coro())
        self._kept.clear()
        self.hosts.clear()

    def tell(self, what: str) -> None:
        """Add a line to the story of this run."""
        self.story.append((self.loop.time(), what))


def _close(work: Any) -> None:
    """Close a coroutine, and what it would have waited for: Python complains of what was made and never begun."""
    if inspect.iscoroutine(work) and inspect.getcoroutinestate(work) == inspect.CORO_CREATED:
        for given in list(work.cr_frame.f_locals.values()):
            for each in given if isinstance(given, list | tuple) else (given,):
                awaited = each.later if isinstance(each, LaterReply) else each
                if inspect.iscoroutine(awaited):
                    _close(awaited)
    work.close()
