"""Produce with acks=all where there are followers: one wait for a run of requests, and each is answered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, cast

from barnabas.broker.handlers.produce import produce
from barnabas.broker.leader_replica import LeaderReplica
from barnabas.broker.pipeline.call import Reply
from barnabas.broker.replica_manager import ReplicaManager
from barnabas.broker.settings.static import BrokerConfig
from barnabas.broker.settings.topic_config import topic_config
from barnabas.broker.topics import Topics
from barnabas.clock import ManualClock
from barnabas.errors import ApiError, ErrorCode
from barnabas.model import Acks, TopicPartition
from barnabas.protocol.codec import decode_response
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from barnabas.records import BatchBuilder
from barnabas.replication.in_sync import RemoteReplicas
from barnabas.storage import Log, LogConfig, OsFileSystem
from tests.support.fake_link import call_of

CLICKS = TopicPartition("clicks", 0)
VERSION = 9


def batch() -> bytearray:
    builder = BatchBuilder()
    builder.append_many(1_000, [b"value"])
    return bytearray(builder.build())


def request(timeout_ms: int = 60_000) -> ProduceRequest:
    data = PartitionProduceData(index=0, records=b"")
    topics = [TopicProduceData(name="clicks", partition_data=[data])]
    return ProduceRequest(transactional_id=None, acks=Acks.ALL, timeout_ms=timeout_ms, topic_data=topics)


class Bench:
    """Broker 1 leads, 2 follows."""

    def __init__(self, folder: Path, **settings: str) -> None:
        self.log = Log.open(folder, CLICKS, LogConfig(), ManualClock(), OsFileSystem())
        config = topic_config(BrokerConfig(), {name.replace("_", "."): value for name, value in settings.items()})
        self.replicas = RemoteReplicas(1, 0, (1, 2), (1, 2), log_end_offset=0, high_watermark=0, now_s=0.0)
        self.led = LeaderReplica(CLICKS, self.log, 0, config, leader=1, followers=self.replicas)

    def leader(self, _name: str, _number: int) -> LeaderReplica:
        return self.led

    def produce(self, run: Sequence[Any]) -> Reply:
        reply: Reply = produce.handle(cast(Topics, self), cast(ReplicaManager, self), run, call_of(produce, VERSION))
        return reply

    def same_request(self, count: int, timeout_ms: int = 60_000) -> list[Any]:
        known = request(timeout_ms)
        return [(known, memoryview(batch()), number) for number in range(count)]


async def answers(reply: Reply) -> list[PartitionProduceResponse]:
    """Return what is said of the partition, in the order of the requests."""
    responses = [*reply.response, *(await reply.later if reply.later is not None else [])]
    responses = [
        decode_response(ProduceResponse, VERSION, each[4:]) if isinstance(each, bytes) else each for each in responses
    ]
    return [each.responses[0].partition_responses[0] for each in responses]


def run(bench: Callable[[], Bench], scenario: Callable[[Bench], Coroutine[Any, Any, None]]) -> None:
    async def on_bench() -> None:
        made = bench()
        try:
            async with asyncio.timeout(60):
                await scenario(made)
        finally:
            made.log.abandon()

    asyncio.run(on_bench())


def test_run_is_answered_when_the_follower_has_all_of_it(tmp_path: Path) -> None:
    async def scenario(bench: Bench) -> None:
        response = bench.produce(bench.same_request(3))
        assert response.response == []
        answering = asyncio.ensure_future(answers(response))
        bench.led.on_follower_fetch(2, -1, 2, 1.0)
        await asyncio.sleep(0)
        assert not answering.done()
        bench.led.on_follower_fetch(2, -1, 3, 1.0)
        assert [(each.error_code, each.base_offset) for each in await answering] == [(0, 0), (0, 1), (0, 2)]

    run(lambda: Bench(tmp_path / "clicks-0"), scenario)


def test_leader_alone_in_sync_answers_at_once(tmp_path: Path) -> None:
    async def scenario(bench: Bench) -> None:
        bench.replicas.adopt((1,))
        response = bench.produce(bench.same_request(2))
        assert response.later is None
        assert [each.base_offset for each in await answers(response)] == [0, 1]

    run(lambda: Bench(tmp_path / "clicks-0"), scenario)


def test_errors_are_told_to_each(tmp_path: Path) -> None:
    async def scenario(bench: Bench) -> None:
        late = await answers(bench.produce(bench.same_request(2, timeout_ms=1)))
        assert [each.error_code for each in late] == [ErrorCode.REQUEST_TIMED_OUT] * 2
        answering = asyncio.ensure_future(answers(bench.produce(bench.same_request(2))))
        await asyncio.sleep(0)
        bench.replicas.adopt((1,))
        bench.led.isr_changed()
        assert [each.error_code for each in await answering] == [ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND] * 2
        refused = await answers(bench.produce(bench.same_request(1)))
        assert [each.error_code for each in refused] == [ErrorCode.NOT_ENOUGH_REPLICAS]
        bench.replicas.adopt((1, 2))
        answering = asyncio.ensure_future(answers(bench.produce(bench.same_request(1))))
        await asyncio.sleep(0)
        bench.led.resign(ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "another broker leads"))
        assert [each.error_code for each in await answering] == [ErrorCode.NOT_LEADER_OR_FOLLOWER]

    run(lambda: Bench(tmp_path / "clicks-0", min_insync_replicas="2"), scenario)


def test_request_that_is_refused_is_answered_beside_those_that_wait(tmp_path: Path) -> None:
    async def scenario(bench: Bench) -> None:
        known = request()
        damaged = memoryview(batch())
        damaged[-1] ^= 1
        response = bench.produce([(known, memoryview(batch()), 0), (known, damaged, 1)])
        assert response.response == []
        answering = asyncio.ensure_future(answers(response))
        await asyncio.sleep(0)
        bench.led.on_follower_fetch(2, -1, 1, 1.0)
        assert [each.error_code for each in await answering] == [0, ErrorCode.CORRUPT_MESSAGE]

    run(lambda: Bench(tmp_path / "clicks-0"), scenario)
