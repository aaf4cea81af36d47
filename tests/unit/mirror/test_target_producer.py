"""Sending to a target that is away."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.clock import ManualClock
from barnabas.errors import DisconnectedError, ErrorCode
from barnabas.mirror.errors import MirrorError
from barnabas.mirror.offset_map import OffsetMap
from barnabas.mirror.partition_copy import KNOWN_S, PartitionCopy
from barnabas.mirror.partition_link import LeaderTerm, PartitionLink
from barnabas.mirror.target_producer import TargetProducer
from barnabas.model import TopicPartition
from barnabas.protocol.messages.produce import BatchIndexAndErrorMessage, PartitionProduceResponse
from barnabas.records import BatchBuilder, Compression
from barnabas.records.header import stamp
from tests.support.compacted_logs import Batch, Kept

WHERE = TopicPartition("clicks", 0)
TARGET_ID = b"t" * 16


class Target:
    """A cluster of one broker, which is there or away, and keeps what it is sent."""

    view = SimpleNamespace(leader=lambda _where: 1, leader_epoch=lambda _where: 0)

    def __init__(self) -> None:
        self.is_away = False
        self.sent: list[tuple[Any, Any, int]] = []

    async def channel_to(self, _broker: int, _purpose: str) -> Target:
        if self.is_away:
            raise DisconnectedError("nobody there")
        return self

    def version_for(self, _request: object) -> int:
        return 13

    def submit(self, request: Any, on_answer: Any, *, version: int, **_more: object) -> None:
        self.sent.append((request, on_answer, version))

    def flush(self) -> None:
        """It is there already."""

    def request_refresh(self, **_more: object) -> None:
        """Leaders are known here."""

    def answer(self, error: ErrorCode = ErrorCode.NONE, **more: Any) -> None:
        """Answer what was sent first."""
        request, on_answer, _version = self.sent.pop(0)
        (topic,) = request.topic_data
        part = PartitionProduceResponse(index=0, error_code=error, base_offset=0, **more)
        responses = [SimpleNamespace(name="", topic_id=topic.topic_id, partition_responses=[part])]
        on_answer(SimpleNamespace(responses=responses), None)


def fetched(offset: int) -> bytes:
    builder = BatchBuilder()
    builder.append(0, b"k", b"v")
    batch = builder.build()
    stamp(batch, 0, offset, 0)
    return bytes(batch)


class Bench:
    """A partition with two batches that are ready."""

    def __init__(self) -> None:
        self.cluster: Any = Target()
        self.clock = ManualClock()
        self.copy = PartitionCopy(WHERE, 1)
        self.link = PartitionLink(WHERE, WHERE, TARGET_ID, self.copy, target_term=LeaderTerm(1, 0, self.cluster))
        self.stopped: list[MirrorError] = []
        self.well: list[PartitionLink] = []
        self.writing = TargetProducer(
            self.cluster, {WHERE: self.link}, self.clock, lambda: None, self._stop, self.well.append
        )
        self.place()

    def place(self) -> None:
        self.copy.place(OffsetMap(0, 0), None, self.clock.monotonic())
        for offset in (0, 1):
            self.copy.take(fetched(offset), offset)

    def round(self) -> bool:
        return asyncio.run(self.writing._round(1))

    def _stop(self, link: PartitionLink, error: MirrorError) -> None:
        link.stop_with(str(error), self.clock.monotonic())
        self.stopped.append(error)


def test_target_that_was_away_for_an_hour_is_looked_at_before_anything_is_sent() -> None:
    bench = Bench()
    bench.round()
    bench.cluster.answer()
    assert bench.copy.has_ready, "the first one goes alone"
    bench.cluster.is_away = True
    with pytest.raises(DisconnectedError):
        bench.round()
    bench.clock.advance(KNOWN_S)
    bench.cluster.is_away = False
    bench.round()
    assert bench.cluster.sent == []
    assert bench.link.attention.is_set()
    assert not bench.copy.is_placed


def test_topics_are_named_by_id_where_the_target_knows_ids() -> None:
    bench = Bench()
    bench.round()
    request, _on_answer, version = bench.cluster.sent[0]
    assert (version, [topic.topic_id for topic in request.topic_data]) == (13, [TARGET_ID])


def test_partition_is_well_again_when_a_batch_got_through_and_not_before() -> None:
    bench = Bench()
    bench.round()
    bench.cluster.answer(ErrorCode.MESSAGE_TOO_LARGE)
    assert "MESSAGE_TOO_LARGE" in str(bench.stopped[0])
    for answered in (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.NONE):
        assert bench.well == []
        bench.link.stopped = None
        bench.place()
        bench.round()
        bench.cluster.answer(answered)
    assert bench.well == [bench.link]
    bench.round()
    assert bench.cluster.sent


def test_partition_is_looked_at_again_before_anything_is_sent_over_another_connection() -> None:
    bench = Bench()
    bench.link.target_term = LeaderTerm(1, 0, "the connection before a restart")
    bench.round()
    assert bench.cluster.sent == []
    assert bench.link.attention.is_set()


@pytest.mark.parametrize(
    ("index", "text", "reason"),
    [
        (2, "no key", "clicks-0: the target refuses source offset 42: no key"),
        (2, None, "clicks-0: the target refuses source offset 42: rejected"),
        (7, "no key", "clicks-0: the target refuses source offsets 40 to 42: no key"),
        (-1, "no key", "clicks-0: the target refuses source offsets 40 to 42: no key"),
        (None, None, "clicks-0: the target refuses source offsets 40 to 42: rejected"),
    ],
)
def test_what_the_target_refuses_is_named_by_its_offset_in_the_source(
    index: int | None, text: str | None, reason: str
) -> None:
    bench = Bench()
    bench.copy.place(OffsetMap(40, 7), None, bench.clock.monotonic())
    builder = BatchBuilder()
    for _ in range(3):
        builder.append(0, None, b"v")
    batch = builder.build()
    stamp(batch, 0, 40, 0)
    bench.copy.take(bytes(batch), 40)
    bench.round()
    errors = [] if index is None else [BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=text)]
    bench.cluster.answer(ErrorCode.INVALID_RECORD, record_errors=errors, error_message="rejected")
    assert [str(each) for each in bench.stopped] == [reason]


def test_batch_with_holes_that_the_target_refuses_is_named_by_its_range_in_the_source() -> None:
    bench = Bench()
    bench.copy.place(OffsetMap(10, 0), None, bench.clock.monotonic())
    kept = [Kept(10, 1, b"a", b"10"), Kept(15, 3, b"c", b"15")]
    bench.copy.take(Batch(10, 17, kept, Compression.NONE).encode(), 10)
    bench.round()
    bench.cluster.answer(ErrorCode.INVALID_TIMESTAMP, record_errors=[BatchIndexAndErrorMessage(batch_index=1)])
    assert [str(each) for each in bench.stopped] == [
        "clicks-0: the target refuses source offsets 10 to 17: INVALID_TIMESTAMP"
    ]
