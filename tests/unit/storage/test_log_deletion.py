"""One log: records deleted by offset, by age and by size, while others read."""

from __future__ import annotations

import os
import struct
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from barnabas.clock import ManualClock
from barnabas.errors import ApiError, ErrorCode
from barnabas.model import OffsetAndTimestamp
from barnabas.records import Record, read_records
from barnabas.storage import Log
from barnabas.storage.log_config import CleanupPolicy
from tests.support.compaction_steps import Keyed, keyed_batch
from tests.support.log_steps import delete_old_segments, delete_records_before

START_MS = 1_700_000_000_000
DAY_S = 24 * 3600

OpenLog = Callable[..., Log]
MakeBatch = Callable[..., bytearray]
ReadAll = Callable[..., list[Record]]


def fill(log: Log, make_batch: MakeBatch, batches: int = 3, **batch: int) -> None:
    """Append batches of ten records, each in a segment of its own."""
    for _ in range(batches):
        log.roll()
        log.append(make_batch(10, **batch), 0)


def segments_in(folder: Path) -> list[int]:
    return sorted(int(path.stem) for path in folder.glob("*.log"))


def test_deleted_records_cannot_be_read(open_log: OpenLog, make_batch: MakeBatch, read_all: ReadAll) -> None:
    log = open_log()
    log.append(make_batch(10), 0)
    assert log.delete_records_before(4) == 4
    assert log.log_start_offset == 4
    with pytest.raises(ApiError) as caught:
        log.read(3, 1_000, 10)
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert [record.offset for record in read_all(log)] == list(range(4, 10))


def test_start_of_the_log_never_goes_back(open_log: OpenLog, make_batch: MakeBatch) -> None:
    log = open_log()
    log.append(make_batch(10), 0)
    log.delete_records_before(7)
    assert log.delete_records_before(2) == 7


@pytest.mark.parametrize("offset", [-1, 11])
def test_only_exposed_records_can_be_deleted(offset: int, open_log: OpenLog, make_batch: MakeBatch) -> None:
    log = open_log()
    log.append(make_batch(10), 0)
    with pytest.raises(ApiError) as caught:
        log.delete_records_before(offset)
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    log.hold_high_watermark()
    log.append(make_batch(10), 0)
    with pytest.raises(ApiError, match="the high watermark is 10"):
        log.delete_records_before(15)


def test_whole_segments_are_renamed_and_later_removed(
    open_log: OpenLog, make_batch: MakeBatch, read_all: ReadAll, tmp_path: Path
) -> None:
    folder = tmp_path / "clicks-0"
    log = open_log()
    fill(log, make_batch)
    region = log.read(0, 10_000, 30).batches
    log.delete_records_before(25)
    assert segments_in(folder) == [0, 10, 20]
    renamed = log.rename_deleted_files()
    assert segments_in(folder) == [20]
    assert {path.name for path in renamed} == {
        f"{base:020}{suffix}.deleted" for base in (0, 10) for suffix in (".log", ".index", ".timeindex")
    }
    assert all(path.exists() for path in renamed)
    assert not list(folder.glob(f"{10:020}.snapshot"))
    assert log.rename_deleted_files() == []
    assert [record.offset for record in read_all(log)] == list(range(25, 30))
    assert region
    data = os.pread(region.file.fileno(), region.length, region.position)
    assert [record.offset for record in read_records(data, "clicks", 0)] == list(range(10))


def test_deleting_everything_frees_the_active_segment_too(
    open_log: OpenLog, make_batch: MakeBatch, tmp_path: Path
) -> None:
    log = open_log()
    fill(log, make_batch)
    delete_records_before(log, 30)
    log.rename_deleted_files()
    assert segments_in(tmp_path / "clicks-0") == [30]
    assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (30, 30, 0)
    assert log.append(make_batch(1), 0).base_offset == 30


def test_restart_removes_what_was_not_renamed_yet(
    open_log: OpenLog, make_batch: MakeBatch, read_all: ReadAll, tmp_path: Path
) -> None:
    log = open_log()
    fill(log, make_batch)
    log.delete_records_before(15)
    log.abandon()
    log = open_log(log_start_offset=15)
    assert log.log_start_offset == 15
    assert segments_in(tmp_path / "clicks-0") == [10, 20]
    assert [record.offset for record in read_all(log)] == list(range(15, 30))


def test_start_beyond_the_end_is_not_believed(
    open_log: OpenLog, make_batch: MakeBatch, read_all: ReadAll, caplog: pytest.LogCaptureFixture
) -> None:
    log = open_log()
    fill(log, make_batch)
    log.abandon()
    log = open_log(log_start_offset=31)
    assert "the checkpoint has log start offset 31, but the log ends at offset 30" in caplog.text
    assert len(read_all(log)) == 30
    # Another replica may have what this one had; it is not to be led by one that lacks it.
    assert log.lost_from == 30


