"""Reading a ledger that does not come, and one that was made again."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.client.cluster import PartitionView, TopicView
from barnabas.clock import ManualClock
from barnabas.errors import ErrorCode, TimedOutError
from barnabas.mirror import ledger_topic
from barnabas.mirror.ledger import LEDGER_TOPIC, Claim
from barnabas.mirror.ledger_topic import STUCK_S, LedgerTopic
from barnabas.model import OffsetAndTimestamp

KEY = Claim.key("clicks")
CLAIM = Claim("cluster", "clicks", "1", "2", ("cluster",))


class Cluster:
    """Has a ledger, or had one."""

    def __init__(self) -> None:
        self.topic_id: bytes | None = b"first"
        self.log: list[Any] = []

    async def refresh(self) -> Any:
        return SimpleNamespace(topics={} if self.topic_id is None else {LEDGER_TOPIC: None}, brokers=[1])

    async def topic(self, _name: str, *, timeout_s: float) -> None:
        assert timeout_s > 0

    async def describe(self, names: list[str]) -> list[TopicView]:
        assert names == [LEDGER_TOPIC]
        if self.topic_id is None:
            return [TopicView(LEDGER_TOPIC, error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]
        return [TopicView(LEDGER_TOPIC, self.topic_id, partitions=(PartitionView(0, 1),))]

    def write(self, claim: Claim) -> None:
        key, value = ledger_topic.encode(KEY, claim.value())
        self.log.append(SimpleNamespace(key=key, value=value))


class Consumer:
    """Reads what there is, until it gets stuck."""

    def __init__(self, cluster: Cluster, clock: ManualClock) -> None:
        self._cluster, self._clock = cluster, clock
        self._at = 0
        self.is_stuck = False
        self.is_closed = False

    def assign(self, _partitions: object) -> None:
        """There is only one."""

    async def position(self, _tp: object, *, timeout_s: float) -> int:
        return self._at

    async def poll(self, *, max_records: int, timeout_s: float) -> list[Any]:
        if self.is_stuck:
            self._clock.advance(timeout_s)
            return []
        found, self._at = self._cluster.log[self._at :], len(self._cluster.log)
        return found

    async def close(self) -> None:
        self.is_closed = True


class World:
    def __init__(self) -> None:
        self.cluster, self.clock = Cluster(), ManualClock()
        self.consumers: list[Consumer] = []
        self.begin(writes=False)

    def begin(self, *, writes: bool) -> None:
        side: Any = SimpleNamespace(name="target", settings={}, cluster=self.cluster)
        self.ledger = LedgerTopic(side, writes=writes, clock=self.clock)

    def consumer(self, *_: object, **_more: object) -> Consumer:
        self.consumers.append(Consumer(self.cluster, self.clock))
        return self.consumers[-1]

    def refresh(self) -> Claim | None:
        asyncio.run(self.ledger.refresh())
        return self.ledger.find(Claim, KEY)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    made = World()

    async def ends(_cluster: object, asked: dict[Any, int]) -> dict[Any, OffsetAndTimestamp]:
        return {tp: OffsetAndTimestamp(len(made.cluster.log), -1) for tp in asked}

    monkeypatch.setattr(ledger_topic, "list_offsets", ends)
    monkeypatch.setattr(ledger_topic, "AsyncConsumer", made.consumer)
    return made


def test_ledger_that_does_not_come_is_given_up_and_read_anew(world: World) -> None:
    world.cluster.write(CLAIM)
    assert world.refresh() == CLAIM
    world.consumers[0].is_stuck = True
    world.cluster.write(CLAIM)
    begun_s = world.clock.monotonic()
    with pytest.raises(TimedOutError, match="from offset 1 to 2: no progress"):
        world.refresh()
    assert STUCK_S <= world.clock.monotonic() - begun_s < 2 * STUCK_S
    assert world.consumers[0].is_closed
    assert world.ledger.find(Claim, KEY) == CLAIM, "what was known is known meanwhile"
    assert world.refresh() == CLAIM


def test_ledger_that_was_made_again_counts_and_not_the_one_before(world: World) -> None:
    world.cluster.write(CLAIM)
    world.cluster.write(CLAIM)
    assert world.refresh() == CLAIM
    world.cluster.topic_id, world.cluster.log = b"second", []
    assert world.refresh() is None
    other = Claim("other", "clicks", "3", "4", ("other",))
    world.cluster.write(other)
    assert world.refresh() == other
    world.cluster.topic_id = None
    assert world.refresh() is None


def test_ledger_that_was_deleted_is_made_again_compacted(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []

    async def create_topic(_cluster: object, name: str, *, config: Any, **_more: object) -> None:
        made.append((name, config))
        world.cluster.topic_id = b"second"

    monkeypatch.setattr(ledger_topic, "create_topic", create_topic)
    world.cluster.topic_id = None
    world.refresh()
    assert made == [], "this ledger is only read"

    async def written() -> None:
        world.begin(writes=True)
        await world.ledger.refresh()
        await world.ledger.refresh()
        await world.ledger.stop()

    asyncio.run(written())
    assert made == [(LEDGER_TOPIC, {"cleanup.policy": "compact"})]
