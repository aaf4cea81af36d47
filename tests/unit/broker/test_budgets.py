"""What one request may ask for: entries, bytes, the same thing twice. And what is long is done in slices."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.broker import Broker
from barnabas.broker.handlers.join_group import PROTOCOLS_MAX
from barnabas.broker.handlers.produce import PIECE_ENTRIES_MAX
from barnabas.broker.pipeline import call
from barnabas.broker.pipeline.call import BYTES_MAX, CLIENTS, ENTRIES_MAX
from barnabas.broker.pipeline.scheduler import AT_ONCE_BYTES_MAX, CooperativeScheduler, RequestPipeline
from barnabas.broker.settings.static import BrokerConfig
from barnabas.broker.settings.topic_config import topic_config
from barnabas.errors import ApiError, ErrorCode, MalformedMessageError
from barnabas.net.server_connection import FrameReply
from barnabas.protocol.apis import declared_apis
from barnabas.protocol.codec import decode_response, request_frame
from barnabas.protocol.declare import message_of
from barnabas.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from barnabas.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from barnabas.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.records import BatchBuilder
from tests.support.fake_link import FakeLink

PARTITIONS = 200
CROWD = 100
TIMEOUT_S = 60


class Bench:
    """A broker with the topic `clicks`, whose clock goes on a little each time it is looked at."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.looks = 0
        parts = replace(broker.parts, scheduler=CooperativeScheduler(self.look))
        self.requests = RequestPipeline(parts.bind_all(), parts.scheduler, CLIENTS).new_handler(FakeLink())

    def look(self) -> float:
        self.looks += 1
        return self.looks * 0.0002

    async def call(self, request: Any, version: int) -> Any:
        """Return the answer; None if there is none."""
        frame = b"".join(request_frame(request, version, 7, "me"))[4:]  # type: ignore[arg-type]
        return await self.send(frame, type(request), version)

    async def send(self, frame: bytes, kind: type, version: int) -> Any:
        reply = self.requests.carry_out([bytearray(frame)])
        answer = reply.answer if reply.later is None else await reply.later
        api_key = message_of(kind).api_key
        assert api_key is not None
        data = b"".join(answer)  # type: ignore[arg-type]
        return decode_response(declared_apis()[api_key].response, version, data[4:]) if data else None


Run = Callable[[Callable[[Bench], Coroutine[Any, Any, None]]], None]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    async def with_broker(scenario: Callable[[Bench], Coroutine[Any, Any, None]]) -> None:
        broker = Broker(BrokerConfig(port=0, data=str(tmp_path / "data")))
        await broker.start()
        try:
            async with asyncio.timeout(TIMEOUT_S):
                await scenario(Bench(broker))
        finally:
            await broker.stop()

    return lambda scenario: asyncio.run(with_broker(scenario))


def produce_of(topics: list[TopicProduceData], acks: int = 1) -> ProduceRequest:
    return ProduceRequest(acks=acks, timeout_ms=1_000, topic_data=topics)


def batch() -> bytes:
    builder = BatchBuilder()
    builder.append(1_000, None, b"value")
    return bytes(builder.build())


TOO_MUCH = {
    "produce, empty topics": (produce_of([TopicProduceData(name="", partition_data=[])] * (ENTRIES_MAX + 1)), 9),
    "produce, partitions": (
        produce_of(
            [TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=None)] * ENTRIES_MAX)]
        ),
        9,
    ),
    "join, protocols": (
        JoinGroupRequest(
            group_id="g",
            session_timeout_ms=10_000,
            member_id="",
            protocol_type="c",
            protocols=[JoinGroupRequestProtocol(name="", metadata=bytes(20))] * (PROTOCOLS_MAX + 1),
        ),
        6,
    ),
    "offset fetch": (
        OffsetFetchRequest(
            group_id="g", topics=[OffsetFetchRequestTopic(name="t", partition_indexes=[0] * ENTRIES_MAX)]
        ),
        7,
    ),
    "metadata": (MetadataRequest(topics=[MetadataRequestTopic(name="t")] * (ENTRIES_MAX + 1)), 9),
}


@pytest.mark.parametrize("name", TOO_MUCH)
def test_a_request_with_too_many_entries_is_refused(run: Run, name: str) -> None:
    request, version = TOO_MUCH[name]

    async def scenario(bench: Bench) -> None:
        with pytest.raises(MalformedMessageError, match="entries in one message"):
            await bench.call(request, version)

    run(scenario)


@pytest.mark.parametrize("name", ["produce", "metadata"])
def test_a_request_that_is_too_large_besides_its_records_is_refused(run: Run, name: str) -> None:
    long = "x" * 30_000
    count = BYTES_MAX // len(long) + 1
    requests = {
        "produce": produce_of([TopicProduceData(name=long, partition_data=[])] * count),
        "metadata": MetadataRequest(topics=[MetadataRequestTopic(name=long)] * count),
    }

    async def scenario(bench: Bench) -> None:
        with pytest.raises(MalformedMessageError, match="without record data"):
            await bench.call(requests[name], 9)

    run(scenario)


