"""The leader's end of a follower's fetch session: what is answered, when, and what it costs."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from types import GeneratorType
from typing import Any, cast

import pytest

from barnabas.broker.follower_sessions import FollowerSession, FollowerSessions
from barnabas.broker.handlers.replica_fetch import replica_fetch
from barnabas.broker.leader_replica import LeaderReplica
from barnabas.broker.pipeline.scheduler import CooperativeScheduler
from barnabas.broker.replica_manager import ReplicaManager
from barnabas.broker.settings.rules import LONG_MAX
from barnabas.broker.settings.static import BrokerConfig
from barnabas.broker.settings.topic_config import topic_config
from barnabas.broker.throttles import LeaderThrottle
from barnabas.broker.topics import Topics
from barnabas.clock import ManualClock
from barnabas.errors import ApiError, ErrorCode
from barnabas.model import Acks, TopicPartition
from barnabas.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)
from barnabas.records import BatchBuilder
from barnabas.replication.in_sync import RemoteReplicas
from barnabas.replication.quota import ReplicationQuota
from barnabas.storage import Log, LogConfig, OsFileSystem
from tests.support.fake_link import begun, call_of, connection_state
from tests.support.log_steps import append_now

TOPIC_ID = b"T" * 16
WAIT_MS = 60_000


def batch(count: int = 1) -> bytes:
    builder = BatchBuilder()
    builder.append_many(1_000, [b"value"] * count)
    return bytes(builder.build())


class Bench:
    """Broker 1 leads some partitions, and 2 follows them over one connection."""

    def __init__(self, folder: Path, count: int = 2, rate: int = LONG_MAX, throttled: str = "") -> None:
        self.clock = ManualClock()
        self.quota = ReplicationQuota(rate, self.clock.monotonic)
        self.settings = {"leader.replication.throttled.replicas": throttled}
        self.connection = connection_state()
        self.sessions = FollowerSessions(lambda _: 6, LeaderThrottle(self.quota, 1))
        self.led: dict[int, LeaderReplica] = {}
        self.logs: list[Log] = []
        self.looked_up = 0
        self.epoch = 0
        self.broker_epoch = 9
        for number in range(count):
            where = TopicPartition("clicks", number)
            self.logs.append(Log.open(folder / str(where), where, LogConfig(), self.clock, OsFileSystem()))
            self.lead(number)

    def lead(self, number: int, epoch: int = 0, replicas: tuple[int, ...] = (1, 2)) -> LeaderReplica:
        log = self.logs[number]
        followers = RemoteReplicas(1, epoch, replicas, replicas, log.log_end_offset, log.high_watermark, 0.0)
        config = topic_config(BrokerConfig(), self.settings)
        self.led[number] = LeaderReplica(log.partition, log, epoch, config, leader=1, followers=followers)
        return self.led[number]

    def name_of(self, topic_id: bytes) -> str:
        if topic_id != TOPIC_ID:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID, "there is no topic with this id")
        return "clicks"

    def leader(self, _name: str, number: int) -> LeaderReplica:
        self.looked_up += 1
        return self.led[number]

    @property
    def session(self) -> FollowerSession:
        return self.sessions._sessions[self.connection]

    def check_broker(self, broker_id: int, broker_epoch: int) -> None:
        if (broker_id, broker_epoch) != (2, self.broker_epoch):
            raise ApiError(ErrorCode.STALE_BROKER_EPOCH, "another run")

    def begin(self, request: FetchRequest, version: int = 18) -> FetchResponse | Awaitable[Any]:
        """Send a request; return the answer, or what it waits for."""
        call = call_of(replica_fetch, version, None, self.connection)
        scheduler = CooperativeScheduler(self.clock.monotonic)
        parts = (
            cast(Topics, self),
            cast(ReplicaManager, self),
            self.sessions,
            self.check_broker,
            scheduler,
            self.clock,
        )
        return cast(FetchResponse, begun(replica_fetch.handle(*parts, request, call)))

    def request(
        self, *positions: tuple[int, int], forget: tuple[int, ...] = (), max_wait_ms: int = 0, **fields: Any
    ) -> FetchRequest:
        """A request for these partitions and offsets, the next one of the session."""
        parts = [
            FetchPartition(
                partition=number,
                current_leader_epoch=0,
                fetch_offset=offset,
                last_fetched_epoch=self.logs[number].leader_epochs.epoch_for_offset(offset - 1),
                partition_max_bytes=fields.get("partition_max_bytes", 1_000_000),
            )
            for number, offset in positions
        ]
        request = FetchRequest(
            replica_state=ReplicaState(replica_id=2, replica_epoch=self.broker_epoch),
            max_wait_ms=max_wait_ms,
            min_bytes=fields.get("min_bytes", 1),
            session_id=7 if self.epoch else 0,
            session_epoch=self.epoch,
            topics=[FetchTopic(topic_id=TOPIC_ID, partitions=parts)] if parts else [],
            forgotten_topics_data=[ForgottenTopic(topic_id=TOPIC_ID, partitions=list(forget))] if forget else [],
        )
        self.epoch += 1
        return request

    def fetch(self, *positions: tuple[int, int], **fields: Any) -> list[PartitionData]:
        """Fetch without waiting."""
        response = self.begin(self.request(*positions, **fields))
        assert isinstance(response, FetchResponse)
        assert not response.error_code
        assert response.session_id == 7
        return [data for topic in response.responses for data in topic.partitions]

    def poll(self, min_bytes: int = 1) -> asyncio.Future[list[PartitionData]]:
        """Fetch what is new, waiting for it."""
        response = self.begin(self.request(max_wait_ms=WAIT_MS, min_bytes=min_bytes))
        assert inspect.isawaitable(response)

        async def wait() -> list[PartitionData]:
            answer = _finished(await response)
            return [data for topic in answer.responses for data in topic.partitions]

        return asyncio.ensure_future(wait())


def _finished(response: Any) -> Any:
    while isinstance(response, GeneratorType):
        try:
            next(response)
        except StopIteration as end:
            return end.value
    return response


def run(bench: Callable[[], Bench], scenario: Callable[[Bench], Coroutine[Any, Any, None]]) -> None:
    async def on_bench() -> None:
        made = bench()
        try:
            async with asyncio.timeout(60):
                await scenario(made)
        finally:
            for log in made.logs:
                log.abandon()

    asyncio.run(on_bench())


def test_what_is_above_the_high_watermark_is_read_and_told_offsets_move_it(tmp_path: Path) -> None:
    async def scenario(bench: Bench) -> None:
        append_now(bench.led[0], batch(3))
        (first, second) = bench.fetch((0, 0), (1, 0))
        assert (len(first.records), first.high_watermark) == (len(batch(3)), 0)
        assert (len(second.records), second.high_watermark) == (0, 0)
        (first,) = bench.fetch((0, 3))
        assert (len(first.records), first.high_watermark) == (0, 3)
        assert bench.fetch() == []

    run(lambda: Bench(tmp_path), scenario)


def test_waiting_costs_nothing_for_partitions_without_news(tmp_path: Path) -> None:
    async def scenario(bench: Bench) -> None:
        bench.fetch(*((number, 0) for number in range(50)))
        looked_up, reads = bench.looked_up, []
        for led in bench.led.values():
            led.log.read = lambda *given, **named: reads.append(given)  # type: ignore[method-assign]
        for _ in range(5):
            polling = bench.poll()
            await asyncio.sleep(0)
            assert bench.connection.delayed_fetch is not None
            bench.connection.delayed_fetch.complete()
            assert await polling == []
        assert (bench.looked_up, reads) == (looked_up, [])

    run(lambda: Bench(tmp_path, count=50), scenario)


def test_append_ends_the_wait_and_a_moved_high_watermark_is_told_with_the_next_answer(tmp_path: Path) -> None:
    async def scenario(bench: Bench) -> None:
        bench.fetch((0, 0), (1, 0))
        polling = bench.poll()
        append_now(bench.led[1], batch())
        (data,) = await polling
        assert (data.partition_index, len(data.records)) == (1, len(batch()))
        assert bench.led[1].followers
        bench.fetch(forget=(1,))
        polling = bench.poll()
        bench.led[0].followers.adopt((1,))  # type: ignore[union-attr]
        append_now(bench.led[0], batch())
        (data,) = await polling
        assert (data.partition_index, data.high_watermark) == (0, 1)

    run(lambda: Bench(tmp_path), scenario)


def test_wait_for_much_goes_on_while_nobody_waits_for_the_follower_and_ends_when_somebody_does(tmp_path: Path) -> None:
    async def scenario(bench: Bench) -> None:
        led = bench.led[0]
        bench.fetch((0, 0), (1, 0))
        polling = bench.poll(min_bytes=1_000_000)
        assert led.when_acknowledged(append_now(led, batch()), Acks.LEADER) is None
        await asyncio.sleep(0)
        assert not bench.session.is_urgent
        waiting = led.when_acknowledged(append_now(led, batch()), Acks.ALL)
        (data,) = await polling
        assert len(data.records) == 2 * len(batch())
        assert bench.fetch((0, 2), min_bytes=1_000_000)[0].high_watermark == 2
        assert waiting is not None
        assert waiting.done()

    run(lambda: Bench(tmp_path), scenario)


def test_what_somebody_waits_for_already_is_not_kept_until_there_is_more(tmp_path: Path) -> None:
    async def scenario(bench: Bench) -> None:
        led = bench.led[0]
        bench.fetch((0, 0), (1, 0))
        led.when_acknowledged(append_now(led, batch()), Acks.ALL)
        (data,) = bench.fetch(max_wait_ms=WAIT_MS, min_bytes=1_000_000)
        assert len(data.records) == len(batch())
        polling = bench.poll(min_bytes=1_000_000)
        await asyncio.sleep(0)
        assert not polling.done()
        polling.cancel()

    run(lambda: Bench(tmp_path), scenario)


def test_high_watermark_alone_does_not_end_the_wait(tmp_path: Path) -> None:
    async def scenario(bench: Bench) -> None:
        led = bench.lead(0, replicas=(1, 2, 3))
        append_now(led, batch())
        bench.fetch((0, 0))
        bench.fetch((0, 1))
        polling = bench.poll()
        led.on_follower_fetch(3, -1, 1, 0.0)
        assert led.log.high_watermark == 1
        await asyncio.sleep(0)
        assert not polling.done()
        assert bench.connection.delayed_fetch is not None
        bench.connection.delayed_fetch.complete()
        (data,) = await polling
        assert (data.high_watermark, len(data.records)) == (1, 0)

    run(lambda: Bench(tmp_path), scenario)


def test_partitions_have_their_turn_when_one_answer_cannot_hold_all(tmp_path: Path) -> None:
    async def scenario(bench: Bench) -> None:
        for number in range(3):
            append_now(bench.led[number], batch())
            append_now(bench.led[number], batch())
        positions = {0: 0, 1: 0, 2: 0}
        order = []
        request = bench.request(*positions.items())
        for _ in range(6):
            request.max_bytes = 1
            response = bench.begin(request)
            assert isinstance(response, FetchResponse)
            (data,) = [data for topic in response.responses for data in topic.partitions if len(data.records)]
            order.append(data.partition_index)
            positions[data.partition_index] += 1
            request = bench.request((data.partition_index, positions[data.partition_index]))
        assert order == [0, 1, 2, 0, 1, 2]

    run(lambda: Bench(tmp_path, count=3), scenario)


def test_fetched_bytes_count_once_although_a_wait_reads_twice(tmp_path: Path) -> None:
    async def scenario(bench: Bench) -> None:
        append_now(bench.led[0], batch(3))
        bench.fetch((0, 0), (1, 0))
        assert [log.replicated_out_bytes for log in bench.logs] == [len(batch(3)), 0]
        bench.fetch((0, 3))
        append_now(bench.led[1], batch())
        waiting = bench.poll(min_bytes=2 * len(batch()))
        await asyncio.sleep(0)
        append_now(bench.led[1], batch())
        await waiting
        assert [log.replicated_out_bytes for log in bench.logs] == [len(batch(3)), 2 * len(batch())]

    run(lambda: Bench(tmp_path), scenario)


def test_quiet_follower_is_caught_up_when_something_is_appended(tmp_path: Path) -> None:
    async def scenario(bench: Bench) -> None:
        bench.fetch((0, 0))
        bench.clock.advance(100.0)
        bench.fetch()
        append_now(bench.led[0], batch())
        followers = bench.led[0].followers
        assert followers
        assert followers.wanted_isr(109.0, 10.0, 1, lambda _: True) is None
        assert followers.wanted_isr(111.0, 10.0, 1, lambda _: True) == (1,)

    run(lambda: Bench(tmp_path), scenario)


def test_guesses_of_a_broker_epoch_are_logged_once_a_connection(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(bench: Bench) -> None:
        for guess in range(8):
            request = bench.request((0, 0))
            request.replica_state.replica_epoch = guess
            response = bench.begin(request)
            assert isinstance(response, FetchResponse)
            assert response.error_code == ErrorCode.STALE_BROKER_EPOCH
        assert [each.getMessage().split(":")[0] for each in caplog.records] == ["rejected a replica fetch of 127.0.0.1"]

    run(lambda: Bench(tmp_path), scenario)


def test_who_is_not_who_is_registered_is_refused(tmp_path: Path) -> None:
    async def scenario(bench: Bench) -> None:
        request = bench.request((0, 0))
        request.replica_state.replica_epoch = 8
        response = bench.begin(request)
        assert isinstance(response, FetchResponse)
        assert response.error_code == ErrorCode.STALE_BROKER_EPOCH
        for replica_id, version in ((-1, 18), (2, 14)):
            request.replica_state = ReplicaState(replica_id=replica_id, replica_epoch=9)
            response = bench.begin(request, version)
            assert isinstance(response, FetchResponse)
            assert response.error_code == ErrorCode.INVALID_REQUEST
        assert len(bench.sessions) == 0

    run(lambda: Bench(tmp_path), scenario)


def test_errors_are_told_partition_by_partition(tmp_path: Path) -> None:
    async def scenario(bench: Bench) -> None:
        bench.lead(0, replicas=(1, 3))
        (first, second) = bench.fetch((0, 0), (1, 0))
        assert (first.error_code, second.error_code) == (ErrorCode.UNKNOWN_LEADER_EPOCH, 0)
        bench.led[1].resign(ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "another epoch"))
        led = bench.lead(1, epoch=5)
        (data,) = bench.fetch(forget=(0,))
        assert data.error_code == ErrorCode.FENCED_LEADER_EPOCH
        append_now(led, batch())
        request = bench.request((1, 0))
        request.topics[0].partitions[0].current_leader_epoch = 5
        response = bench.begin(request)
        assert isinstance(response, FetchResponse)
        assert response.responses[0].partitions[0].error_code == 0

    run(lambda: Bench(tmp_path), scenario)


def test_logs_that_part_and_offsets_before_the_start(tmp_path: Path) -> None:
    async def scenario(bench: Bench) -> None:
        led = bench.led[0]
        append_now(led, batch(5))
        request = bench.request((0, 9))
        request.topics[0].partitions[0].last_fetched_epoch = 0
        response = bench.begin(request)
        assert isinstance(response, FetchResponse)
        (data,) = response.responses[0].partitions
        assert (data.error_code, data.diverging_epoch.epoch, data.diverging_epoch.end_offset) == (0, 0, 5)
        led.followers.adopt((1,))  # type: ignore[union-attr]
        led.isr_changed()
        await led.delete_records_before(4)
        request = bench.request((0, 2))
        response = bench.begin(request)
        assert isinstance(response, FetchResponse)
        (data,) = response.responses[0].partitions
        assert (data.error_code, data.log_start_offset) == (ErrorCode.OFFSET_OUT_OF_RANGE, 4)

    run(lambda: Bench(tmp_path), scenario)


def test_who_asks_again_is_told_again_how_far_the_leader_is(tmp_path: Path) -> None:
    # It may have taken nothing of the answer before: its log was no more where it had been when it asked.
    async def scenario(bench: Bench) -> None:
        append_now(bench.led[0], batch(5))
        bench.fetch((0, 5))
        assert bench.fetch() == []
        (data,) = bench.fetch((0, 5))
        assert (data.high_watermark, data.log_start_offset, len(data.records)) == (5, 0, 0)
        assert bench.fetch() == []

    run(lambda: Bench(tmp_path), scenario)


def test_who_asks_again_is_told_at_the_end_of_a_wait_as_well(tmp_path: Path) -> None:
    # What the pass before the wait had read of it is not in the answer, which another pass makes.
    async def scenario(bench: Bench) -> None:
        append_now(bench.led[0], batch(5))
        bench.fetch((0, 5), (1, 0))
        answer = bench.begin(bench.request((0, 5), max_wait_ms=WAIT_MS))
        assert inspect.isawaitable(answer)
        append_now(bench.led[1], batch(1))
        found = [data for topic in _finished(await answer).responses for data in topic.partitions]
        assert sorted((data.partition_index, data.high_watermark) for data in found) == [(0, 5), (1, 0)]

    run(lambda: Bench(tmp_path), scenario)


def test_session_ends_with_its_connection(tmp_path: Path) -> None:
    async def scenario(bench: Bench) -> None:
        bench.fetch((0, 0))
        polling = bench.poll()
        await asyncio.sleep(0)
        polling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await polling
        assert len(bench.sessions) == 0
        response = bench.begin(bench.request())
        assert isinstance(response, FetchResponse)
        assert response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND

    run(lambda: Bench(tmp_path), scenario)


def test_request_out_of_order_is_refused(tmp_path: Path) -> None:
    async def scenario(bench: Bench) -> None:
        bench.fetch((0, 0))
        bench.epoch = 5
        response = bench.begin(bench.request())
        assert isinstance(response, FetchResponse)
        assert response.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH

    run(lambda: Bench(tmp_path), scenario)


def test_broker_that_registered_anew_says_of_all_partitions_where_it_is(tmp_path: Path) -> None:
    """What it had in its life before counts no more."""

    async def scenario(bench: Bench) -> None:
        bench.fetch((0, 0), (1, 0))
        assert bench.fetch() == []
        bench.broker_epoch = 10
        bench.fetch()
        for led in bench.led.values():
            assert led.followers is not None
            assert led.followers.broker_epoch_of(2) == 10

    run(lambda: Bench(tmp_path), scenario)


SLOW = 10
"""Bytes a second: one batch is more than a second's worth."""


