"""A request that waits keeps the data that it needs, and leaves its memory to others."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.handlers.produce import KEPT_BYTES_IN_RUN
from barnabas.broker.leader_replica import LeaderReplica
from barnabas.broker.pipeline.call import WAITING_BYTES
from barnabas.broker.pipeline.scheduler import AT_ONCE_BYTES_MAX
from barnabas.broker.replica_storage import Acknowledgements, Waiter
from barnabas.errors import ErrorCode
from barnabas.net.listener import Listener
from barnabas.net.server_connection import Limits
from barnabas.protocol.apis import declared_apis
from barnabas.protocol.codec import decode_response, request_frame
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from barnabas.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from barnabas.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.records import BatchBuilder
from barnabas.storage.log_appender import AppendInfo
from tests.support.fake_stream import FakeStream, connect
from tests.support.in_process_broker import Caller, run_with_broker

EACH = 1_000
FRAME_BYTES = 14_000
SMALL, LARGE = AT_ONCE_BYTES_MAX // 2, 20 * AT_ONCE_BYTES_MAX
QUEUED = 40 * 1024 * 1024
"""Less than the frames of all waiting requests take."""
MINUTES_MS = 600_000
FETCH_VERSION, JOIN_VERSION, PRODUCE_VERSION = 11, 3, 9


def batch(size: int) -> bytes:
    builder = BatchBuilder()
    builder.append_many(1_000, [bytes(size)])
    return bytes(builder.build())


def fetch(size: int) -> tuple[FetchRequest, int]:
    """Ask for what is not there; the names are of no use to the broker."""
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1)
    request = FetchRequest(
        max_wait_ms=MINUTES_MS,
        min_bytes=1,
        max_bytes=1,
        topics=[FetchTopic(topic="views", partitions=[wanted])],
        forgotten_topics_data=[ForgottenTopic(topic="x" * 1_000, partitions=[])] * (size // 1_000),
    )
    return request, FETCH_VERSION


def join(size: int, group_id: str = "group") -> tuple[JoinGroupRequest, int]:
    request = JoinGroupRequest(
        group_id=group_id,
        session_timeout_ms=MINUTES_MS,
        rebalance_timeout_ms=MINUTES_MS,
        member_id="",
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=bytes(size))],
    )
    return request, JOIN_VERSION


def produce(size: int, topic: str = "clicks") -> tuple[ProduceRequest, int]:
    data = PartitionProduceData(index=0, records=batch(size))
    topics = [TopicProduceData(name=topic, partition_data=[data])]
    return ProduceRequest(transactional_id=None, acks=-1, timeout_ms=MINUTES_MS, topic_data=topics), PRODUCE_VERSION


def produce_to_many(size: int) -> tuple[ProduceRequest, int]:
    """Bring a batch for each of many partitions, so that the request is carried out in pieces."""
    data = [PartitionProduceData(index=number % 3, records=batch(size // 100)) for number in range(100)]
    topics = [TopicProduceData(name="clicks", partition_data=data)]
    return ProduceRequest(transactional_id=None, acks=-1, timeout_ms=MINUTES_MS, topic_data=topics), PRODUCE_VERSION


def frame_of(request: Any, version: int) -> bytes:
    return b"".join(bytes(chunk) for chunk in request_frame(request, version, 1, "me"))  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def _clicks_are_never_acknowledged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Producers of `clicks` wait, as where a follower does not fetch."""
    never = Acknowledgements()
    original = LeaderReplica.acknowledges_at_once

    def acknowledges_at_once(self: LeaderReplica, acks: int) -> bool:
        return self.topic_partition.topic != "clicks" and original(self, acks)

    def when_acknowledged(self: LeaderReplica, info: AppendInfo, _acks: int) -> Waiter | None:
        return never.wait_for(info.last_offset) if self.topic_partition.topic == "clicks" else None

    monkeypatch.setattr(LeaderReplica, "acknowledges_at_once", acknowledges_at_once)
    monkeypatch.setattr(LeaderReplica, "when_acknowledged", when_acknowledged)


