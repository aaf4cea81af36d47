"""What some runs have beside the plain producers and readers: a kind of use, with what has to hold for it."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar

from barnabas.errors import BarnabasError
from barnabas.laboratory.history import History
from barnabas.model import TopicPartition
from tests.simulation.clients import SimulatedClient
from tests.simulation.cluster import SimulatedCluster
from tests.simulation.invariants import Invariants
from tests.simulation.world import Host

REPLICAS = 3
SAFE = {"min.insync.replicas": "2", "unclean.leader.election.enable": "false"}
LOOK_S = 0.5
LEAST_END_S = 20.0
"""So long the end of a run is waited for whatever its scale: files are deleted after seconds that have none."""


class Workload(ABC):
    """One of them, in one run.

    :cvar settings: of the brokers, where this needs others than a run has.
    """

    settings: ClassVar[dict[str, Any]] = {}

    def __init__(self, cluster: SimulatedCluster, history: History, invariants: Invariants) -> None:
        self.cluster = cluster
        self.world = cluster.world
        self.history = history
        self.invariants = invariants
        self._tasks: list[tuple[Host, asyncio.Task[Any]]] = []

    @abstractmethod
    async def begin(self, topic: str, partitions: int) -> None:
        """Begin, when the topic of the plain producers is made."""

    @abstractmethod
    def heal(self) -> None:
        """End the faults that are this one's own; nothing is changed any more from now on."""

    async def settle(self) -> None:  # noqa: B027 - most send nothing there
        """Return when nothing of this one's is on its way to the plain producers' places any more."""

    @abstractmethod
    async def finish(self, at_end: Mapping[TopicPartition, list[int]]) -> bool:
        """Check what has to hold at the end; return whether all has come back.

        :param at_end: the offsets of all records of the plain producers.
        """

    @classmethod
    def watching(cls) -> AbstractContextManager[None]:
        """Return what surrounds a run with this workload, from before the brokers start."""
        return nullcontext()

    def start(self, host: Host, work: Any) -> asyncio.Task[Any]:
        """Begin a task of this one on a host."""
        task = host.task(work)
        self._tasks.append((host, task))
        return task

    async def end_tasks(self) -> None:
        """Return when all tasks on hosts that live have ended; tell of those that nobody foresaw to fail."""
        for host, task in self._tasks:
            if host.is_alive:
                await asyncio.wait({task})
            if task.done() and not task.cancelled() and task.exception() is not None:
                self.say(f"{host.name}: {task.exception()!r}")
        self._tasks.clear()

    async def on(self, client: SimulatedClient, work: Any) -> Any:
        """Have something done on a client's host."""
        return await client.host.task(work)

    async def until(
        self, holds: Callable[[], Awaitable[bool]], timeout_s: float, asker: SimulatedClient | None = None
    ) -> bool:
        """Wait until something holds that brokers are asked for; return whether it came to that.

        :param timeout_s: how long at most, at a scale of one.
        :param asker: who asks them, and has to learn who leads now when one refuses.
        """
        loop = self.world.loop
        end_s = loop.time() + max(timeout_s * self.world.scale, LEAST_END_S)
        while True:
            try:
                if await holds():
                    return True
            except BarnabasError as error:
                self.world.tell(f"while waiting: {error}")
                if asker is not None:
                    await asker.again()
            if loop.time() > end_s:
                return False
            await asyncio.sleep(LOOK_S)

    def say(self, what: str) -> None:
        """Tell what has been broken."""
        self.invariants.say(what)
