"""One run: a cluster, clients, what befalls them, and what has to hold all the time and at the end.

Whole brokers in one process, in virtual time, from a seed: the code of production, and a world that is made for it.
`world` has the loop, the clocks and the hosts; `network`, `disk` and `ensemble` what they share; `cluster` puts brokers
into it, `clients` use them, `nemesis` decides what befalls them, and `invariants` looks at all of it.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import random
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from barnabas.broker import life_counters
from barnabas.errors import BarnabasError
from barnabas.laboratory.history import History, Report, check
from barnabas.model import TopicPartition
from tests.simulation.acls import Acls
from tests.simulation.clients import SimulatedClient, SimulatedProducer, SimulatedReader
from tests.simulation.cluster import SimulatedCluster
from tests.simulation.compaction import Compaction
from tests.simulation.counters import Counters
from tests.simulation.drawing import draw_plan
from tests.simulation.groups import Groups
from tests.simulation.invariants import Invariants
from tests.simulation.moves import Moves
from tests.simulation.nemesis import Nemesis
from tests.simulation.owners import Owners
from tests.simulation.pipelined import Pipelined
from tests.simulation.plan import Plan
from tests.simulation.retention import Retention
from tests.simulation.topics import Topics
from tests.simulation.workload import Workload
from tests.simulation.world import Host, HostClock, World

TOPIC = "numbers"
HEAL_S = 60.0
END_S = 60.0
"""At a scale of one."""
LEAST_S, MOST_S = 6.0, 10.0
"""Of faults."""
SCALES = {0.15: 4, 0.25: 4, 0.4: 2, 1.0: 0.5}
"""How long a run's timeouts and faults are, and how often: short ones find the same with less to simulate."""

WORKLOADS: dict[str, type[Workload]] = {
    "groups": Groups,
    "compaction": Compaction,
    "topics": Topics,
    "retention": Retention,
    "moves": Moves,
    "owners": Owners,
    "pipelined": Pipelined,
    "counters": Counters,
    "acls": Acls,
}
"""What there may be beside plain producers and readers."""
SHARE = 0.2
"""Of the runs, that each workload is in."""


def drawn(seed: int) -> tuple[str, ...]:
    """Return the workloads of a seed. They are drawn apart from all else, so that those without any go on as ever."""
    draw = random.Random(f"workloads of {seed}")
    return tuple(name for name in WORKLOADS if draw.random() < SHARE)


