"""Followers of leaders that lie: whatever comes, they ask more and more rarely, and at once again when it is over."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from barnabas.broker.follower_replica import FollowerReplica
from barnabas.broker.replica_fetcher import ReplicaFetcher
from barnabas.broker.settings.static import BrokerConfig
from barnabas.broker.settings.topic_config import topic_config
from barnabas.errors import BarnabasError, CorruptBatchError, DisconnectedError, ErrorCode
from barnabas.model import TopicPartition
from barnabas.net.client_connection import FREE_FUTILE, ClientConnection, RequestBackoff
from barnabas.protocol.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from barnabas.replication.fetch_state import CUTS_FREE, Limits
from barnabas.storage.checkpoints import EpochStart
from barnabas.storage.leader_epochs import LeaderEpochs
from tests.simulation.loop import SimulatedLoop

LIMITS = Limits(max_wait_ms=500, min_bytes=1, max_bytes=10_000, partition_max_bytes=1_000, pause_s_max=1.0)
TOPIC_ID = b"A" * 16
OFFSET_MAX = 2**63 - 1
LIES_S = 30.0
ANSWER_S = 0.001
"""How long the leader takes for an answer."""

Answer = FetchResponse | BarnabasError
Lie = Callable[[FetchRequest], Answer]


class FakeLog:
    """A log that is a number."""

    lost_from = None

    def __init__(self) -> None:
        self.log_start_offset = self.high_watermark = 0
        self.log_end_offset = 5
        self.leader_epochs = LeaderEpochs([EpochStart(0, 0), EpochStart(2, 3)])


class FakeFollower:
    """A replica whose records are the numbers of bytes in `records`."""

    topic_id = TOPIC_ID
    topic_partition = TopicPartition("clicks", 0)
    leader_epoch = 5
    has_ended = False
    config = topic_config(BrokerConfig(), {})

    def __init__(self) -> None:
        self.log = FakeLog()

    def append(self, records: memoryview, high_watermark: int, log_start_offset: int) -> None:
        if bytes(records).startswith(b"damaged"):
            raise CorruptBatchError("CRC")
        self.log.log_end_offset += len(records)
        self.log.high_watermark = max(self.log.high_watermark, min(high_watermark, self.log.log_end_offset))

    async def truncate_to(self, offset: int) -> None:
        self.log.log_end_offset = min(self.log.log_end_offset, max(0, offset))

    async def truncate_fully_and_start_at(self, offset: int) -> None:
        self.log.log_start_offset = self.log.log_end_offset = offset


class FakeConnection:
    """A connection to a leader that answers as `leader` says."""

    def __init__(self, leader: Leader) -> None:
        self.leader = leader
        self.is_closed = False

    def submit(self, request: FetchRequest, on_answer: Callable[[Any, Any], None], *, timeout_s: float) -> None:
        self.leader.fetches += 1
        loop = asyncio.get_running_loop()
        answer = self.leader.lie(request)
        wait_s = ANSWER_S
        if self.leader.is_honest and not self.leader.has_records:
            wait_s = request.max_wait_ms / 1000
        if isinstance(answer, BarnabasError):
            loop.call_later(wait_s, self._answer, on_answer, None, answer)
        else:
            loop.call_later(wait_s, self._answer, on_answer, answer, None)

    def _answer(self, on_answer: Callable[[Any, Any], None], answer: Any, error: Any) -> None:
        if not self.is_closed:
            on_answer(answer, error)

    def flush(self) -> None:
        pass

    def close(self) -> None:
        self.is_closed = True


class Leader:
    """Counts fetches, and answers them."""

    def __init__(self, lie: Lie) -> None:
        self.lie = lie
        self.fetches = self.dials = 0
        self.is_honest = self.has_records = False

    async def dial(self) -> ClientConnection:
        self.dials += 1
        return cast(ClientConnection, FakeConnection(self))


def data(**fields: Any) -> PartitionData:
    usual = {"partition_index": 0, "error_code": 0, "high_watermark": 0, "log_start_offset": 0, "records": b""}
    return PartitionData(**{**usual, **fields})


def answer(*partitions: PartitionData, topic_id: bytes = TOPIC_ID, session: int = 7, error: int = 0) -> FetchResponse:
    topics = [FetchableTopicResponse(topic_id=topic_id, partitions=list(partitions))]
    return FetchResponse(session_id=session, error_code=error, responses=topics)


def parting(epoch: int, offset: int) -> PartitionData:
    return data(diverging_epoch=EpochEndOffset(epoch=epoch, end_offset=offset))


def by_turns(*answers: Answer) -> Lie:
    number = -1

    def lie(_: FetchRequest) -> Answer:
        nonlocal number
        number += 1
        return answers[number % len(answers)]

    return lie


LIES: dict[str, list[Answer]] = {
    "nothing, at once": [answer()],
    "an empty partition, at once": [answer(data())],
    "another topic": [answer(data(), topic_id=b"B" * 16)],
    "other partitions": [answer(data(partition_index=2**31 - 1), data(partition_index=-1))],
    "the partition many times": [answer(*[data()] * 1_000)],
    "a high watermark beyond the log": [answer(data(high_watermark=OFFSET_MAX, log_start_offset=-5))],
    "the session is gone": [answer(error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND, session=0)],
    "the session is gone by turns": [answer(data()), answer(error=ErrorCode.INVALID_FETCH_SESSION_EPOCH, session=0)],
    "another session": [answer(data(), session=7), answer(data(), session=8)],
    "no session": [answer(data(), session=0)],
    "an unknown error": [answer(error=31_999)],
    "a closed connection": [DisconnectedError("closed")],
    "what is no answer, by turns": [answer(data()), DisconnectedError("sent an invalid response")],
    "damaged batches": [answer(data(records=b"damaged"))],
    "damaged batches by turns": [answer(data(records=b"damaged")), answer(data())],
    "an error of the partition": [answer(data(error_code=31_999))],
    "an error of the partition by turns": [answer(data(error_code=6)), answer(data())],
    "logs that part at once": [answer(parting(-1, 0))],
    "logs that part nowhere": [answer(parting(2**31 - 1, OFFSET_MAX))],
    "records that are cut again": [answer(data(records=b"ab")), answer(parting(0, 0))],
    "out of range": [answer(data(error_code=1, log_start_offset=2**62))],
    "out of range at a higher offset": [answer(data(error_code=1, log_start_offset=number)) for number in range(9)],
}


class Bench:
    def __init__(self, answers: list[Answer]) -> None:
        self.loop = SimulatedLoop()
        self.leader = Leader(by_turns(*answers))
        self.follower = FakeFollower()

    def run(self, test: Callable[[], Any]) -> None:
        async def main() -> None:
            fetches = ReplicaFetcher(
                "broker 9", self.leader.dial, LIMITS, lambda: (1, 1), self.store, self.loop.time, timeout_s=30.0
            )
            fetches.follow(cast(FollowerReplica, self.follower))
            await test()
            fetches.close()

        self.loop.run_until_complete(main())
        self.loop.close()

    async def store(self) -> None:
        pass

    def be_honest(self) -> None:
        self.leader.is_honest = True
        self.leader.lie = by_turns(answer(data()))


@pytest.fixture(params=LIES)
def bench(request: pytest.FixtureRequest) -> Bench:
    return Bench(LIES[request.param])


def test_a_lying_leader_is_asked_rarely(bench: Bench) -> None:
    async def test() -> None:
        await asyncio.sleep(LIES_S)
        # A second is the longest pause; the alternate answers that are as they should be cost as many fetches again.
        assert bench.leader.fetches < 3 * LIES_S, "the pauses grow"
        assert bench.leader.fetches >= LIES_S / 4, "the leader is asked again and again"
        assert bench.leader.dials <= bench.leader.fetches

    bench.run(test)


def test_a_leader_that_lies_no_more_is_followed_at_once(bench: Bench) -> None:
    async def test() -> None:
        await asyncio.sleep(LIES_S)
        bench.be_honest()
        await asyncio.sleep(5.0)
        bench.leader.has_records = True
        bench.leader.lie = by_turns(answer(data(records=b"record")))
        end, fetches = bench.follower.log.log_end_offset, bench.leader.fetches
        await asyncio.sleep(2.0)
        assert bench.follower.log.log_end_offset >= end + 6 * 1_000, "no pause is left"
        assert bench.leader.fetches - fetches > 1_000

    bench.run(test)


def test_answers_that_wait_or_bring_something_cost_no_pause() -> None:
    pacing = RequestBackoff(1.0)
    for now_s in range(100):
        for _ in range(FREE_FUTILE):
            pacing.note_futile(now_s)
            assert not pacing.wait_s(now_s)
        pacing.note_progress()
    waits_s = []
    for _ in range(12):
        pacing.note_futile(200)
        waits_s.append(pacing.wait_s(200))
    assert waits_s == [0, 0, 0, *sorted(waits_s[3:])]
    assert waits_s[-1] == 1.0
    assert not pacing.wait_s(201)


def test_a_leader_with_many_other_epochs_has_the_log_cut_without_a_pause() -> None:
    bench = Bench([answer(parting(0, 5 - number)) for number in range(CUTS_FREE - 4)])

    async def test() -> None:
        await asyncio.sleep(0.1)
        assert bench.leader.fetches > CUTS_FREE - 4

    bench.run(test)