def test_an_answer_that_is_too_large_is_refused(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call, "ANSWER_BYTES_MAX", 1_000)

    async def scenario(bench: Bench) -> None:
        await bench.broker.topic_admin.create("clicks", PARTITIONS, {})
        with pytest.raises(MalformedMessageError, match="MetadataResponse exceeds 1000 bytes"):
            await bench.call(MetadataRequest(topics=None), 9)

    run(scenario)


def ten_thousand(make: Callable[[int], Any]) -> list[Any]:
    return [make(number) for number in range(10_000)]


LEGITIMATE = {
    "metadata": (MetadataRequest(topics=ten_thousand(lambda n: MetadataRequestTopic(name=f"t{n}"))), 9),
    "fetch": (
        FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            topics=ten_thousand(
                lambda n: FetchTopic(
                    topic=f"t{n}", partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1)]
                )
            ),
        ),
        12,
    ),
    "list offsets": (
        ListOffsetsRequest(
            replica_id=-1,
            topics=ten_thousand(
                lambda n: ListOffsetsTopic(
                    name=f"t{n}", partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)]
                )
            ),
        ),
        6,
    ),
    "offset commit": (
        OffsetCommitRequest(
            group_id="g",
            generation_id_or_member_epoch=-1,
            member_id="",
            topics=ten_thousand(
                lambda n: OffsetCommitRequestTopic(
                    name=f"t{n}",
                    partitions=[
                        OffsetCommitRequestPartition(
                            partition_index=0, committed_offset=1, committed_metadata="x" * 100
                        )
                    ],
                )
            ),
        ),
        8,
    ),
    "offset fetch": (
        OffsetFetchRequest(
            group_id="g",
            topics=ten_thousand(lambda n: OffsetFetchRequestTopic(name=f"t{n}", partition_indexes=[0])),
        ),
        7,
    ),
}


@pytest.mark.parametrize("name", LEGITIMATE)
def test_ten_thousand_topics_in_a_request_are_served_and_others_have_their_turn(run: Run, name: str) -> None:
    request, version = LEGITIMATE[name]
    if isinstance(request, MetadataRequest):
        request.allow_auto_topic_creation = False

    async def scenario(bench: Bench) -> None:
        calling = asyncio.ensure_future(bench.call(request, version))
        turns = 0
        while not calling.done():
            turns += 1
            await asyncio.sleep(0)
        response = calling.result()
        assert len(getattr(response, "topics", None) or response.responses) == 10_000
        assert turns > 50

    run(scenario)


def test_what_is_asked_for_again_and_again_is_answered_once(run: Run) -> None:
    resource = DescribeConfigsResource(resource_type=2, resource_name="clicks", configuration_keys=None)

    async def scenario(bench: Bench) -> None:
        await bench.broker.topic_admin.create("clicks", 1, {})
        described = await bench.call(DescribeConfigsRequest(resources=[resource] * 5_000), 4)
        assert [each.resource_name for each in described.results] == ["clicks"]
        topics = [MetadataRequestTopic(name="clicks"), MetadataRequestTopic(name="none")] * 3_000
        answer = await bench.call(MetadataRequest(topics=topics, allow_auto_topic_creation=False), 9)
        assert [topic.name for topic in answer.topics] == ["clicks", "none"]

    run(scenario)


def many_partitions(acks: int, numbers: range = range(PARTITIONS)) -> ProduceRequest:
    data = [PartitionProduceData(index=number, records=batch()) for number in numbers]
    return produce_of(
        [
            TopicProduceData(name="none", partition_data=data[:2]),
            TopicProduceData(name="clicks", partition_data=data),
            TopicProduceData(name="empty", partition_data=[]),
            TopicProduceData(name="none", partition_data=data[:1]),
        ],
        acks,
    )


@pytest.mark.parametrize("acks", [1, -1])
def test_a_request_for_many_partitions_is_carried_out_in_pieces_and_answered_as_one(run: Run, acks: int) -> None:
    async def scenario(bench: Bench) -> None:
        await bench.broker.topic_admin.create("clicks", PARTITIONS, {})
        assert PARTITIONS > 3 * PIECE_ENTRIES_MAX
        for offset in range(2):
            response = await bench.call(many_partitions(acks), 9)
            told = [
                (topic.name, [(each.index, each.error_code, each.base_offset) for each in topic.partition_responses])
                for topic in response.responses
            ]
            assert told == [
                ("none", [(0, 3, -1), (1, 3, -1)]),
                ("clicks", [(number, 0, offset) for number in range(PARTITIONS)]),
                ("empty", []),
                ("none", [(0, 3, -1)]),
            ]

    run(scenario)


def test_pieces_that_wait_for_the_disk_are_answered_together(run: Run) -> None:
    async def scenario(bench: Bench) -> None:
        await bench.broker.topic_admin.create("clicks", PARTITIONS, {})
        await bench.broker.topic_admin.alter("clicks", lambda _: {"flush.messages": "1"})
        response = await bench.call(many_partitions(-1), 9)
        clicks = response.responses[1].partition_responses
        assert [(each.index, each.error_code) for each in clicks] == [(number, 0) for number in range(PARTITIONS)]

    run(scenario)


