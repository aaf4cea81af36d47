"""Counters on the coordinator runtime: the state machine of `tests/support/counter_machine.py`, on every broker.

No API reaches them, so each broker adds to the counters that it coordinates. An acknowledged value is never given again
and never gone back on; no counter counts what was refused; the state of a coordinator is that of its log; and counters
that nobody adds to expire, whichever broker coordinates them by then.
"""

from __future__ import annotations

import asyncio
import functools
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from barnabas.broker.broker import Broker
from barnabas.broker.coordinators.led_replica import InternalTopic
from barnabas.broker.coordinators.runtime import CoordinatorConfig, CoordinatorRuntime
from barnabas.broker.coordinators.shard import CoordinatorShard, Replay, replay_log
from barnabas.errors import ApiError, BarnabasError, ErrorCode
from barnabas.groups.hashing import partition_of
from barnabas.model import TopicPartition
from barnabas.state_machine import Append, Effects, Reply
from tests.simulation.clients import SimulatedClient
from tests.simulation.cluster import Machine
from tests.simulation.workload import REPLICAS, SAFE, Workload
from tests.support.counter_machine import COUNTERS, CounterMachine, CounterRecord

TOPIC = "counters"
PARTITIONS = 2
BUSY = ("one", "two", "three")
IDLE = ("idle 1", "idle 2")
"""These are added to seldom, and expire in between."""
IDLE_S, NEVER_S = 2.0, 1e6
TIMEOUT_S = 5.0
END_S = 60.0
WATCH_S = 0.1


class Add:
    """One addition to a counter.

    :param floor: the highest value that was acknowledged before it.
    """

    def __init__(self, name: str, floor: int) -> None:
        self.name = name
        self.floor = floor
        self.is_settled = False


