"""One log: read, truncated, closed; its epochs, and what Kafka's tools expect of its files."""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Callable
from functools import partialmethod
from pathlib import Path
from typing import Any

import pytest

from barnabas.errors import ApiError, ClosedError, ErrorCode
from barnabas.records import Record, iter_headers, read_records
from barnabas.storage import Log, OsFileSystem
from barnabas.storage.checkpoints import EpochStart
from barnabas.storage.log_reader import LogReader

START_MS = 1_700_000_000_000

OpenLog = Callable[..., Log]
MakeBatch = Callable[..., bytearray]
ReadAll = Callable[..., list[Record]]


def offsets_of(records: list[Record]) -> list[int]:
    return [record.offset for record in records]


def open_files(folder: Path) -> int:
    """Return how many files of a log this process has open; others' come and go with the garbage."""
    links = [os.path.realpath(descriptor) for descriptor in Path("/proc/self/fd").iterdir()]
    return sum(link.startswith(str(folder.resolve())) for link in links)


# --- read ---


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


def test_closing_closes_every_file(open_log: OpenLog, make_batch: MakeBatch, read_all: ReadAll) -> None:
    log = open_log(segment_bytes=300)
    for _ in range(30):
        log.append(make_batch(), 0)
    read_all(log)
    assert open_files(log.folder) > 1
    log.close()
    assert open_files(log.folder) == 0


def test_reading_many_segments_keeps_few_files_open(
    open_log: OpenLog, make_batch: MakeBatch, read_all: ReadAll
) -> None:
    log = open_log(segment_bytes=300)
    for _ in range(200):
        log.append(make_batch(), 0)
    log.flush()
    before = open_files(log.folder)
    read_all(log)
    assert log.segment_count > 90
    assert before <= open_files(log.folder) < before + 30


def test_closed_log_says_so(open_log: OpenLog, make_batch: MakeBatch) -> None:
    log = open_log()
    log.close()
    log.close()
    for call in (lambda: log.append(make_batch(), 0), lambda: log.read(0, 1, 1), log.flush, log.roll):
        with pytest.raises(ClosedError):
            call()


# --- truncation ---


@pytest.mark.parametrize("offset", range(0, 41))
def test_truncation_leaves_the_batches_before(
    offset: int, open_log: OpenLog, make_batch: MakeBatch, read_all: ReadAll
) -> None:
    log = open_log(segment_bytes=1_500, index_interval_bytes=200)
    for number in range(20):
        log.append(make_batch(2, timestamp_ms=START_MS + number), number // 4)
    log.flush()
    log.truncate_to(offset)
    end = offset // 2 * 2
    assert log.log_end_offset == log.high_watermark == end
    assert log.recovery_point <= end
    assert offsets_of(read_all(log)) == list(range(end))
    assert all(entry.start_offset < end for entry in log.leader_epochs.entries)
    assert log.append(make_batch(), 7).base_offset == end
    log.close()
    log = open_log(clean=True)
    assert offsets_of(read_all(log)) == list(range(end + 1))


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


def test_truncation_forgets_what_producers_wrote_after(open_log: OpenLog, make_batch: MakeBatch) -> None:
    log = open_log()
    for sequence in range(4):
        log.append(make_batch(producer_id=7, producer_epoch=0, base_sequence=sequence), 0)
    log.truncate_to(2)
    assert log.append(make_batch(producer_id=7, producer_epoch=0, base_sequence=1), 0).duplicate
    assert log.append(make_batch(producer_id=7, producer_epoch=0, base_sequence=2), 0).base_offset == 2


def test_truncation_below_the_start_begins_anew(open_log: OpenLog, make_batch: MakeBatch, read_all: ReadAll) -> None:
    log = open_log(segment_bytes=300)
    for _ in range(5):
        log.append(make_batch(), 0)
    log.truncate_to(0)
    assert log.log_end_offset == 0
    log.append(make_batch(2), 0)
    assert offsets_of(read_all(log)) == [0, 1]


# --- epochs ---


def test_epochs_are_remembered_over_a_restart(open_log: OpenLog, make_batch: MakeBatch) -> None:
    log = open_log()
    for epoch in (0, 0, 2, 2, 5):
        log.append(make_batch(), epoch)
    log.close()
    log = open_log(clean=True)
    assert log.leader_epochs.entries == (EpochStart(0, 0), EpochStart(2, 2), EpochStart(5, 4))
    assert log.leader_epochs.end_offset_for(2, log.log_end_offset) == EpochStart(2, 4)
    assert log.leader_epochs.end_offset_for(5, log.log_end_offset) == EpochStart(5, 5)


# --- what Kafka's tools expect ---


def test_indexes_say_what_kafkas_dump_tool_checks(open_log: OpenLog, make_batch: MakeBatch, tmp_path: Path) -> None:
    """kafka.tools.DumpLogSegments: an offset entry is the last offset of the batch at its position; a time entry
    is the greatest timestamp of the batch that ends with its offset; both ascend."""
    log = open_log(segment_bytes=5_000, index_interval_bytes=300)
    for number in range(100):
        log.append(make_batch(1 + number % 3, timestamp_ms=START_MS + number * 7 % 50 * 10), 0)
    log.close()
    entries = 0
    for path in (tmp_path / "clicks-0").glob("*.log"):
        base = int(path.stem)
        data = path.read_bytes()
        batches = dict(iter_headers(data))
        by_last_offset = {header.last_offset: header for header in batches.values()}
        previous = (-1, -1)
        for relative, position in struct.iter_unpack(">ii", path.with_suffix(".index").read_bytes()):
            assert batches[position].last_offset == base + relative
            assert (relative, position) > previous
            previous = (relative, position)
            entries += 1
        time_entries = list(struct.iter_unpack(">qi", path.with_suffix(".timeindex").read_bytes()))
        assert time_entries == sorted(set(time_entries))
        for timestamp_ms, relative in time_entries:
            assert by_last_offset[base + relative].max_timestamp_ms == timestamp_ms
        assert time_entries[-1][0] == max(header.max_timestamp_ms for header in batches.values())
    assert entries > 20


def test_log_that_nobody_touched_is_closed_without_work(
    open_log: OpenLog, make_batch: MakeBatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log()
    log.append(make_batch(), 0)
    log.close()
    log = open_log(clean=True)
    monkeypatch.setattr(os, "fsync", lambda _: pytest.fail("nothing to make durable"))
    log.close()
    monkeypatch.undo()
    assert open_log(clean=True).log_end_offset == 1


def test_log_can_start_over_further_on(open_log: OpenLog, make_batch: MakeBatch) -> None:
    log = open_log()
    for _ in range(3):
        log.append(make_batch(2), 1)
        log.roll()
    log.flush()
    log.start_over_at(50)
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (50, 50, 50)
    assert log.segment_count == 1
    assert log.leader_epochs.entries == ()
    assert log.append(make_batch(1), 1).base_offset == 50
    log = open_log(log_start_offset=50)
    assert (log.log_start_offset, log.log_end_offset) == (50, 51)
