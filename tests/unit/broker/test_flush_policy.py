"""A partition whose topic has `flush.messages` or `flush.ms`: when messages are flushed, shown and acknowledged."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.leader_replica import LeaderReplica
from barnabas.broker.settings.static import BrokerConfig
from barnabas.broker.settings.topic_config import topic_config
from barnabas.clock import ManualClock
from barnabas.errors import ApiError, StorageError
from barnabas.model import Acks, TopicPartition
from barnabas.records import BatchBuilder
from barnabas.storage import Log, LogConfig, OsFileSystem
from barnabas.storage.filesystem import DataFile
from tests.support.log_steps import append_now
from tests.support.replica_listeners import READS_CHANGED, RecordedReads

CLICKS = TopicPartition("clicks", 0)
TIMEOUT_S = 60


class GatedFileSystem(OsFileSystem):
    """A disk whose fsync of a log waits for a permit, and fails if it is told to."""

    def __init__(self) -> None:
        self.permits = threading.Semaphore(0)
        self.begun = threading.Semaphore(0)
        self.fsyncs = 0
        self.fails = False
        self.error = errno.EIO
        self.unforeseen: Exception | None = None

    def fsync(self, file: DataFile) -> None:
        if file.path.suffix == ".log":
            self.fsyncs += 1
            self.begun.release()
            assert self.permits.acquire(timeout=TIMEOUT_S)
            if self.unforeseen:
                raise self.unforeseen
            if self.fails:
                raise OSError(self.error, os.strerror(self.error))

    def fsync_folder(self, path: Path) -> None:
        pass


class Bench:
    """A partition on a gated disk, and the events of its reads."""

    def __init__(self, folder: Path) -> None:
        self.disk = GatedFileSystem()
        self.log = Log.open(folder, CLICKS, LogConfig(), ManualClock(), self.disk)
        self.partition = LeaderReplica(CLICKS, self.log, 0, topic_config(BrokerConfig(), {}))
        self.reads = RecordedReads()
        self.partition.watch(self.reads)

    def configure(self, **settings: object) -> None:
        named = {name.replace("_", "."): str(value) for name, value in settings.items()}
        self.partition.configure(topic_config(BrokerConfig(), named))

    def append(self, acks: Acks = Acks.LEADER, count: int = 1) -> asyncio.Future[None] | None:
        builder = BatchBuilder()
        builder.append_many(1_000, [b"value"] * count)
        return self.partition.when_acknowledged(append_now(self.partition, builder.build()), acks)

    async def flush_begins(self) -> None:
        assert await asyncio.to_thread(self.disk.begun.acquire, timeout=TIMEOUT_S)

    async def exposed(self, offset: int) -> None:
        """Wait until the high watermark is there."""
        async with asyncio.timeout(TIMEOUT_S):
            while self.log.high_watermark < offset:
                await self.reads.next()
        assert self.log.high_watermark == offset


Run = Callable[[Callable[[Bench], Coroutine[Any, Any, None]]], None]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run a scenario on an event loop."""

    @asynccontextmanager
    async def bench() -> AsyncIterator[Bench]:
        made = Bench(tmp_path / "clicks-0")
        try:
            yield made
        finally:
            made.disk.permits.release(1_000)
            made.partition.mark_deleted()
            await asyncio.to_thread(made.log.abandon)

    async def scenario_on_bench(scenario: Callable[[Bench], Coroutine[Any, Any, None]]) -> None:
        async with bench() as made, asyncio.timeout(3 * TIMEOUT_S):
            await scenario(made)

    return lambda scenario: asyncio.run(scenario_on_bench(scenario))


def test_without_a_policy_everything_is_exposed_at_once(run: Run) -> None:
    async def scenario(bench: Bench) -> None:
        assert bench.append(Acks.ALL) is None
        assert bench.log.high_watermark == 1
        assert bench.disk.fsyncs == 0

    run(scenario)


def test_messages_are_exposed_after_the_flush_that_their_number_causes(run: Run) -> None:
    async def scenario(bench: Bench) -> None:
        bench.configure(flush_messages=3)
        assert bench.append() is None
        assert bench.append() is None
        assert bench.log.high_watermark == 0
        assert not bench.partition.read(0, 1_000, min_one_batch=True).batches
        acknowledgement = bench.append()
        await bench.flush_begins()
        assert bench.log.high_watermark == 0
        assert bench.reads.events == []
        bench.disk.permits.release()
        assert acknowledgement is not None
        await acknowledgement
        assert bench.log.high_watermark == 3
        assert len(bench.reads.events) == 1
        region = bench.partition.read(0, 1_000, min_one_batch=True).batches
        assert region
        assert bench.reads.events == [len(region)]

    run(scenario)


@pytest.mark.parametrize("policy", [{"flush_messages": 3}, {"flush_ms": 1}], ids=["messages", "ms"])
def test_policy_that_comes_after_messages_flushes_them_though_no_more_come(run: Run, policy: dict[str, int]) -> None:
    async def scenario(bench: Bench) -> None:
        bench.append(count=3)
        bench.configure(**policy)
        await bench.flush_begins()
        bench.disk.permits.release()
        await bench.partition.storage.flush()
        assert bench.log.recovery_point == 3

    run(scenario)


def test_messages_are_exposed_after_the_time(run: Run) -> None:
    async def scenario(bench: Bench) -> None:
        bench.disk.permits.release()
        bench.configure(flush_ms=1)
        assert bench.append() is None
        assert bench.log.high_watermark == 0
        await bench.exposed(1)

    run(scenario)