def test_searches_by_time_begin_with_the_log(open_log: OpenLog, make_batch: MakeBatch) -> None:
    log = open_log()
    log.append(make_batch(10, timestamp_ms=START_MS + 5_000), 0)
    log.append(make_batch(10, timestamp_ms=START_MS), 0)
    log.delete_records_before(8)
    assert log.time_search().first_at(START_MS) == OffsetAndTimestamp(8, START_MS + 5_008)
    assert log.time_search().latest() == OffsetAndTimestamp(9, START_MS + 5_009)
    log.delete_records_before(10)
    assert log.time_search().first_at(START_MS + 5) == OffsetAndTimestamp(15, START_MS + 5)
    assert log.time_search().latest() == OffsetAndTimestamp(19, START_MS + 9)


def test_epochs_of_deleted_segments_are_forgotten(open_log: OpenLog, make_batch: MakeBatch) -> None:
    log = open_log()
    for epoch in range(5):
        log.roll()
        log.append(make_batch(10), epoch)
    log.delete_records_before(25)
    assert [entry.epoch for entry in log.leader_epochs.entries] == [2, 3, 4]
    log.delete_records_before(50)
    assert log.leader_epochs.latest == 4


def test_producers_are_known_although_their_batches_were_deleted(open_log: OpenLog, make_batch: MakeBatch) -> None:
    producer = {"producer_id": 7, "producer_epoch": 0}
    log = open_log()
    log.append(make_batch(5, base_sequence=0, **producer), 0)
    log.delete_records_before(5)
    log.rename_deleted_files()
    log.close()
    log = open_log(clean=True, log_start_offset=5)
    assert log.append(make_batch(5, base_sequence=0, **producer), 0).duplicate
    assert log.append(make_batch(5, base_sequence=5, **producer), 0).base_offset == 5


def test_truncation_into_the_first_batch_begins_anew(open_log: OpenLog, make_batch: MakeBatch) -> None:
    log = open_log()
    log.append(make_batch(10), 3)
    log.delete_records_before(4)
    log.truncate_to(6)
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (4, 4, 4)
    assert not log.leader_epochs.entries
    assert not open_log(log_start_offset=4).leader_epochs.entries


# --- retention ---


def test_segments_with_old_records_are_deleted(
    open_log: OpenLog, make_batch: MakeBatch, read_all: ReadAll, clock: ManualClock
) -> None:
    log = open_log(retention_ms=7 * DAY_S * 1000)
    fill(log, make_batch, 2)
    clock.advance(4 * DAY_S)
    fill(log, make_batch, 1, timestamp_ms=clock.time_ms())
    assert delete_old_segments(log) == 0
    clock.advance(4 * DAY_S)
    assert delete_old_segments(log) == 2
    assert log.log_start_offset == 20
    assert [record.offset for record in read_all(log)] == list(range(20, 30))


def test_active_segment_goes_when_all_of_its_records_are_old(
    open_log: OpenLog, make_batch: MakeBatch, clock: ManualClock
) -> None:
    log = open_log(retention_ms=1_000, segment_ms=DAY_S * 1000)
    fill(log, make_batch, 2)
    clock.advance(2)
    assert delete_old_segments(log) == 2
    assert (log.log_start_offset, log.log_end_offset, log.segment_count) == (20, 20, 1)
    assert delete_old_segments(log) == 0


