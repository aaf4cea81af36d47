"""Reads of a log: the batches and offsets they return, also during truncations, and reads of remote segments."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable
from functools import partialmethod
from pathlib import Path
from typing import Any

import pytest

from barnabas.errors import ApiError, BarnabasError, ErrorCode, StorageError
from barnabas.model import FileRegion, TopicPartition
from barnabas.records import Record, iter_headers, read_records, stamp
from barnabas.storage import Log, OsFileSystem
from barnabas.storage.filesystem import LogHealth
from barnabas.storage.leader_epochs import LeaderEpochs
from barnabas.storage.log_offsets import LogOffsets, OffsetTracker
from barnabas.storage.log_reader import LogReader, ReadResult
from barnabas.storage.segment import ActiveSegment
from barnabas.storage.segment_list import SegmentList

CLICKS = TopicPartition("clicks", 0)
LOCAL_START = 10
END = 20
MakeBatch = Callable[..., bytearray]
OpenLog = Callable[..., Log]
ReadAll = Callable[..., list[Record]]


def offsets_of(records: list[Record]) -> list[int]:
    return [record.offset for record in records]


def test_read_returns_the_offsets_at_its_time(open_log: OpenLog, make_batch: MakeBatch) -> None:
    log = open_log()
    log.append(make_batch(3), 0)
    log.flush()
    log.append(make_batch(2), 0)
    log.delete_records_before(1)
    result = log.read(1, 1_000, log.high_watermark)
    log.append(make_batch(1), 0)
    assert result.offsets == LogOffsets(1, 1, 5, 5, 5, 3)
    assert result.aborted_transactions == ()
    assert isinstance(result.batches, FileRegion)


def test_read_at_the_end_returns_offsets_and_no_batches(open_log: OpenLog, make_batch: MakeBatch) -> None:
    log = open_log()
    log.append(make_batch(3), 0)
    assert log.read(3, 1_000, 3) == ReadResult(b"", log.offsets, ())


def test_read_returns_whole_batches_within_the_limit(open_log: OpenLog, make_batch: MakeBatch) -> None:
    log = open_log(index_interval_bytes=300)
    size = len(make_batch(2))
    for _ in range(50):
        log.append(make_batch(2), 0)
    for offset in range(100):
        for batches in (1, 2, 7, 49, 60):
            for extra in (0, 1, size - 1):
                region = log.read(offset, batches * size + extra, 100).batches
                assert region
                assert region.position == offset // 2 * size
                assert region.length == min(batches, 50 - offset // 2) * size


def test_first_batch_is_returned_whole_even_if_it_is_too_large(open_log: OpenLog, make_batch: MakeBatch) -> None:
    log = open_log()
    log.append(make_batch(10), 0)
    log.append(make_batch(1), 0)
    region = log.read(0, 1, 11).batches
    assert region
    assert region.length == len(make_batch(10))
    assert not log.read(0, 1, 11, min_one_batch=False).batches
    assert not log.read(0, 0, 11, min_one_batch=False).batches


def test_read_ends_before_max_offset(open_log: OpenLog, make_batch: MakeBatch) -> None:
    log = open_log()
    for _ in range(5):
        log.append(make_batch(2), 0)
    size = len(make_batch(2))
    assert log.read(0, 10**6, 4).batches.length == 2 * size  # type: ignore[union-attr]
    assert log.read(0, 10**6, 5).batches.length == 2 * size  # type: ignore[union-attr]
    assert not log.read(4, 10**6, 4).batches
    assert not log.read(10, 10**6, 10).batches


def test_read_outside_of_the_log_is_refused(open_log: OpenLog, make_batch: MakeBatch) -> None:
    log = open_log()
    log.append(make_batch(2), 0)
    for offset in (-1, 3):
        with pytest.raises(ApiError) as caught:
            log.read(offset, 100, 2)
        assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_reader_that_follows_needs_no_lookup(open_log: OpenLog, make_batch: MakeBatch) -> None:
    log = open_log()
    log.append(make_batch(2), 0)
    assert not log.read(2, 1_000, 2).batches
    log._filesystem = None  # type: ignore[assignment]
    log._segments.active.filesystem.pread = None  # type: ignore[method-assign]
    try:
        log._segments.active.write = lambda chunks: os.writev(log._segments.active.file.fileno(), chunks)  # type: ignore[assignment]
        log.append(make_batch(3), 0)
        region = log.read(2, 10_000, 5).batches
        assert region
        assert not log.read(5, 1_000, 5).batches
    finally:
        del log._segments.active.filesystem.pread


def test_region_stays_readable_after_the_log_is_deleted(
    open_log: OpenLog, make_batch: MakeBatch, tmp_path: Path
) -> None:
    log = open_log()
    log.append(make_batch(2), 0)
    log.roll()
    log.append(make_batch(2), 0)
    regions = [log.read(0, 10_000, 4).batches, log.read(2, 10_000, 4).batches]
    log.abandon()
    shutil.rmtree(tmp_path / "clicks-0")
    assert not (tmp_path / "clicks-0").exists()
    for region in regions:
        assert region
        data = os.pread(region.file.fileno(), region.length, region.position)
        assert len(read_records(data, "clicks", 0)) == 2


# --- reads during a truncation ---


@pytest.mark.parametrize("offset", [0, 20, 38])
def test_reader_that_comes_while_a_log_is_truncated_has_nothing_for_now(
    offset: int, open_log: OpenLog, make_batch: MakeBatch, read_all: ReadAll, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A follower's consumers read on the event loop, and it is truncated beside that."""
    log = open_log(segment_bytes=1_500)
    for _ in range(20):
        log.append(make_batch(2), 0)
    seen: list[object] = []
    for name in ("truncate", "unlink", "fsync_folder"):

        def do_and_read(files: OsFileSystem, *arguments: Any, do: Callable[..., None]) -> None:
            do(files, *arguments)
            seen.append(log.read(0, 1 << 20, log.log_end_offset).batches)

        monkeypatch.setattr(OsFileSystem, name, partialmethod(do_and_read, do=getattr(OsFileSystem, name)))
    log.truncate_to(offset)
    monkeypatch.undo()
    assert seen
    assert set(seen) == {b""}
    assert offsets_of(read_all(log)) == list(range(offset))