def drop(bench: Bench, *numbers: int) -> None:
    """Let the follower be out of sync."""
    for number in numbers:
        bench.led[number].followers.adopt((1,))  # type: ignore[union-attr]


def brought(answer: list[PartitionData]) -> list[int]:
    return [data.partition_index for data in answer if len(data.records)]


def test_what_is_throttled_is_held_back_beyond_its_rate_and_nothing_else_is(tmp_path: Path) -> None:
    async def scenario(bench: Bench) -> None:
        drop(bench, 0, 1, 2)
        for led in bench.led.values():
            append_now(led, batch())
        assert brought(bench.fetch((0, 0), (1, 0), (2, 0))) == [0, 2]
        size = len(batch())
        assert bench.quota.wait_s == (size - SLOW) / SLOW
        assert brought(bench.fetch((0, 1), (2, 1))) == []
        polling = bench.poll()
        append_now(bench.led[1], batch())
        await asyncio.sleep(0)
        assert not polling.done(), "what is held back keeps nobody from waiting"
        append_now(bench.led[2], batch())
        assert brought(await polling) == [2]
        append_now(bench.led[0], batch())
        assert bench.led[1].followers
        bench.clock.advance(0.5)
        assert brought(bench.fetch((0, 1), (2, 2))) == []
        is_eligible = lambda _: True  # noqa: E731
        assert bench.led[1].followers.wanted_isr(bench.clock.monotonic(), 10.0, 2, is_eligible) is None
        bench.clock.advance(size / SLOW)
        assert brought(bench.fetch()) == [1]
        bench.clock.advance(2 * size / SLOW)
        assert brought(bench.fetch((1, 2))) == [0]

    run(lambda: Bench(tmp_path, count=3, rate=SLOW, throttled="0:1,1:1"), scenario)


