"""Which partitions of the source are asked for, in which order; and what their answers come to."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.clock import ManualClock
from barnabas.errors import ErrorCode
from barnabas.mirror.offset_map import OffsetMap
from barnabas.mirror.partition_copy import PartitionCopy
from barnabas.mirror.partition_link import REPORTED_TRIES, LeaderTerm, PartitionLink, waiting_reason
from barnabas.mirror.source_fetcher import REFUSED_S, SourceFetcher
from barnabas.model import TopicPartition
from barnabas.protocol.declare import ZERO_UUID
from barnabas.records import BatchBuilder, stamp
from tests.simulation.loop import SimulatedLoop
from tests.simulation.world import HostClock

TOPIC_ID = b"i" * 16
CHANNEL = "a connection"
TERM = LeaderTerm(1, 0, CHANNEL)


class Recording:
    """A cluster of one broker, which notes what it was asked for."""

    view = SimpleNamespace(leader=lambda _where: 1, leader_epoch=lambda _where: 0)

    async def channel_to(self, _broker: int, _purpose: str) -> str:
        return CHANNEL

    def __init__(self) -> None:
        self.asked: list[list[int]] = []
        self.topics: list[tuple[str, bytes, int]] = []
        self.answer: Any = None
        """To each partition; None: none."""

    async def ask(self, _channel: str, request: Any, *, version_max: int, **_more: Any) -> Any:
        self.asked.append([part.partition for topic in request.topics for part in topic.partitions])
        self.topics += [(topic.topic, topic.topic_id, version_max) for topic in request.topics]
        if self.answer is None:
            return SimpleNamespace(responses=[])
        name, topic_id = ("", TOPIC_ID) if version_max > 12 else ("clicks", ZERO_UUID)
        return SimpleNamespace(
            responses=[SimpleNamespace(topic=name, topic_id=topic_id, partitions=[self.answer] if self.answer else [])]
        )

    def request_refresh(self, **_more: Any) -> None:
        """Leaders are known here."""


def link(partition: int, topic_id: bytes = TOPIC_ID) -> PartitionLink:
    where = TopicPartition("clicks", partition)
    copy = PartitionCopy(where, 1)
    copy.place(OffsetMap(0, 0), None, 0.0)
    return PartitionLink(where, where, b"id", copy, topic_id, source_term=TERM, source_epoch=0)


def answer(high_watermark: int = 0, error: ErrorCode = ErrorCode.NONE, records: bytes = b"") -> Any:
    return SimpleNamespace(partition_index=0, error_code=error, high_watermark=high_watermark, records=records)


class Bench:
    """One partition that is read."""

    def __init__(self, topic_id: bytes = TOPIC_ID) -> None:
        self.cluster: Any = Recording()
        self.link = link(0, topic_id)
        self.clock = ManualClock()
        self.well: list[PartitionLink] = []
        links = {self.link.source: self.link}
        self.reading = SourceFetcher(
            self.cluster, links, self.clock, lambda: None, lambda _link, _error: None, self.well.append
        )

    def round(self, given: Any) -> bool:
        self.cluster.answer = given
        return asyncio.run(self.reading._round(1))


def test_each_partition_is_the_first_of_a_request_now_and_then() -> None:
    cluster: Any = Recording()
    links = {each.source: each for each in map(link, range(3))}
    reading = SourceFetcher(cluster, links, ManualClock(), lambda: None, lambda _link, _error: None, lambda _link: None)

    async def rounds() -> None:
        for _ in range(3):
            await reading._round(1)

    asyncio.run(rounds())
    assert sorted(asked[0] for asked in cluster.asked) == [0, 1, 2]
    assert all(sorted(asked) == [0, 1, 2] for asked in cluster.asked)


@pytest.mark.parametrize("topic_id", [TOPIC_ID, ZERO_UUID])
def test_topics_are_named_by_id_where_the_source_knows_ids(topic_id: bytes) -> None:
    bench = Bench(topic_id)
    builder = BatchBuilder()
    builder.append(0, b"k", b"v")
    bench.round(answer(1, records=bytes(builder.build())))
    assert bench.cluster.topics == [("clicks", topic_id, 13 if topic_id == TOPIC_ID else 12)]
    assert bench.link.copy.position == 1


def test_partition_that_may_not_be_read_is_asked_for_now_and_then_and_told() -> None:
    bench = Bench()
    for _ in range(REPORTED_TRIES):
        assert waiting_reason([bench.link]) is None
        assert bench.round(answer(error=ErrorCode.UNKNOWN_TOPIC_ID))
        assert not bench.round(answer()), "it is not asked for at once"
        bench.clock.advance(REFUSED_S)
    assert waiting_reason([bench.link]) == "clicks-0: source: UNKNOWN_TOPIC_ID"
    bench.round(answer())
    assert waiting_reason([bench.link]) is None


def test_partition_that_was_stopped_is_well_when_nothing_is_left_to_be_sent() -> None:
    bench = Bench()
    bench.round(answer())
    assert bench.well == [], "it was never stopped"
    bench.link.stop_with("somebody else wrote there", 0.0)
    assert not bench.round(answer()), "it is asked for no more"
    bench.link.stopped = None
    bench.link.copy.place(OffsetMap(0, 0), None, 0.0)
    bench.round(answer(5))
    assert bench.well == [], "what it has is not mirrored yet"
    bench.round(answer(0))
    assert bench.well == [bench.link]
    bench.round(answer(0))
    assert bench.well == [bench.link], "told once"


def test_partition_is_looked_at_again_before_it_is_read_over_another_connection() -> None:
    bench = Bench()
    bench.link.source_term = LeaderTerm(1, 0, "the connection before a restart")
    assert not bench.round(answer(5)), "nothing is asked for"
    assert bench.link.attention.is_set()
    assert not bench.link.copy.is_placed


def test_batch_of_a_later_leader_is_not_taken_before_the_partition_is_looked_at() -> None:
    bench = Bench()
    builder = BatchBuilder()
    builder.append(0, b"k", b"v")
    batch = builder.build()
    stamp(batch, 0, 0, 3)
    bench.round(answer(1, records=bytes(batch)))
    assert bench.link.attention.is_set()
    assert not bench.link.copy.is_placed
    bench.link.copy.place(OffsetMap(0, 0), None, 0.0)
    bench.round(answer(1, records=bytes(batch)))
    assert bench.link.copy.position == 1


def test_a_source_that_answers_at_once_and_with_nothing_is_asked_rarely() -> None:
    loop, bench = SimulatedLoop(), Bench()
    bench.reading._clock = HostClock(loop, rate=1.0, ahead_ms=0)
    bench.cluster.answer = answer()

    async def rounds() -> None:
        while loop.time() < 10:
            await bench.reading._round(1)
            await asyncio.sleep(0.001)

    loop.run_until_complete(rounds())
    loop.close()
    assert 10 < len(bench.cluster.asked) < 60