def test_log_that_is_too_large_loses_its_oldest_segments(open_log: OpenLog, make_batch: MakeBatch) -> None:
    log = open_log(retention_ms=-1)
    fill(log, make_batch, 5)
    log.configure(log.config.override({"retention.bytes": str(log.size_bytes // 5 * 2)}))
    assert delete_old_segments(log) == 3
    assert log.log_start_offset == 30


def test_segment_without_appends_is_closed_after_its_time(
    open_log: OpenLog, make_batch: MakeBatch, clock: ManualClock
) -> None:
    log = open_log(retention_ms=-1, segment_ms=60_000)
    fill(log, make_batch, 1, timestamp_ms=START_MS - 10 * DAY_S * 1000)
    delete_old_segments(log)
    assert log.segment_count == 1
    clock.advance(61)
    delete_old_segments(log)
    assert log.segment_count == 2
    clock.advance(61)
    delete_old_segments(log)
    assert log.segment_count == 2


def test_records_without_timestamps_are_as_old_as_the_file(
    open_log: OpenLog, make_batch: MakeBatch, clock: ManualClock, tmp_path: Path
) -> None:
    log = open_log(retention_ms=1_000)
    log.append(make_batch(1, timestamp_ms=-1), 0)
    path = tmp_path / "clicks-0" / f"{0:020}.log"
    os.utime(path, (START_MS / 1000, START_MS / 1000))
    assert delete_old_segments(log) == 0
    clock.advance(2)
    assert delete_old_segments(log) == 1


def test_records_above_the_high_watermark_are_kept(
    open_log: OpenLog, make_batch: MakeBatch, clock: ManualClock
) -> None:
    log = open_log(retention_ms=1_000)
    fill(log, make_batch, 1)
    log.hold_high_watermark()
    fill(log, make_batch, 1)
    clock.advance(2)
    assert delete_old_segments(log) == 1
    assert log.log_start_offset == 10


def test_looking_for_old_segments_opens_no_more_than_it_deletes(
    open_log: OpenLog, make_batch: MakeBatch, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(retention_ms=1_000)
    fill(log, make_batch, 20)
    log.close()
    log = open_log(clean=True, retention_ms=1_000)
    opened: list[str] = []
    original = log._filesystem.open

    def counting(path: Path, **kwargs: bool) -> object:
        opened.append(path.name)
        return original(path, **kwargs)

    monkeypatch.setattr(log._filesystem, "open", counting)
    assert delete_old_segments(log) == 0
    assert len(opened) <= 1


def test_deletion_runs_beside_flushes_and_appends(
    open_log: OpenLog, make_batch: MakeBatch, read_all: ReadAll, tmp_path: Path
) -> None:
    log = open_log(segment_bytes=1_500, retention_ms=-1, retention_bytes=5_000)
    ends = threading.Event()
    errors: list[Exception] = []

    def work_on_files() -> None:
        while not ends.is_set():
            try:
                log.flush()
                for path in log.rename_deleted_files():
                    path.unlink()
            except Exception as error:  # noqa: BLE001 - it is raised where the test sees it
                errors.append(error)
                return

    threads = [threading.Thread(target=work_on_files) for _ in range(2)]
    for thread in threads:
        thread.start()
    for number in range(600):
        log.append(make_batch(3, producer_id=1, producer_epoch=0, base_sequence=3 * number), 0)
        if number % 7 == 0:
            delete_old_segments(log)
        if number % 50 == 0:
            log.delete_records_before(log.log_end_offset - 1)
    ends.set()
    for thread in threads:
        thread.join()
    assert errors == []
    delete_old_segments(log)
    start, end = log.log_start_offset, log.log_end_offset
    assert [record.offset for record in read_all(log)] == list(range(start, end))
    log.close()
    log = open_log(clean=True, log_start_offset=start)
    assert [record.offset for record in read_all(log)] == list(range(start, end))
    assert log.append(make_batch(3, producer_id=1, producer_epoch=0, base_sequence=3 * 599), 0).duplicate


@pytest.mark.parametrize("content", [b"zeros", b"", b"early"])
def test_nothing_is_deleted_on_the_word_of_an_index(
    open_log: OpenLog, make_batch: MakeBatch, clock: ManualClock, tmp_path: Path, content: bytes, read_all: ReadAll
) -> None:
    """An index by time that says that all is old: the batches say otherwise."""
    log = open_log(retention_ms=60_000)
    for _ in range(17):
        log.append(make_batch(10, timestamp_ms=clock.time_ms()), 0)
    log.roll()
    log.append(make_batch(1, timestamp_ms=clock.time_ms()), 0)
    log.close()
    index = tmp_path / "clicks-0" / "00000000000000000000.timeindex"
    size = index.stat().st_size
    index.write_bytes({b"zeros": bytes(size), b"": b"", b"early": struct.pack(">qI", 5, 9)}[content])
    for clean in (True, False):
        reopened = open_log(clean=clean, recovery_point=171, retention_ms=60_000)
        assert delete_old_segments(reopened) == 0
        assert len(read_all(reopened)) == 171
        assert reopened.time_search().latest().timestamp_ms == clock.time_ms() + 9
        reopened.abandon()
    clock.advance(120)
    old = open_log(clean=True, retention_ms=60_000)
    assert delete_old_segments(old) == 2


def test_compacted_log_still_closes_a_segment_that_is_old(open_log: OpenLog, clock: ManualClock) -> None:
    log = open_log(cleanup_policy=frozenset({CleanupPolicy.COMPACT}), segment_ms=1_000, retention_ms=1)
    log.append(keyed_batch([Keyed(b"key", b"value", 1)]), 0)
    clock.advance(2)
    assert delete_old_segments(log) == 0
    assert (log.segment_count, log.log_start_offset) == (2, 0)