def test_acks_all_waits_and_does_not_leave_the_flush_to_the_policy(run: Run) -> None:
    async def scenario(bench: Bench) -> None:
        bench.configure(flush_messages=1_000)
        acknowledgement = bench.append(Acks.ALL)
        await bench.flush_begins()
        assert acknowledgement is not None
        assert not acknowledgement.done()
        bench.disk.permits.release()
        await acknowledgement
        assert bench.log.recovery_point == bench.log.high_watermark == 1

    run(scenario)


def test_without_acknowledgement_nobody_waits(run: Run) -> None:
    async def scenario(bench: Bench) -> None:
        bench.configure(flush_messages=1)
        assert bench.append(Acks.NONE) is None
        bench.disk.permits.release()
        await bench.exposed(1)

    run(scenario)


def test_one_flush_covers_all_that_came_while_another_ran(run: Run) -> None:
    async def scenario(bench: Bench) -> None:
        bench.configure(flush_messages=1)
        first = bench.append()
        await bench.flush_begins()
        later = [bench.append() for _ in range(50)]
        bench.disk.permits.release()
        assert first is not None
        await first
        assert bench.log.high_watermark == 1
        assert not any(each is None or each.done() for each in later)
        bench.disk.permits.release()
        await asyncio.gather(*(each for each in later if each))
        assert bench.log.high_watermark == 51
        assert bench.disk.fsyncs == 2

    run(scenario)


def test_failed_flush_is_not_acknowledged_and_not_tried_again(run: Run) -> None:
    async def scenario(bench: Bench) -> None:
        bench.configure(flush_messages=1)
        waiting = [bench.append(Acks.ALL), bench.append()]
        await bench.flush_begins()
        bench.disk.fails = True
        bench.disk.permits.release()
        for each in waiting:
            assert each is not None
            with pytest.raises(StorageError, match="flush failed"):
                await each
        assert bench.log.is_offline
        assert bench.reads.events[-1] == READS_CHANGED
        assert bench.log.high_watermark == 0
        with pytest.raises(StorageError, match="offline"):
            bench.append()
        assert bench.disk.fsyncs == 1

    run(scenario)


def test_flush_that_ends_with_an_error_that_nobody_foresaw_is_told_and_not_tried_again(run: Run) -> None:
    async def scenario(bench: Bench) -> None:
        bench.configure(flush_messages=1)
        bench.disk.unforeseen = RuntimeError("can't start new thread")
        flushed = bench.append(Acks.ALL)
        assert flushed is not None
        bench.disk.permits.release()
        with pytest.raises(StorageError, match="can't start new thread"):
            await flushed
        assert bench.log.is_offline
        assert bench.log.high_watermark == 0
        assert bench.disk.fsyncs == 1

    run(scenario)


def test_flush_that_could_not_begin_is_told_and_tried_again(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas.broker.flusher.RETRY_S", 0.0)

    async def scenario(bench: Bench) -> None:
        bench.configure(flush_messages=1)
        flush = Log.flush

        def fail(log: Log) -> None:
            monkeypatch.setattr(Log, "flush", flush)
            raise MemoryError

        monkeypatch.setattr(Log, "flush", fail)
        flushed = bench.append(Acks.ALL)
        assert flushed is not None
        with pytest.raises(StorageError, match="MemoryError"):
            await flushed
        bench.disk.permits.release()
        await bench.exposed(1)

    run(scenario)


def test_policy_can_be_set_changed_and_removed(run: Run) -> None:
    async def scenario(bench: Bench) -> None:
        bench.append()
        bench.configure(flush_messages=100)
        assert bench.log.high_watermark == 1
        bench.append()
        assert bench.log.high_watermark == 1
        bench.configure(flush_messages=2)
        await bench.flush_begins()
        bench.disk.permits.release()
        await bench.exposed(2)
        bench.append()
        bench.configure()
        assert bench.log.high_watermark == 3
        assert bench.append(Acks.ALL) is None

    run(scenario)


def test_deleted_topic_keeps_nobody_waiting(run: Run) -> None:
    async def scenario(bench: Bench) -> None:
        bench.configure(flush_messages=1)
        acknowledgement = bench.append()
        await bench.flush_begins()
        bench.partition.mark_deleted()
        assert acknowledgement is not None
        with pytest.raises(ApiError, match="clicks-0 was deleted"):
            await acknowledgement

    run(scenario)


def test_retry_of_what_is_not_flushed_yet_waits_too(run: Run) -> None:
    async def scenario(bench: Bench) -> None:
        bench.configure(flush_ms=10**9)
        builder = BatchBuilder()
        builder.append_many(1_000, [b"value"])
        batch = bytes(builder.build(producer_id=1, producer_epoch=0, base_sequence=0))
        first = bench.partition.when_acknowledged(append_now(bench.partition, batch), Acks.ALL)
        info = append_now(bench.partition, batch)
        second = bench.partition.when_acknowledged(info, Acks.ALL)
        assert info.duplicate
        assert first is not None
        assert second is not None
        assert not second.done()
        bench.disk.permits.release(2)
        await asyncio.gather(first, second)
        assert bench.log.high_watermark == 1

    run(scenario)


def test_flush_that_was_short_of_open_files_is_tried_again(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas.broker.flusher.RETRY_S", 0.0)

    async def scenario(bench: Bench) -> None:
        bench.configure(flush_messages=2)
        bench.disk.fails, bench.disk.error = True, errno.EMFILE
        flushed = bench.append(count=2)
        assert flushed is not None
        bench.disk.permits.release()
        with pytest.raises(StorageError, match="Too many open files"):
            await flushed
        bench.disk.fails = False
        bench.disk.permits.release()
        await bench.exposed(2)

    run(scenario)
