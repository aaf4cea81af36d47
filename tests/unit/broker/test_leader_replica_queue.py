"""Appends that have to wait for the disk: they get in line, keep their order, and nobody else waits with them."""

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
from barnabas.errors import BarnabasError, ClosedError, StorageError
from barnabas.model import TopicPartition
from barnabas.records import BatchBuilder, Compression, read_header
from barnabas.storage import Log, LogConfig, OsFileSystem
from barnabas.storage.filesystem import DataFile
from tests.support.log_steps import append, append_now
from tests.support.replica_listeners import READS_CHANGED, RecordedReads

CLICKS = TopicPartition("clicks", 0)
TIMEOUT_S = 60


class SlowFiles(OsFileSystem):
    """A disk that makes no file without a permit."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.waiting = threading.Event()
        self.error = 0

    def open(self, path: Path, *, create: bool = False, writable: bool = True) -> DataFile:
        if create:
            self.waiting.set()
            assert self.gate.wait(TIMEOUT_S)
            if self.error:
                raise OSError(self.error, os.strerror(self.error), str(path))
        return super().open(path, create=create, writable=writable)


def batch(count: int = 1) -> bytes:
    builder = BatchBuilder()
    builder.append_many(1_000, [b"value"] * count)
    return bytes(builder.build())


class Bench:
    """A partition whose segments hold two batches."""

    def __init__(self, folder: Path) -> None:
        self.disk = SlowFiles()
        self.log = Log.open(folder, CLICKS, LogConfig(), ManualClock(), self.disk)
        self.partition = LeaderReplica(CLICKS, self.log, 0, self.config())

    def config(self, **settings: object) -> Any:
        named = {name.replace("_", "."): str(value) for name, value in settings.items()}
        return topic_config(BrokerConfig(), {"segment.bytes": str(2 * len(batch())), **named})

    async def roll_begins(self) -> None:
        assert await asyncio.to_thread(self.disk.waiting.wait, TIMEOUT_S)


Run = Callable[[Callable[[Bench], Coroutine[Any, Any, None]]], None]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    @asynccontextmanager
    async def bench() -> AsyncIterator[Bench]:
        made = Bench(tmp_path / "clicks-0")
        try:
            yield made
        finally:
            made.disk.gate.set()
            made.partition.mark_deleted()
            await asyncio.to_thread(made.log.abandon)

    async def on_bench(scenario: Callable[[Bench], Coroutine[Any, Any, None]]) -> None:
        async with bench() as made, asyncio.timeout(3 * TIMEOUT_S):
            await scenario(made)

    return lambda scenario: asyncio.run(on_bench(scenario))


def offsets(outcomes: list[Any]) -> list[int | None]:
    return [None if isinstance(each, BarnabasError) else each.base_offset for each in outcomes]


def test_appends_during_a_roll_keep_their_order_and_the_loop_waits_for_nothing(run: Run) -> None:
    async def scenario(bench: Bench) -> None:
        partition = bench.partition
        assert append_now(partition, batch()).base_offset == 0
        assert append_now(partition, batch()).base_offset == 1
        bench.disk.waiting.clear()
        bench.disk.gate.clear()
        first = partition.append_all([batch(), batch()])
        second = partition.append_all([batch()])
        assert isinstance(first, asyncio.Future)
        assert isinstance(second, asyncio.Future)
        await bench.roll_begins()
        # The disk waits; the loop reads, and everybody who needs no new segment is served.
        assert partition.read(0, 10_000, min_one_batch=True).batches
        assert not first.done()
        bench.disk.gate.set()
        assert offsets(await first) == [2, 3]
        assert offsets(await second) == [4]
        assert bench.log.segment_count == 3

    run(scenario)


def test_each_request_of_many_has_its_outcome_over_several_segments(run: Run) -> None:
    async def scenario(bench: Bench) -> None:
        outcomes = bench.partition.append_all([batch()] * 4 + [b"\xff" * 80] + [batch()] * 4)
        assert isinstance(outcomes, asyncio.Future)
        assert offsets(await outcomes) == [0, 1, 2, 3, None, 4, 5, 6, 7]
        assert bench.log.segment_count == 4

    run(scenario)


def test_a_log_is_let_go_of_when_its_roll_has_ended_and_rolls_no_more(run: Run, tmp_path: Path) -> None:
    async def scenario(bench: Bench) -> None:
        await append(bench.partition, batch())
        bench.disk.waiting.clear()
        bench.disk.gate.clear()
        rolling = asyncio.create_task(asyncio.to_thread(bench.log.roll))
        await bench.roll_begins()
        letting_go = asyncio.create_task(asyncio.to_thread(bench.log.abandon))
        # The folder gets another name after that, and its own may be given to a new log.
        await asyncio.wait([letting_go], timeout=0.2)
        assert not letting_go.done()
        bench.disk.gate.set()
        await rolling
        await letting_go
        assert (tmp_path / "clicks-0" / "00000000000000000001.log").exists()
        with pytest.raises(ClosedError):
            bench.log.roll()

    run(scenario)


def test_readers_are_told_of_appends_that_waited(run: Run) -> None:
    async def scenario(bench: Bench) -> None:
        reads = RecordedReads()
        bench.partition.watch(reads)
        for _ in range(5):
            await append(bench.partition, batch())
        assert reads.events == [len(batch())] * 5

    run(scenario)


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EMFILE])
def test_segment_that_cannot_be_made_refuses_the_append_and_the_next_one_tries_again(run: Run, error: int) -> None:
    async def scenario(bench: Bench) -> None:
        for _ in range(2):
            await append(bench.partition, batch())
        bench.disk.error = error
        for _ in range(2):
            with pytest.raises(StorageError, match=os.strerror(error)):
                await append(bench.partition, batch())
        assert not bench.log.is_offline
        assert bench.partition.read(0, 10_000, min_one_batch=True).batches
        bench.disk.error = 0
        assert (await append(bench.partition, batch())).base_offset == 2

    run(scenario)


def test_batches_are_compressed_anew_beside_the_loop_and_in_order(run: Run) -> None:
    async def scenario(bench: Bench) -> None:
        bench.partition.configure(bench.config(compression_type="gzip", segment_bytes=10_000))
        waiting = [bench.partition.append_all([batch(10)]) for _ in range(3)]
        outcomes = [await each for each in waiting if isinstance(each, asyncio.Future)]
        assert [offsets(each) for each in outcomes] == [[0], [10], [20]]
        region = bench.partition.read(0, 10_000, min_one_batch=True).batches
        assert region
        data = os.pread(region.file.fileno(), region.length, region.position)
        assert read_header(data).compression is Compression.GZIP

    run(scenario)


def test_large_appends_are_written_beside_the_loop_and_keep_their_order(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(bench: Bench) -> None:
        bench.partition.configure(bench.config(segment_bytes=3 * len(batch(40))))
        monkeypatch.setattr("barnabas.broker.leader_replica.AT_ONCE_BYTES_MAX", 3 * len(batch()))
        large = batch(40)
        waiting = [bench.partition.append_all([each]) for each in (large, batch(), b"\xff" * 900, large, batch())]
        assert all(isinstance(each, asyncio.Future) for each in waiting)
        outcomes = [await each for each in waiting if isinstance(each, asyncio.Future)]
        assert [offsets(each) for each in outcomes] == [[0], [40], [None], [41], [81]]
        bench.disk.error = errno.ENOSPC
        full = bench.partition.append_all([batch(60)])
        assert isinstance(full, asyncio.Future)
        assert offsets(await full) == [None]
        bench.disk.error = 0
        assert (await append(bench.partition, large)).base_offset == 82
        assert bench.log.high_watermark == bench.log.log_end_offset == 122

    run(scenario)


def test_everything_can_be_deleted_while_producers_go_on(run: Run) -> None:
    async def scenario(bench: Bench) -> None:
        await append(bench.partition, batch())
        deleting = asyncio.create_task(bench.partition.delete_records_before(1))
        appending = [asyncio.create_task(append(bench.partition, batch())) for _ in range(3)]
        assert await deleting == 1
        assert [(await each).base_offset for each in appending] == [1, 2, 3]
        assert bench.log.log_start_offset == 1

    run(scenario)


def test_index_that_is_missing_is_made_anew_beside_the_loop(run: Run, tmp_path: Path) -> None:
    async def scenario(bench: Bench) -> None:
        for _ in range(5):
            await append(bench.partition, batch())
        bench.log.flush()
        for path in (tmp_path / "clicks-0").glob("*.index"):
            path.unlink()
        reopened = Log.open(tmp_path / "clicks-0", CLICKS, LogConfig(), ManualClock(), OsFileSystem(), clean=True)
        for path in (tmp_path / "clicks-0").glob("*.index"):
            path.unlink()
        partition = LeaderReplica(CLICKS, reopened, 0, bench.config())
        reads = RecordedReads()
        partition.watch(reads)
        assert not partition.read(1, 10_000, min_one_batch=True).batches
        assert not partition.read(1, 10_000, min_one_batch=True).batches
        assert await reads.next() == READS_CHANGED
        region = partition.read(1, 10_000, min_one_batch=True).batches
        assert region
        assert (tmp_path / "clicks-0" / "00000000000000000000.index").exists()
        reopened.abandon()

    run(scenario)


def test_index_cut_short_while_it_is_open_is_made_anew(run: Run, tmp_path: Path) -> None:
    async def scenario(bench: Bench) -> None:
        bench.partition.configure(bench.config(segment_bytes=100 * len(batch()), index_interval_bytes=0))
        for _ in range(250):
            await append(bench.partition, batch())
        region = bench.partition.read(50, 1, min_one_batch=True).batches
        assert region
        os.truncate(tmp_path / "clicks-0" / "00000000000000000000.index", 12)
        reads = RecordedReads()
        bench.partition.watch(reads)
        bench.log._segments.sealed[0]._hints.clear()
        if not bench.partition.read(70, 1, min_one_batch=True).batches:
            assert await reads.next() == READS_CHANGED
        again = bench.partition.read(70, 1, min_one_batch=True).batches
        assert again
        data = os.pread(again.file.fileno(), again.length, again.position)
        assert read_header(data).base_offset == 70

    run(scenario)