def test_without_acknowledgements_all_pieces_are_appended_and_an_error_ends_the_connection(run: Run) -> None:
    async def scenario(bench: Bench) -> None:
        await bench.broker.topic_admin.create("clicks", PARTITIONS, {})
        with pytest.raises(ApiError) as raised:
            await bench.call(many_partitions(0), 9)
        assert raised.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        for number in range(PARTITIONS):
            assert bench.broker.topics.replicas.leader("clicks", number).log.log_end_offset == 1

    run(scenario)


@pytest.mark.parametrize("count", [1, PARTITIONS])
def test_appends_that_a_thread_does_are_waited_for_where_no_answer_is_wanted(run: Run, count: int) -> None:
    async def scenario(bench: Bench) -> None:
        await bench.broker.topic_admin.create("clicks", count, {"compression.type": "gzip"})
        request = many_partitions(0, range(count))
        request.topic_data = [topic for topic in request.topic_data if topic.name == "clicks"]
        assert await bench.call(request, 9) is None
        logs = [bench.broker.topics.replicas.leader("clicks", number).log for number in range(count)]
        assert [log.log_end_offset for log in logs] == [1] * count

    run(scenario)


@pytest.mark.parametrize("compressed", [range(PARTITIONS), range(PARTITIONS // 2, PARTITIONS)])
def test_pieces_that_wait_for_the_disk_are_waited_for_where_no_answer_is_wanted(run: Run, compressed: range) -> None:
    async def scenario(bench: Bench) -> None:
        await bench.broker.topic_admin.create("clicks", PARTITIONS, {})
        partitions = [bench.broker.topics.replicas.leader("clicks", number) for number in range(PARTITIONS)]
        for number in compressed:  # which is done by a thread
            config = topic_config(bench.broker.config, {"compression.type": "gzip"})
            partitions[number].configure(config)
        request = many_partitions(0)
        request.topic_data = [topic for topic in request.topic_data if topic.name == "clicks"]
        frame = b"".join(request_frame(request, 9, 7, "me"))[4:]  # type: ignore[arg-type]
        reply = bench.requests.carry_out([bytearray(frame)])
        assert reply.answer == []
        assert reply.later is not None
        assert await reply.later == []
        assert [partition.log.log_end_offset for partition in partitions] == [1] * PARTITIONS

    run(scenario)


def test_a_large_batch_is_carried_out_at_once(run: Run) -> None:
    builder = BatchBuilder()
    builder.append(1_000, None, bytes(2 * AT_ONCE_BYTES_MAX))
    data = PartitionProduceData(index=0, records=bytes(builder.build()))
    request = produce_of([TopicProduceData(name="clicks", partition_data=[data])])
    frame = b"".join(request_frame(request, 9, 7, "me"))[4:]  # type: ignore[arg-type]

    async def scenario(bench: Bench) -> None:
        await bench.broker.topic_admin.create("clicks", 1, {})
        assert bench.requests.carry_out([bytearray(frame)]).later is None

    run(scenario)


def test_a_large_frame_that_is_damaged_is_refused(run: Run) -> None:
    frame = b"".join(request_frame(many_partitions(1, range(400)), 9, 7, "me"))[4:]  # type: ignore[arg-type]
    assert len(frame) > AT_ONCE_BYTES_MAX

    async def scenario(bench: Bench) -> None:
        for damaged in (frame[:-1_000], frame[:30] + struct.pack(">i", -5) + frame[34:]):
            with pytest.raises(MalformedMessageError):
                await bench.send(damaged, ProduceRequest, 9)

    run(scenario)


def test_those_who_join_groups_in_a_crowd_take_turns_and_others_do_not_stand_behind_them(run: Run) -> None:
    async def scenario(bench: Bench) -> None:
        def send(request: Any, version: int) -> FrameReply:
            frame = b"".join(request_frame(request, version, 7, "me"))[4:]  # type: ignore[arg-type]
            return bench.requests.carry_out([bytearray(frame)])

        def join(number: int) -> JoinGroupRequest:
            return JoinGroupRequest(
                group_id=f"group-{number}",
                session_timeout_ms=60_000,
                rebalance_timeout_ms=60_000,
                member_id="",
                protocol_type="consumer",
                protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
            )

        await bench.broker.groups.ensure_topic()
        crowd = [asyncio.ensure_future(send(join(number), 3).later) for number in range(CROWD)]  # type: ignore[arg-type]
        await asyncio.sleep(0)
        assert 1 <= len(bench.broker.groups.group_ids()) < CROWD / 2, "a round has room for some, not for all"
        assert send(MetadataRequest(topics=[]), 7).later is None, "it is answered in the same round"
        assert all(await asyncio.gather(*crowd))
        assert sorted(bench.broker.groups.group_ids()) == sorted(f"group-{number}" for number in range(CROWD))

    run(scenario)