async def wait_until(condition: Callable[[], object]) -> None:
    while not condition():  # noqa: ASYNC110
        await asyncio.sleep(0)


def listen(caller: Caller) -> Listener:
    """Return a listener of the broker's with little memory."""
    listener = Listener(Limits(queued_bytes_max=QUEUED, frame_bytes_max=QUEUED))
    listener.new_handler = caller.broker.requests.new_handler
    return listener


def wait_bytes(listener: Listener) -> int:
    return listener.waiting_memory.used_bytes


def test_thousand_waiting_requests_of_each_kind_leave_memory_for_the_largest_request(tmp_path: Path) -> None:
    async def scenario(caller: Caller) -> None:
        topic_admin, memory = caller.broker.topic_admin, caller.broker.groups.memory
        await topic_admin.create("large", 1, {"max.message.bytes": str(QUEUED)})
        await caller.broker.groups.ensure_topic()
        listener = listen(caller)
        streams: list[FakeStream] = []
        for number in range(EACH):
            for request, version in (
                fetch(FRAME_BYTES),
                join(FRAME_BYTES, f"group-{number % 10}"),
                produce(FRAME_BYTES),
            ):
                streams.append(connect(listener))
                streams[-1].arrive(frame_of(request, version))
        waiting = [each for each in listener._connections if each.under_way]
        assert len(waiting) == len(streams) == 3 * EACH
        await wait_until(lambda: all(each._is_waiting for each in waiting))
        assert listener.memory.used_bytes == 0
        assert wait_bytes(listener) <= 3 * EACH * (WAITING_BYTES + KEPT_BYTES_IN_RUN)
        assert EACH * FRAME_BYTES < memory.used_bytes < 2 * EACH * FRAME_BYTES
        producer = connect(listener)
        sent = frame_of(*produce(QUEUED - 1_000, "large"))
        assert QUEUED - 1_000 < len(sent) < QUEUED
        producer.arrive(sent)
        await wait_until(lambda: producer.sent)
        response = decode_response(declared_apis()[0].response, PRODUCE_VERSION, bytes(producer.sent[4:]))
        assert response.responses[0].partition_responses[0].error_code == ErrorCode.NONE  # type: ignore[attr-defined]
        for stream in (*streams, producer):
            stream.close()

    run_with_broker(
        tmp_path,
        scenario,
        group_initial_rebalance_delay_ms=MINUTES_MS,
        group_max_session_timeout_ms=MINUTES_MS,
        offsets_topic_num_partitions=2,
    )


class Frame(bytearray):
    """A frame of which a test can tell when it is gone."""

    __slots__ = ("__weakref__",)


KINDS = {"fetch": fetch, "join": join, "produce": produce, "produce to many": produce_to_many}


@pytest.mark.parametrize("size", [SMALL, LARGE], ids=["small", "large"])
@pytest.mark.parametrize("kind", KINDS)
def test_waiting_request_does_not_keep_its_frame(tmp_path: Path, kind: str, size: int) -> None:
    async def scenario(caller: Caller) -> None:
        await caller.broker.groups.ensure_topic()
        kept: list[int] = []

        kept = caller.link.kept_bytes
        frame = Frame(frame_of(*KINDS[kind](size))[4:])
        gone = weakref.ref(frame)
        frames = [frame]
        del frame
        reply = caller.requests.carry_out(frames)
        assert reply.later is not None
        frames.clear()
        waiting = asyncio.ensure_future(reply.later)
        await wait_until(lambda: kept)
        del reply
        gc.collect()
        assert gone() is None
        assert not waiting.done()
        assert kept[0] < LARGE
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)

    run_with_broker(tmp_path, scenario, group_initial_rebalance_delay_ms=MINUTES_MS, offsets_topic_num_partitions=1)


def test_long_poll_that_cannot_be_kept_is_answered_with_what_there_is(tmp_path: Path) -> None:
    async def scenario(caller: Caller) -> None:
        caller.link.can_keep = False
        response = await caller.call(*fetch(FRAME_BYTES))
        assert [data.error_code for topic in response.responses for data in topic.partitions] == [ErrorCode.NONE]

    run_with_broker(tmp_path, scenario)
