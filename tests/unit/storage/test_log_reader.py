"""What a read returns besides batches, and reads of segments that are not on the broker's disk."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from barnabas.errors import ApiError, BarnabasError, ErrorCode, StorageError
from barnabas.model import FileRegion, TopicPartition
from barnabas.records import iter_headers, stamp
from barnabas.storage import Log, OsFileSystem
from barnabas.storage.active_segment import ActiveSegment
from barnabas.storage.health import LogHealth
from barnabas.storage.leader_epochs import LeaderEpochs
from barnabas.storage.log_offsets import LogOffsets, OffsetTracker
from barnabas.storage.log_reader import LogReader, ReadResult
from barnabas.storage.segment_list import SegmentList

CLICKS = TopicPartition("clicks", 0)
LOCAL_START = 10
END = 20
MakeBatch = Callable[..., bytearray]
OpenLog = Callable[..., Log]


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
    with pytest.raises(ApiError, match=f"offset 9, the log has {LOCAL_START} to {END}"):
        reader.read(LOCAL_START - 1, 500, END)