def test_reader_that_is_overtaken_by_a_truncation_has_nothing_for_now(
    open_log: OpenLog, make_batch: MakeBatch, read_all: ReadAll, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log()
    log.append(make_batch(2), 0)
    log.append(make_batch(2), 0)
    pread = OsFileSystem.pread

    def be_overtaken(files: OsFileSystem, *arguments: Any) -> bytes:
        monkeypatch.undo()
        log.truncate_to(0)
        return pread(files, *arguments)

    monkeypatch.setattr(OsFileSystem, "pread", be_overtaken)
    assert not log.read(1, 1, 3).batches
    assert log.log_end_offset == 0
    assert read_all(log) == []


def test_what_a_reader_found_while_a_log_was_truncated_is_not_told(
    open_log: OpenLog, make_batch: MakeBatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log()
    log.append(make_batch(2), 0)
    find = LogReader._find

    def be_overtaken(*arguments: Any, **named: Any) -> Any:
        found = find(*arguments, **named)
        log.truncate_to(0)
        return found

    monkeypatch.setattr(LogReader, "_find", be_overtaken)
    assert not log.read(0, 1, 2).batches


def test_where_the_end_of_a_log_was_is_forgotten_when_it_is_truncated(open_log: OpenLog, make_batch: MakeBatch) -> None:
    log = open_log()
    for _ in range(4):
        log.append(make_batch(2), 0)
    end, size = log.log_end_offset, log.size_bytes
    log._on_truncated = lambda: log._segments.active.hint(end, size)  # as one that looked before does
    log.truncate_to(2)
    for _ in range(8):
        log.append(make_batch(1), 0)
    region = log.read(end, 1, log.log_end_offset).batches
    assert region
    assert next(iter_headers(log.bytes_of(region)))[1].base_offset == end


# --- remote segments ---


class FakeRemoteSegments:
    """Segments elsewhere, which hold the offsets up to 10; a read waits until `arrived` is set."""

    def __init__(self, batches: bytes) -> None:
        self.batches = batches
        self.arrived = asyncio.Event()
        self.error: BarnabasError | None = None
        self.asked: list[tuple[int, int, int, bool]] = []

    async def read(self, offset: int, max_bytes: int, max_offset: int, min_one_batch: bool) -> bytes:
        self.asked.append((offset, max_bytes, max_offset, min_one_batch))
        await self.arrived.wait()
        if self.error is not None:
            raise self.error
        return self.batches


class TrackerOfTieredLog(OffsetTracker):
    """The offsets of a log whose first segments are not local."""

    def __init__(self) -> None:
        super().__init__(0, END)
        self.current = self.current._replace(local_log_start_offset=LOCAL_START)


def tiered(folder: Path, remote: FakeRemoteSegments | None, local: bytearray) -> LogReader:
    active = ActiveSegment.create(OsFileSystem(), folder, LOCAL_START, 4096)
    stamp(local, 0, LOCAL_START, 0)
    active.write([local])
    active.note(0, len(local), END - 1, 0)
    segments, health = SegmentList(OsFileSystem(), folder, [], active), LogHealth(folder, CLICKS)
    return LogReader(CLICKS, segments, TrackerOfTieredLog(), LeaderEpochs(), health, remote)


def test_read_of_a_remote_segment_is_awaited(tmp_path: Path, make_batch: MakeBatch) -> None:
    async def scenario() -> None:
        remote = FakeRemoteSegments(bytes(make_batch(LOCAL_START)))
        reader = tiered(tmp_path, remote, make_batch(END - LOCAL_START))
        reading = asyncio.ensure_future(reader.read_remote(3, 500, END))
        await asyncio.sleep(0)
        assert remote.asked == [(3, 500, LOCAL_START, True)]
        assert not reading.done()
        remote.arrived.set()
        result = await reading
        assert result.batches == remote.batches
        assert result.offsets == LogOffsets(0, LOCAL_START, END, END, END, 0)
        assert [header.record_count for _, header in iter_headers(reader.bytes_of(result.batches))] == [LOCAL_START]

    asyncio.run(scenario())


def test_local_segment_of_a_log_with_remote_segments_is_read_at_once(tmp_path: Path, make_batch: MakeBatch) -> None:
    remote = FakeRemoteSegments(b"")
    local = make_batch(END - LOCAL_START)
    result = tiered(tmp_path, remote, local).read(LOCAL_START, 10_000, END)
    assert len(result.batches) == len(local)
    assert remote.asked == []


def test_error_of_a_remote_read_reaches_its_reader(tmp_path: Path, make_batch: MakeBatch) -> None:
    async def scenario() -> None:
        remote = FakeRemoteSegments(b"")
        remote.error = StorageError("the store does not answer")
        remote.arrived.set()
        reader = tiered(tmp_path, remote, make_batch(END - LOCAL_START))
        with pytest.raises(StorageError, match="does not answer"):
            await reader.read_remote(0, 500, END)
        assert reader.read(LOCAL_START, 10_000, END).batches  # the log is not offline

    asyncio.run(scenario())


@pytest.mark.parametrize("offset", [-1, LOCAL_START, END + 1])
def test_remote_read_outside_of_the_remote_segments_is_refused(
    offset: int, tmp_path: Path, make_batch: MakeBatch
) -> None:
    reader = tiered(tmp_path, FakeRemoteSegments(b""), make_batch(END - LOCAL_START))
    with pytest.raises(ApiError) as caught:
        asyncio.run(reader.read_remote(offset, 500, END))
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_local_read_below_the_local_log_start_is_refused(tmp_path: Path, make_batch: MakeBatch) -> None:
    reader = tiered(tmp_path, FakeRemoteSegments(b""), make_batch(END - LOCAL_START))
    with pytest.raises(ApiError, match=f"offset 9 is out of range; the log has offsets {LOCAL_START} to {END}"):
        reader.read(LOCAL_START - 1, 500, END)
