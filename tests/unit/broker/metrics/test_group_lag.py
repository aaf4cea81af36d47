"""The ends of partitions that groups read: of replicas here, and of partitions that other brokers have."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from barnabas.broker.metadata_image import MetadataImage
from barnabas.broker.metrics.group_lag import EndOffsets
from barnabas.broker.pipeline.scheduler import CooperativeScheduler
from barnabas.clock import ManualClock
from barnabas.coordination.topic_metadata_store import PartitionInfo, TopicInfo
from barnabas.coordination.values import BrokerRegistration, LiveBroker, PartitionState
from barnabas.errors import DisconnectedError, ErrorCode
from barnabas.groups.offsets import GroupOffsets
from barnabas.groups.records import Committed
from barnabas.model import TopicPartition
from barnabas.protocol.messages.offset_for_leader_epoch import (
    LeaderEpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)

HERE, THERE, GONE = (TopicPartition("clicks", number) for number in range(3))


class Bench:
    """Broker 1 coordinates a group. It has a replica of `HERE`. Broker 2 leads `THERE`, and a dead broker `GONE`."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.local_end, self.ends = 7, {THERE: 30}
        self.asked: list[TopicPartition] = []
        self.is_reachable = True
        self.offsets = GroupOffsets()
        for where in (HERE, THERE, GONE):
            self.offsets.apply("readers", where, Committed(3))
        infos = tuple(PartitionInfo((leader,), PartitionState(leader, 4, (leader,)), 0) for leader in (1, 2, 3))
        brokers = {each: LiveBroker(BrokerRegistration(each, "here", 9), each) for each in (1, 2)}
        image = MetadataImage().with_topics(TopicInfo("clicks", bytes(16), infos)).with_brokers(brokers)
        topics: Any = SimpleNamespace(image=image, replicas=SimpleNamespace(get=self._replica))
        groups: Any = SimpleNamespace(served_shards=lambda: [SimpleNamespace(machine=self)])
        scheduler = CooperativeScheduler(self.clock.monotonic)
        self.lag = EndOffsets(groups, topics, self._connect, scheduler, self.clock)

    def _replica(self, where: TopicPartition) -> Any:
        return SimpleNamespace(log=SimpleNamespace(high_watermark=self.local_end)) if where == HERE else None

    async def _connect(self, broker_id: int) -> Any:
        assert broker_id == 2
        if not self.is_reachable:
            raise DisconnectedError("cut")
        return SimpleNamespace(send=self._answer, close=lambda: None)

    async def _answer(self, request: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
        return OffsetForLeaderEpochResponse(topics=list(self._results(request)))

    def _results(self, request: OffsetForLeaderEpochRequest) -> Iterator[OffsetForLeaderTopicResult]:
        for topic in request.topics:
            found = []
            for each in topic.partitions:
                where = TopicPartition(topic.topic, each.partition)
                self.asked.append(where)
                end, code = (
                    self.ends.get(where, -1),
                    ErrorCode.NONE if where in self.ends else ErrorCode.FENCED_LEADER_EPOCH,
                )
                found.append(LeaderEpochEndOffset(error_code=code, partition=each.partition, end_offset=end))
            yield OffsetForLeaderTopicResult(topic=topic.topic, partitions=found)

    def look(self) -> list[int | None]:
        asyncio.run(self.lag.look())
        return [self.lag.end_of(where) for where in (HERE, THERE, GONE)]


def test_ends_come_from_replicas_here_and_from_leaders_elsewhere() -> None:
    bench = Bench()
    assert bench.look() == [7, 30, None]
    assert bench.asked == [THERE]


def test_end_that_a_leader_cannot_tell_stays_what_it_was() -> None:
    bench = Bench()
    bench.look()
    bench.ends = {}
    assert bench.look() == [7, 30, None]
    bench.is_reachable = False
    assert bench.look() == [7, 30, None]


def test_arrivals_are_known_of_partitions_that_a_group_reads() -> None:
    bench = Bench()
    bench.look()
    bench.clock.advance(10)
    bench.local_end, bench.ends = 17, {THERE: 30}
    bench.look()
    assert (bench.lag.age_s(HERE, 12), bench.lag.age_s(THERE, 30), bench.lag.age_s(GONE, 3)) == (5.0, 0.0, None)
    bench.offsets.apply("readers", HERE, None)
    bench.look()
    assert bench.lag.age_s(HERE, 12) is None