def test_what_is_in_sync_counts_and_is_never_held_back(tmp_path: Path) -> None:
    async def scenario(bench: Bench) -> None:
        bench.fetch((0, 0), (1, 0))
        drop(bench, 1)
        append_now(bench.led[0], batch())
        append_now(bench.led[1], batch())
        assert brought(bench.fetch()) == [0]
        for offset in range(1, 4):
            append_now(bench.led[0], batch())
            assert brought(bench.fetch((0, offset))) == [0]
        assert brought(bench.fetch((0, 4))) == []
        bench.led[1].followers.adopt((1, 2))  # type: ignore[union-attr]
        polling = bench.poll()
        append_now(bench.led[1], batch())
        assert brought(await polling) == [1], "it is in sync now, and others wait for it"

    run(lambda: Bench(tmp_path, rate=SLOW, throttled="*"), scenario)


def test_end_of_a_role_is_told_of_what_is_held_back(tmp_path: Path) -> None:
    async def scenario(bench: Bench) -> None:
        drop(bench, 0)
        append_now(bench.led[0], batch())
        assert brought(bench.fetch((0, 0))) == []
        polling = bench.poll()
        bench.led[0].resign(ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "another epoch"))
        (data,) = await polling
        assert data.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    run(lambda: Bench(tmp_path, count=1, rate=0, throttled="*"), scenario)


def test_what_is_held_back_is_looked_at_again_when_the_settings_are_others(tmp_path: Path) -> None:
    async def scenario(bench: Bench) -> None:
        drop(bench, 0)
        append_now(bench.led[0], batch())
        assert brought(bench.fetch((0, 0))) == []
        bench.led[0].configure(topic_config(BrokerConfig(), {}))
        bench.clock.advance(2.0)
        assert brought(bench.fetch()) == [0]

    run(lambda: Bench(tmp_path, count=1, rate=0, throttled="*"), scenario)
