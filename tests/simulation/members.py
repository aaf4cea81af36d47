"""A member of a consumer group in the simulated world: the consumer of production, in a process that may die."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from barnabas.client.config import ConsumerConfig
from barnabas.client.consumer.call_steps import AssignmentChange
from barnabas.client.consumer.classic_membership import ClassicMembership
from barnabas.client.consumer.core import ConsumerCore
from barnabas.client.consumer.sync_async_drivers import AsyncDriver, Background, LoopGuard
from barnabas.errors import BarnabasError, ClosedError
from barnabas.groups.assignors import NO_GENERATION
from barnabas.laboratory.history import History
from barnabas.model import TopicPartition
from tests.simulation.clients import reach
from tests.simulation.cluster import SimulatedCluster
from tests.simulation.commits import CommitLedger, watched
from tests.simulation.world import Host, HostClock

GROUP = "readers"
POLL_S = 1.0
POLL_RECORDS = 40
COMMIT_S = 10.0
SCALED_MS = {
    "session_timeout_ms": 6_000,
    "heartbeat_interval_ms": 1_000,
    "max_poll_interval_ms": 12_000,
    "request_timeout_ms": 4_000,
    "default_api_timeout_ms": 20_000,
    "connect_timeout_ms": 2_000,
    "auto_commit_interval_ms": 1_000,
}
"""The member's timeouts, at a scale of one, as all times here."""
CHANGES: tuple[AssignmentChange, ...] = ("assigned", "revoked", "lost")


class Known(NamedTuple):
    """The highest generation in which a member was told its partitions.

    :param life: how often the group was forgotten before: without members and offsets it is, as Kafka's is, and its
        generations begin again.
    """

    life: int
    generation: int


class GroupLedger:
    """What the members of the group were given: partitions, generation by generation, and records.

    :param say: told what is broken.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self.say = say
        self.given: dict[TopicPartition, set[int]] = defaultdict(set)
        self.known = Known(0, NO_GENERATION)
        self._owners: dict[tuple[int, TopicPartition], str] = {}

    def forget(self) -> None:
        """The group is forgotten."""
        self.known = Known(self.known.life + 1, NO_GENERATION)
        self._owners.clear()

    def claim(self, member: str, generation: int, places: Iterable[TopicPartition], floor: Known) -> None:
        """A member was told its partitions.

        :param floor: what was known when it began to join, or earlier.
        """
        life, known = self.known
        if floor.life != life:
            return  # the generation may be one of before the group was forgotten
        if generation < floor.generation:
            self.say(f"{member} was told generation {generation} after {floor.generation} had been told")
        self.known = Known(life, max(known, generation))
        for place in places:
            other = self._owners.setdefault((generation, place), member)
            if other != member:
                self.say(f"{place} belongs to {other} and to {member} in generation {generation}")


class GenerationsTold:
    """What one member was told, generation by generation, and what was known before it asked for the next one.

    A member joins while nobody polls, too, and may be stopped before it polls again. So what it was told by then is
    looked at before anything that others were told meanwhile counts for it.

    :param member: a name that no other life of a member has; the coordinator's id of it is gone once it has left.
    """

    def __init__(self, ledger: GroupLedger, member: str) -> None:
        self._ledger = ledger
        self._member = member
        self._generation = NO_GENERATION
        self._floor = ledger.known

    def look(self, membership: ClassicMembership) -> None:
        """Claim what it was told since the last look; whatever it asks from now on is answered with no less."""
        told = membership._assigned
        if told.generation != self._generation:
            self._generation = told.generation
            self._ledger.claim(self._member, told.generation, told.partitions, self._floor)
        if not membership.joining:
            self._floor = self._ledger.known


class SimulatedMember:
    """One life of one member.

    :param settings: of the consumer.
    """

    def __init__(
        self,
        cluster: SimulatedCluster,
        name: str,
        topic: str,
        history: History,
        ledger: GroupLedger,
        commits: CommitLedger,
        settings: dict[str, Any],
    ) -> None:
        self.name = name
        self.host = Host(cluster.world, name, HostClock(cluster.world.loop, rate=1.0, ahead_ms=0))
        self.is_done = False
        self._history = history
        self._ledger = ledger
        self._topic = topic
        scale = self._scale = cluster.world.scale
        config = ConsumerConfig(
            bootstrap_servers=cluster.addresses,
            group=GROUP,
            auto_offset_reset="earliest",
            **{name: int(ms * scale) for name, ms in SCALED_MS.items()},
            **settings,
        )
        guard = LoopGuard(self.host.clock)
        self._core = ConsumerCore(config, guard, self.host.clock)
        self._driver = AsyncDriver(self._core.state, guard)
        self._driver.listeners = dict.fromkeys(CHANGES, self._moved)
        self._commits_itself = not config.enable_auto_commit
        seen = reach(cluster, self.host, config, watched(commits))
        self._background = Background(self._core.state, seen, guard.waker)
        self._random = cluster.world.random
        self._told = GenerationsTold(ledger, name)

    def _moved(self, _: list[TopicPartition]) -> None:
        self._history.moved(self.name)

    async def run(self) -> None:
        """Read, and commit, until told to stop; then leave."""
        await self._background.start()
        self._core.subscribe([self._topic], None, CHANGES)
        uncommitted = False
        while not self.is_done:
            try:
                uncommitted = await self._poll() or uncommitted
                if uncommitted and self._commits_itself and self._random.random() < 0.7:
                    await self._driver.run(self._core.commit(None, COMMIT_S * self._scale))
                    uncommitted = False
            except ClosedError:
                raise
            except BarnabasError:
                await asyncio.sleep(self._random.uniform(0, 0.5) * self._scale)
        await self._driver.run(self._core.close(all_done=True))
        await self._background.close()
        await self._driver.stop()

    async def _poll(self) -> bool:
        """Poll once; return whether that brought records."""
        membership = self._core.state.membership
        assert isinstance(membership, ClassicMembership)
        self._told.look(membership)
        started = self._history.now()
        records = await self._driver.run(self._core.poll(POLL_RECORDS, POLL_S * self._scale))
        self._told.look(membership)
        for record in records:
            self._ledger.given[TopicPartition(record.topic, record.partition)].add(record.offset)
        if records:
            given = [(TopicPartition(each.topic, each.partition), each.offset, each.value or b"") for each in records]
            self._history.poll(self.name, started, given)
        return bool(records)
