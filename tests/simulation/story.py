"""One run: a cluster, clients, what befalls them, and what has to hold all the time and at the end.

Whole brokers in one process, in virtual time, from a seed: the code of production, and a world that is made for it.
`world` has the loop, the clocks and the hosts; `network`, `disk` and `ensemble` what they share; `cluster` puts brokers
into it, `clients` use them, `nemesis` decides what befalls them, and `invariants` looks at all of it.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from barnabas.model import TopicPartition
from barnabas.testing.history import History, Report, check
from tests.simulation.clients import SimulatedClient, SimulatedProducer, SimulatedReader
from tests.simulation.cluster import SimulatedCluster
from tests.simulation.invariants import Invariants
from tests.simulation.nemesis import Nemesis
from tests.simulation.world import Host, HostClock, World

TOPIC = "numbers"
HEAL_S = 60.0
END_S = 60.0
START_S = 60.0


@dataclass
class Result:
    """What came of a run.

    :param report: what the history's check found.
    :param broken: invariants that did not hold, and errors that nobody caught.
    """

    seed: int
    story: list[tuple[float, str]]
    report: Report | None
    broken: list[str]
    simulated_s: float

    @property
    def ok(self) -> bool:
        return not self.broken and self.report is not None and self.report.ok

    def told(self) -> str:
        """Return what happened, for whoever looks into a failure."""
        lines = [f"seed {self.seed}", *self.broken]
        if self.report is not None:
            lines += [f"{finding.anomaly}, {finding.count}: {finding.example}" for finding in self.report.findings]
            lines += [f"not read to its end: {place}" for place in self.report.unread]
        return "\n".join([*lines, *(f"{at:9.3f}  {what}" for at, what in self.story)])


class Story:
    """A run from a seed; which faults there are, how often and with what settings is drawn from it as well."""

    def __init__(
        self, seed: int, folder: Path, seconds: float = 60.0, plant: Callable[[SimulatedCluster], Any] | None = None
    ) -> None:
        self.world = World(seed)
        draw = self.world.random
        self.seconds = seconds
        settings = {
            "replica_lag_time_max_ms": draw.choice([2_000, 5_000]),
            "replica_high_watermark_checkpoint_interval_ms": draw.choice([100, 1_000, 5_000]),
            "log_flush_interval_messages": draw.choice([1, 10, 1_000_000]),
            "auto_leader_rebalance_enable": draw.random() < 0.5,
            "leader_imbalance_check_interval_seconds": 5,
        }
        self.cluster = SimulatedCluster(self.world, draw.choice([3, 3, 4, 5]), settings)
        if plant is not None:
            plant(self.cluster)
        self.places = [TopicPartition(TOPIC, number) for number in range(draw.randint(1, 3))]
        self.path = folder / f"history-{seed}"
        self.invariants = Invariants(self.cluster)

    def run(self) -> Result:
        """Run it to its end."""
        loop = self.world.loop
        self.history = History(self.path, HostClock(loop, rate=1.0, ahead_ms=0))
        try:
            complete = loop.run_until_complete(self._whole())
            if not complete:
                self.invariants.broken.append("the cluster did not come back after all faults had ended")
        except Exception as error:  # noqa: BLE001 - it is what the run came to
            self.invariants.broken.append(f"the run ended with {error!r}")
        self.history.close()
        for context in loop.unhandled:
            self.invariants.broken.append(f"nobody caught: {context.get('message')} {context.get('exception')!r}")
        report = check(self.path)
        self.path.unlink()
        return Result(self.world.seed, self.world.story, report, self.invariants.broken, loop.time())

    async def _whole(self) -> bool:
        cluster, loop, draw = self.cluster, self.world.loop, self.world.random
        cluster.start()
        admin = SimulatedClient(cluster, "admin", (TOPIC,))
        configs = {"min.insync.replicas": "2", "unclean.leader.election.enable": "false"}
        await self._on(admin.host, admin.create_topic(TOPIC, len(self.places), 3, configs))
        self.world.tell("the topic is made")
        self.invariants.begin(self.places)
        producers = [
            SimulatedProducer(cluster, f"producer {number}", place, self.history)
            for place in self.places
            for number in range(draw.randint(1, 2))
        ]
        for number, producer in enumerate(producers):
            producer.name = producer.host.name = f"producer {number}"
        readers = [
            SimulatedReader(cluster, f"reader {number}", place, self.history)
            for number, place in enumerate(self.places)
        ]
        pace = draw.choice([0.01, 0.05, 0.2])
        running = [each.host.task(each.run(lambda: draw.uniform(0, 2 * pace))) for each in producers]
        running += [each.host.task(each.run()) for each in readers]
        nemesis = Nemesis(cluster, self.invariants)
        await nemesis.trouble(self.seconds)
        nemesis.heal()
        self.world.tell("all faults have ended")
        for producer in producers:
            producer.is_done = True
        for reader in readers:
            reader.is_done = True
        for task in running:
            await task
        end_s = loop.time() + HEAL_S
        while loop.time() < end_s and not self.invariants.is_whole():  # noqa: ASYNC110 - looked at from outside
            await asyncio.sleep(0.5)
        self.invariants.check_equal()
        whole = self.invariants.is_whole()
        for number, place in enumerate(self.places):
            last = SimulatedReader(cluster, f"end {number}", place, self.history, final=True)
            whole = await self._on(last.host, last.read_to_the_end(END_S)) and whole
        return whole

    async def _on(self, host: Host, work: Any) -> Any:
        return await host.task(work)


def run(seed: int, seconds: float = 60.0, plant: Callable[[SimulatedCluster], Any] | None = None) -> Result:
    """Run a story from a seed."""
    gc.collect()
    gc.disable()  # what the dead leave behind is freed at no instant of the run
    with tempfile.TemporaryDirectory() as folder:
        story = Story(seed, Path(folder), seconds, plant)
        try:
            return story.run()
        finally:
            story.world.end()
            gc.enable()


def run_quietly(arguments: tuple[int, float]) -> Result:
    """Do the same for many, in a process of its own: seed and seconds."""
    logging.disable(logging.CRITICAL)
    return run(*arguments)