@dataclass
class Result:
    """What came of a run.

    :param report: what the history's check found.
    :param broken: invariants that did not hold, and errors that nobody caught or nobody foresaw.
    :param plan: what was to befall the cluster.
    """

    seed: int
    story: list[tuple[float, str]]
    report: Report | None
    broken: list[str]
    simulated_s: float
    plan: Plan

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
        self,
        seed: int,
        seconds: float | None = None,
        plant: Callable[[SimulatedCluster], Any] | None = None,
        plan: Plan | None = None,
        workloads: Sequence[str] | None = None,
    ) -> None:
        self.kinds = [WORKLOADS[name] for name in (drawn(seed) if workloads is None else workloads)]
        self.world = World(seed)
        draw = self.world.random
        scale = draw.choices(list(SCALES), list(SCALES.values()))[0]
        if plan is not None and plan.scale is not None:
            scale = plan.scale
        self.world.scale = scale
        seconds = draw.uniform(LEAST_S, MOST_S) if seconds is None else seconds
        settings = {
            "replica_lag_time_max_ms": int(draw.choice([2_000, 5_000]) * scale),
            "replica_high_watermark_checkpoint_interval_ms": int(draw.choice([500, 1_000, 5_000]) * scale),
            "log_flush_interval_messages": draw.choice([1, 10, 1_000_000]),
            "auto_leader_rebalance_enable": draw.random() < 0.5,
            "leader_imbalance_check_interval_seconds": max(1, round(5 * scale)),
        }
        self.ends_with: type[BaseException] = Exception
        """What else ends a run early, and not all of them."""
        for kind in self.kinds:
            settings.update(kind.settings)
        settings.update(plan.settings if plan is not None else ())
        machines = draw.choice([3, 3, 4, 5])
        if plan is not None and plan.machines is not None:
            machines = plan.machines
        self.cluster = SimulatedCluster(self.world, machines, settings)
        if plant is not None:
            plant(self.cluster)
        self.places = [TopicPartition(TOPIC, number) for number in range(draw.randint(1, 3))]
        # A folder for each would take longer than the check of what is in it.
        self.path = Path(tempfile.gettempdir(), f"barnabas-simulation-{os.getpid()}-{seed}.history")
        self.invariants = Invariants(self.cluster)
        brokers, session_s = len(self.cluster.machines), self.cluster.ensemble.session_timeout_s
        # An older copy of a disk has topics that were deleted since: they stay there, and in the way of new ones.
        self.plan = plan or draw_plan(seed, seconds, brokers, session_s, restores=Topics not in self.kinds)

    def run(self) -> Result:
        """Run it to its end."""
        loop = self.world.loop
        self.path.unlink(missing_ok=True)
        self.history = History(self.path, HostClock(loop, rate=1.0, ahead_ms=0))
        try:
            complete = loop.run_until_complete(self._whole())
            if not complete:
                self.invariants.broken.append("the cluster did not come back after all faults had ended")
        except (Exception, self.ends_with) as error:  # noqa: BLE001 - it is what the run came to
            self.invariants.broken.append(f"the run ended with {error!r}")
        self.history.close()
        for context in loop.unhandled:
            self.invariants.broken.append(f"nobody caught: {context.get('message')} {context.get('exception')!r}")
        report = check(self.path)
        self.path.unlink()
        broken = self.invariants.broken
        return Result(self.world.seed, self.world.story, report, broken, loop.time(), self.plan)

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
        workloads = [kind(cluster, self.history, self.invariants) for kind in self.kinds]
        for workload in workloads:
            self.world.tell(f"with {type(workload).__name__.lower()}")
            await workload.begin(TOPIC, len(self.places))
        # However many they are they send as much, since what is sent costs time, and what befalls it is looked for.
        pace = draw.choice([0.02, 0.05, 0.2]) * len(producers)
        running = [each.host.task(each.run(lambda: draw.uniform(0, 2 * pace))) for each in producers]
        running += [each.host.task(each.run()) for each in readers]
        nemesis = Nemesis(cluster, self.invariants, self.plan)
        await nemesis.trouble()
        nemesis.heal()
        for workload in workloads:
            workload.heal()
        self.world.tell("all faults have ended")
        for producer in producers:
            producer.is_done = True
        for reader in readers:
            reader.is_done = True
        for task in running:
            await task
        for workload in workloads:
            await workload.settle()
        end_s = loop.time() + HEAL_S * self.world.scale
        while loop.time() < end_s and not self.invariants.is_whole():  # noqa: ASYNC110 - looked at from outside
            await asyncio.sleep(0.5 * self.world.scale)
        self.invariants.check_equal()
        whole = self.invariants.is_whole()
        at_end: dict[TopicPartition, list[int]] = {}
        for number, place in enumerate(self.places):
            last = SimulatedReader(cluster, f"end {number}", place, self.history, final=True)
            whole = await self._on(last.host, last.read_to_the_end(END_S * self.world.scale)) and whole
            at_end[place] = last.offsets
        for workload in workloads:
            whole = await workload.finish(at_end) and whole
        return whole

    async def _on(self, host: Host, work: Any) -> Any:
        return await host.task(work)


def run(
    seed: int,
    seconds: float | None = None,
    plant: Callable[[SimulatedCluster], Any] | None = None,
    plan: Plan | None = None,
    workloads: Sequence[str] | None = None,
    ends_with: type[BaseException] = Exception,
) -> Result:
    """Run a story from a seed.

    :param seconds: of faults, in simulated time; drawn if it is not given.
    :param plan: what is to befall the cluster; drawn from the seed if there is none.
    :param workloads: what there is beside plain producers and readers; drawn from the seed if it is not given.
    :param ends_with: what ends the run early, from a signal's handler say; its story so far is returned.
    """
    collects = gc.isenabled()
    gc.collect()
    gc.disable()  # what the dead leave behind is freed at no instant of the run
    story = Story(seed, seconds, plant, plan, workloads)
    story.ends_with = ends_with
    try:
        with (
            ExitStack() as stack,
            story.invariants.watching(),
            story.world.loop.found_quickly(),
            _unforeseen_is_told(story.invariants),
            mock.patch.object(life_counters, "INTERVAL_S", life_counters.INTERVAL_S * story.world.scale),
        ):
            for kind in story.kinds:
                stack.enter_context(kind.watching())
            return story.run()
    finally:
        story.world.end()
        if collects:
            gc.enable()


@contextmanager
def _unforeseen_is_told(invariants: Invariants) -> Iterator[None]:
    """Have what brokers caught and logged break the run, if nobody can have foreseen it: they go on, as they should,
    and what they were about to do is never done."""
    logger, handler = logging.getLogger("barnabas"), _Unforeseen(invariants)
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
        logger.removeHandler(handler)


class _Unforeseen(logging.Handler):
    """Says of an error that was logged with its traceback that it breaks the run.

    Disks and connections that fail, and what Barnabas raises on purpose, are foreseen; so is a host that dies, which
    is no `Exception`.
    """

    def __init__(self, invariants: Invariants) -> None:
        super().__init__(logging.ERROR)
        self._invariants = invariants

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if not isinstance(error, Exception) or isinstance(error, OSError | BarnabasError):
            return
        self._invariants.say(f"nobody foresaw: {record.getMessage()}: {error!r}")
