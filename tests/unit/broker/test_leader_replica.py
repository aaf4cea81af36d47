"""A partition with followers: its high watermark, its acknowledgements, and how it stops to lead."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.leader_replica import LeaderReplica
from barnabas.broker.replica_storage import Waiter
from barnabas.broker.settings.static import BrokerConfig
from barnabas.broker.settings.topic_config import topic_config
from barnabas.clock import ManualClock
from barnabas.errors import ApiError, ErrorCode
from barnabas.model import Acks, TopicPartition
from barnabas.records import BatchBuilder
from barnabas.replication.in_sync import RemoteReplicas
from barnabas.storage import Log, LogConfig, OsFileSystem
from barnabas.storage.checkpoints import EpochStart
from tests.support.log_steps import append_now
from tests.support.replica_listeners import (
    FETCH_AWAITED,
    LEADERSHIP_LOST,
    OFFSETS_MOVED,
    READS_CHANGED,
    RecordedAppends,
    RecordedReads,
)

CLICKS = TopicPartition("clicks", 0)
RESIGNED = ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "another broker leads")


def batch(count: int = 1) -> bytes:
    builder = BatchBuilder()
    builder.append_many(1_000, [b"value"] * count)
    return bytes(builder.build())


class Bench:
    """Broker 1 leads, 2 and 3 follow."""

    def __init__(
        self, folder: Path, isr: tuple[int, ...] = (1, 2, 3), *, is_read: bool = False, **settings: object
    ) -> None:
        self.log = Log.open(folder, CLICKS, LogConfig(), ManualClock(), OsFileSystem())
        named = {name.replace("_", "."): str(value) for name, value in settings.items()}
        config = topic_config(BrokerConfig(), named)
        self.replicas = RemoteReplicas(1, 4, (1, 2, 3), isr, log_end_offset=0, high_watermark=0, now_s=0.0)
        self.isr_changes_due: list[LeaderReplica] = []
        self.partition = LeaderReplica(
            CLICKS,
            self.log,
            4,
            config,
            leader=1,
            followers=self.replicas,
            on_isr_change_due=self.isr_changes_due.append,
        )
        self.reads, self.appends = RecordedReads(), RecordedAppends()
        if is_read:
            self.partition.watch(self.reads)
        self.partition.watch_log_end(self.appends)

    def append(self, acks: Acks = Acks.ALL) -> Waiter | None:
        return self.partition.when_acknowledged(append_now(self.partition, batch()), acks)

    def fetch(self, follower: int, offset: int, now_s: float = 1.0, log_start_offset: int = 0) -> None:
        self.partition.on_follower_fetch(follower, -1, offset, now_s, log_start_offset)


Scenario = Callable[[Bench], Coroutine[Any, Any, None]]


def run(bench: Callable[[], Bench], scenario: Scenario) -> None:
    async def on_bench() -> None:
        made = bench()
        try:
            async with asyncio.timeout(60):
                await scenario(made)
        finally:
            made.partition.mark_deleted()
            await made.partition.end()
            made.log.abandon()

    asyncio.run(on_bench())


def test_acks_all_waits_for_the_isr_and_acks_1_does_not(tmp_path: Path) -> None:
    async def scenario(bench: Bench) -> None:
        assert bench.append(Acks.LEADER) is None
        waiting = bench.append(Acks.ALL)
        assert waiting is not None
        assert bench.log.high_watermark == 0
        bench.fetch(2, 2)
        assert not waiting.done()
        bench.fetch(3, 1)
        assert bench.log.high_watermark == 1
        assert not waiting.done()
        bench.fetch(3, 2)
        assert waiting.done()
        assert bench.log.high_watermark == 2
        appended = (len(batch()), False)
        assert bench.appends.events == [appended, appended, FETCH_AWAITED, OFFSETS_MOVED, OFFSETS_MOVED]

    run(lambda: Bench(tmp_path / "clicks-0"), scenario)


def test_readers_that_wait_are_told_what_all_have_and_followers_that_it_is_urgent(tmp_path: Path) -> None:
    async def scenario(bench: Bench) -> None:
        bench.append(Acks.LEADER)
        assert bench.appends.events == [(len(batch()), True)]
        bench.fetch(2, 1)
        assert bench.reads.events == []
        bench.fetch(3, 1)
        assert bench.reads.events == [len(batch())]

    run(lambda: Bench(tmp_path / "clicks-0", is_read=True), scenario)


def test_readers_get_the_bytes_of_each_rise_of_the_high_watermark(tmp_path: Path) -> None:
    async def scenario(bench: Bench) -> None:
        bench.append(Acks.LEADER)
        bench.append(Acks.LEADER)
        for follower in (2, 3):
            bench.fetch(follower, 1)
        for follower in (2, 3):
            bench.fetch(follower, 2)
        assert bench.log.high_watermark == 2
        assert bench.reads.events == [len(batch()), len(batch())]

    run(lambda: Bench(tmp_path / "clicks-0", is_read=True), scenario)


def test_leader_that_is_alone_in_sync_acknowledges_at_once_unless_more_are_asked_for(tmp_path: Path) -> None:
    async def scenario(bench: Bench) -> None:
        assert bench.append(Acks.ALL) is None
        assert bench.log.high_watermark == 1
        config = topic_config(BrokerConfig(), {"min.insync.replicas": "2"})
        bench.partition.configure(config)
        with pytest.raises(ApiError) as raised:
            bench.partition.check_replicas()
        assert raised.value.code is ErrorCode.NOT_ENOUGH_REPLICAS

    run(lambda: Bench(tmp_path / "clicks-0", isr=(1,)), scenario)


def test_isr_that_shrinks_while_a_message_waits(tmp_path: Path) -> None:
    async def scenario(bench: Bench) -> None:
        bench.fetch(2, 0)
        waiting = bench.append(Acks.ALL)
        assert waiting is not None
        bench.fetch(2, 1)
        bench.replicas.begin_change((1, 2))
        bench.partition.isr_changed()
        assert not waiting.done()
        bench.replicas.adopt((1, 2))
        bench.partition.isr_changed()
        assert waiting.result() is None
        waiting = bench.append(Acks.ALL)
        assert waiting is not None
        bench.replicas.adopt((1,))
        bench.partition.isr_changed()
        error = waiting.exception()
        assert isinstance(error, ApiError)
        assert error.code is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        assert bench.log.high_watermark == 2

    run(lambda: Bench(tmp_path / "clicks-0", min_insync_replicas=2), scenario)


def test_with_a_flush_policy_a_new_leader_flushes_what_it_has_for_those_who_read(tmp_path: Path) -> None:
    async def scenario(bench: Bench) -> None:
        bench.append(Acks.LEADER)
        bench.partition.resign(RESIGNED)
        await bench.partition.end()
        replicas = RemoteReplicas(1, 5, (1, 2, 3), (1, 2), log_end_offset=1, high_watermark=0, now_s=0.0)
        again = LeaderReplica(CLICKS, bench.log, 5, bench.partition.config, leader=1, followers=replicas)
        reads = RecordedReads()
        again.watch(reads)
        again.on_follower_fetch(2, -1, 1, 1.0)
        await reads.next()
        assert bench.log.high_watermark == bench.log.recovery_point == 1
        again.resign(RESIGNED)
        await again.end()

    run(lambda: Bench(tmp_path / "clicks-0", flush_messages=1000), scenario)


def test_with_a_flush_policy_the_leader_counts_with_what_it_has_flushed(tmp_path: Path) -> None:
    async def scenario(bench: Bench) -> None:
        at_once = bench.append(Acks.LEADER)
        assert at_once is not None
        await at_once
        assert bench.log.recovery_point == 1
        assert bench.log.high_watermark == 0
        waiting = bench.append(Acks.ALL)
        assert waiting is not None
        bench.fetch(2, 2)
        bench.fetch(3, 2)
        await waiting
        assert bench.log.high_watermark == 2 == bench.log.recovery_point

    run(lambda: Bench(tmp_path / "clicks-0", flush_messages=1), scenario)


def test_isr_is_asked_for_when_a_follower_outside_has_caught_up(tmp_path: Path) -> None:
    async def scenario(bench: Bench) -> None:
        asked = bench.isr_changes_due
        bench.append(Acks.LEADER)
        bench.fetch(2, 1)
        assert not asked
        bench.fetch(3, 0)
        assert not asked
        bench.fetch(3, 1)
        assert asked == [bench.partition]

    run(lambda: Bench(tmp_path / "clicks-0", isr=(1, 2)), scenario)


def test_quiet_follower_counts_as_caught_up_until_its_last_fetch(tmp_path: Path) -> None:
    async def scenario(bench: Bench) -> None:
        for follower in (2, 3):
            bench.fetch(follower, 0, now_s=0.0)
        bench.partition.note_caught_up(2, -1, 0, at_s=100.0)
        bench.append(Acks.LEADER)
        assert bench.replicas.wanted_isr(105.0, 10.0, bench.log.log_end_offset, lambda _: True) == (1, 2)

    run(lambda: Bench(tmp_path / "clicks-0"), scenario)


def test_who_is_no_follower_is_told_so(tmp_path: Path) -> None:
    async def scenario(bench: Bench) -> None:
        with pytest.raises(ApiError, match="not a replica"):
            bench.fetch(7, 0)
        alone = LeaderReplica(CLICKS, bench.log, 5, bench.partition.config)
        with pytest.raises(ApiError, match="has no replica"):
            alone.on_follower_fetch(2, -1, 0, 0.0)

    run(lambda: Bench(tmp_path / "clicks-0"), scenario)


def test_epoch_begins_where_the_log_ended(tmp_path: Path) -> None:
    async def scenario(bench: Bench) -> None:
        assert bench.log.leader_epochs.entries == (EpochStart(4, 0),)

    run(lambda: Bench(tmp_path / "clicks-0"), scenario)


def test_who_leads_no_longer_ends_all_that_waits_and_takes_nothing(tmp_path: Path) -> None:
    async def scenario(bench: Bench) -> None:
        waiting = bench.append(Acks.ALL)
        assert waiting is not None
        appended = append_now(bench.partition, batch())
        bench.partition.resign(RESIGNED)
        await bench.partition.end()
        assert waiting.exception() is RESIGNED
        waiting = bench.partition.when_acknowledged(appended, Acks.ALL)
        assert waiting is not None
        assert waiting.exception() is RESIGNED
        assert bench.partition.append_all([batch(), batch()]) == [RESIGNED, RESIGNED]
        with pytest.raises(ApiError, match="another broker leads"):
            bench.partition.check_epoch(4)
        assert (bench.reads.events[-1], bench.appends.events[-1]) == (READS_CHANGED, LEADERSHIP_LOST)
        assert bench.log.log_end_offset == 2

    run(lambda: Bench(tmp_path / "clicks-0", is_read=True), scenario)


def test_append_in_line_is_refused_when_its_turn_comes_after_the_end(tmp_path: Path) -> None:
    async def scenario(bench: Bench) -> None:
        append_now(bench.partition, batch())
        append_now(bench.partition, batch())
        outcomes = bench.partition.append_all([batch(), batch()])
        behind = bench.partition.append_all([batch()])
        assert isinstance(outcomes, asyncio.Future)
        assert isinstance(behind, asyncio.Future)
        bench.partition.resign(RESIGNED)
        await bench.partition.end()
        assert behind.result() == [RESIGNED]
        assert outcomes.result() == [RESIGNED, RESIGNED]
        assert bench.log.log_end_offset == 2

    run(lambda: Bench(tmp_path / "clicks-0", segment_bytes=2 * len(batch())), scenario)


def test_who_may_not_lead_any_more_refuses_until_it_is_certain(tmp_path: Path) -> None:
    async def scenario(bench: Bench) -> None:
        waiting = bench.append(Acks.ALL)
        assert waiting is not None
        bench.partition.fence()
        outcomes = bench.partition.append_all([batch()])
        assert isinstance(outcomes, list)
        (refusal,) = outcomes
        assert isinstance(refusal, ApiError)
        assert refusal.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        with pytest.raises(ApiError, match="may no longer be the leader"):
            bench.partition.check_epoch(-1)
        assert not waiting.done()
        bench.partition.unfence()
        bench.partition.check_epoch(-1)
        bench.fetch(2, 1)
        bench.fetch(3, 1)
        assert waiting.done()

    run(lambda: Bench(tmp_path / "clicks-0"), scenario)


def test_records_are_deleted_when_all_in_sync_replicas_have_deleted_them(tmp_path: Path) -> None:
    """A new leader would bring them back."""

    async def scenario(bench: Bench) -> None:
        for _ in range(3):
            bench.append()
        bench.fetch(2, 3)
        bench.fetch(3, 3)
        assert await bench.partition.delete_records_before(2) == 2
        assert bench.appends.events[-1] == FETCH_AWAITED
        waiting = bench.partition.when_deleted(2)
        assert waiting is not None
        bench.fetch(2, 3, log_start_offset=2)
        assert not waiting.done()
        bench.fetch(3, 3, log_start_offset=2)
        await waiting
        assert bench.partition.when_deleted(2) is None

    run(lambda: Bench(tmp_path), scenario)


def test_deletion_waits_for_no_replica_that_is_out_of_sync_and_no_longer_than_the_epoch(tmp_path: Path) -> None:
    async def scenario(bench: Bench) -> None:
        for _ in range(3):
            bench.append()
        bench.fetch(2, 3)
        bench.fetch(3, 3)
        await bench.partition.delete_records_before(2)
        waiting = bench.partition.when_deleted(2)
        assert waiting is not None
        bench.replicas.adopt((1,))
        bench.partition.isr_changed()
        await waiting
        bench.replicas.adopt((1, 2))
        waiting = bench.partition.when_deleted(2)
        assert waiting is not None
        bench.partition.resign(RESIGNED)
        with pytest.raises(ApiError):
            await waiting

    run(lambda: Bench(tmp_path), scenario)


def test_silence_of_an_earlier_life_says_nothing_and_disturbs_no_append(tmp_path: Path) -> None:
    """The connection of a broker whose machine lost its power is not known to be gone."""

    async def scenario(bench: Bench) -> None:
        bench.partition.on_follower_fetch(2, 9, 0, 1.0)

        class Session(RecordedAppends):
            def on_appended(self, size: int, *, is_urgent: bool) -> None:
                bench.partition.note_caught_up(2, 9, 0, 5.0)
                super().on_appended(size, is_urgent=is_urgent)

        session = Session()
        bench.partition.watch_log_end(session)
        bench.partition.on_follower_fetch(2, 10, 0, 2.0)
        assert bench.append(Acks.LEADER) is None
        assert session.events

    run(lambda: Bench(tmp_path), scenario)


def test_log_is_exchanged_for_its_copy_and_those_who_wait_go_on(tmp_path: Path) -> None:
    async def scenario(bench: Bench) -> None:
        bench.append()
        for follower in (2, 3):
            bench.fetch(follower, 1)
        waiting = bench.append()
        assert waiting is not None

        async def complete() -> None:
            deleting = asyncio.create_task(bench.partition.delete_records_before(1))
            await asyncio.sleep(0)
            assert not deleting.done(), "the log that goes is not told any more where it begins"
            deletions.append(deleting)

        def swap() -> Log:
            old.flush()
            shutil.copytree(old.folder, tmp_path / "copy")
            return Log.open(tmp_path / "copy", CLICKS, LogConfig(), ManualClock(), OsFileSystem(), high_watermark=1)

        deletions: list[asyncio.Task[int]] = []
        old = bench.log
        await bench.partition.storage.exchange_log(complete, swap, bench.partition.configure)
        new = bench.partition.log
        assert new is not old
        assert (new.log_end_offset, new.high_watermark) == (2, 1)
        assert not waiting.done()
        for follower in (2, 3):
            bench.fetch(follower, 2)
        await waiting
        assert new.high_watermark == 2
        assert await deletions[0] == 1
        assert (old.log_start_offset, new.log_start_offset) == (0, 1)
        bench.append(Acks.LEADER)
        assert (old.log_end_offset, new.log_end_offset) == (2, 3)
        new.abandon()

    run(lambda: Bench(tmp_path / "log"), scenario)