class CounterLedger:
    """Knows of all additions how they ended.

    :param say: told what is broken.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self.highest: dict[str, int] = defaultdict(int)
        self._possible: dict[str, int] = defaultdict(int)
        """How many additions are acknowledged, or may be in the log."""
        self._answered: dict[str, set[int]] = defaultdict(set)

    def begin(self, name: str) -> Add:
        self._possible[name] += 1
        return Add(name, self.highest[name])

    def acknowledge(self, add: Add, value: int) -> None:
        name = add.name
        if value <= add.floor:
            self._say(f"counter {name}: {value} is answered after {add.floor} was")
        if value in self._answered[name]:
            self._say(f"counter {name}: {value} is answered twice")
        if value > self._possible[name]:
            self._say(f"counter {name}: {value} is answered, and {self._possible[name]} were added")
        self._answered[name].add(value)
        self.highest[name] = max(value, self.highest[name])

    def fail(self, add: Add) -> None:
        """An addition is not in the log."""
        if not add.is_settled:
            add.is_settled = True
            self._possible[add.name] -= 1


class LedgerMachine(CounterMachine):
    """Tells the ledger which additions are not in the log."""

    def __init__(self, ledger: CounterLedger, scale: float) -> None:
        super().__init__()
        self._ledger = ledger
        self._scale = scale
        self.adds: dict[Append[CounterRecord], Add] = {}

    def idle_s_of(self, name: str) -> float:
        return IDLE_S * self._scale if name in IDLE else NEVER_S

    def add_noted(self, now: float, waiter: Any, add: Add) -> Effects[CounterRecord]:
        effects = self.add(now, waiter, add.name, 1)
        self.adds[effects.appends[0]] = add
        return effects

    def failed(self, now: float, append: Append[CounterRecord], error: ApiError) -> Effects[CounterRecord]:
        if (add := self.adds.pop(append, None)) is not None:
            self._ledger.fail(add)
        return super().failed(now, append, error)


Shard = CoordinatorShard[LedgerMachine, CounterRecord]


class CounterBroker:
    """The runtime of the counters in one life of a broker, and what adds to them."""

    def __init__(self, counters: Counters, broker: Broker) -> None:
        self._counters = counters
        self._world = counters.world
        self._broker = broker
        topics, scale = broker.topics, self._world.scale
        self.runtime = CoordinatorRuntime[LedgerMachine, CounterRecord](
            InternalTopic(
                TOPIC,
                functools.partial(topics.get, TOPIC),
                self._never,
                functools.partial(topics.replicas.leaders_of_topic, TOPIC),
            ),
            lambda: LedgerMachine(counters.ledger, scale),
            COUNTERS,
            CoordinatorConfig(TIMEOUT_S * scale, 4_096),
            broker.clock,
            broker.scheduler,
            self._deliver,
            partition_of,
        )
        self.under_way = 0

    async def _never(self) -> None:
        raise AssertionError("the topic is there")

    def _deliver(self, reply: Reply) -> None:
        self.under_way -= 1
        if isinstance(reply.result, int):
            self._counters.ledger.acknowledge(reply.waiter, reply.result)

    async def run(self, pace_s: float) -> None:
        """Add to what is coordinated here, often several at once."""
        self.runtime.start()
        draw = self._world.random
        while True:
            await asyncio.sleep(draw.uniform(0, 2 * pace_s))
            if self._counters.is_done:
                self.runtime.follow_topic()
                continue
            for _ in range(draw.randint(1, 3)):
                self.add(draw.choice(BUSY) if draw.random() < 0.95 else draw.choice(IDLE))

    def add(self, name: str) -> bool:
        """Add to a counter if it is coordinated here now."""
        shard = self.runtime.find(name)
        if isinstance(shard, ErrorCode):
            return False
        add = self._counters.ledger.begin(name) if name in BUSY else None
        now = self._broker.clock.monotonic()
        if add is None:
            shard.perform(shard.machine.add(now, None, name, 1))
        else:
            self.under_way += 1
            shard.perform(shard.machine.add_noted(now, add, add))
        return True

    async def check(self, name: str) -> bool:
        """Check that the state of the shard of a counter is that of its log; False while that changes."""
        shard = self.runtime.find(name)
        if isinstance(shard, ErrorCode) or self.under_way:
            return False
        machine = shard.machine
        if any(each in machine.latest for each in IDLE):
            return False
        stored = CounterMachine()
        await replay_log(shard.replica, Replay(COUNTERS, stored.apply), self._broker.scheduler, 4_096, lambda: False)
        if not stored.values == machine.values == machine.latest:
            self._counters.say(f"counters are {machine.latest} and {machine.values}, their log has {stored.values}")
        return True


class Counters(Workload):
    """The topic, and the runtime on each broker."""

    settings: ClassVar[dict[str, Any]] = {"min_insync_replicas": 2}

    async def begin(self, topic: str, partitions: int) -> None:
        del topic, partitions
        self.ledger = CounterLedger(self.say)
        self.is_done = False
        self._begun: dict[Machine, Broker] = {}
        self._running: dict[Machine, tuple[Broker, CounterBroker]] = {}
        self._asker = SimulatedClient(self.cluster, "admin of counters", (TOPIC,))
        configs = {**SAFE, "cleanup.policy": "compact"}
        await self.on(self._asker, self._asker.create_topic(TOPIC, PARTITIONS, REPLICAS, configs))
        self.invariants.watch(TopicPartition(TOPIC, number) for number in range(PARTITIONS))
        self._pace_s = self.world.random.choice([0.02, 0.1, 0.4])
        self._watching = self.world.loop.create_task(self._watch())

    async def _watch(self) -> None:
        """Begin on each broker that comes up."""
        while True:
            for machine in self.cluster.machines.values():
                broker, host = machine.broker, machine.host
                if broker is None or host is None or not host.is_alive or not broker._is_started:
                    continue
                if self._begun.get(machine) is not broker:
                    self._begun[machine] = broker
                    self.start(host, self._live(machine, broker))
            await asyncio.sleep(WATCH_S)

    async def _live(self, machine: Machine, broker: Broker) -> None:
        running = CounterBroker(self, broker)
        self._running[machine] = broker, running
        await running.run(self._pace_s)

    def heal(self) -> None:
        self.is_done = True

    async def finish(self, at_end: Mapping[TopicPartition, list[int]]) -> bool:
        del at_end
        whole = True
        for name in BUSY:
            whole = await self.until(functools.partial(self._answers, name), END_S) and whole
            whole = await self.until(functools.partial(self._is_checked, name), END_S) and whole
        self._watching.cancel()
        for _, task in self._tasks:
            task.cancel()
        if not whole:
            self.say("the counters did not come back after all faults had ended")
        return whole

    async def _answers(self, name: str) -> bool:
        before = self.ledger.highest[name]
        for machine, (broker, running) in list(self._running.items()):
            if machine.broker is broker and machine.is_up and await self._on_host(machine, running.add, name):
                await asyncio.sleep(1.0)
                return self.ledger.highest[name] > before
        return False

    async def _is_checked(self, name: str) -> bool:
        for machine, (broker, running) in list(self._running.items()):
            if machine.broker is broker and machine.is_up and machine.host is not None:
                try:
                    if await machine.host.task(running.check(name)):
                        return True
                except BarnabasError as error:
                    self.world.tell(f"while checking counters: {error}")
        return False

    @staticmethod
    async def _on_host(machine: Machine, call: Callable[[str], bool], name: str) -> bool:
        async def run() -> bool:
            return call(name)

        assert machine.host is not None
        return await machine.host.task(run())
