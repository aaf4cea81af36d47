"""One log as a whole: closed, truncated; its epochs, and what Kafka's tools expect of its files."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from barnabas.errors import ClosedError
from barnabas.records import Record, iter_headers
from barnabas.storage import Log
from barnabas.storage.checkpoints import EpochStart

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


# --- the end ---


def test_closing_closes_every_file(open_log: OpenLog, make_batch: MakeBatch, read_all: ReadAll) -> None:
    log = open_log(segment_bytes=300)
    for _ in range(30):
        log.append(make_batch(), 0)
    read_all(log)
    assert open_files(log.folder) > 1
    log.close()
    assert open_files(log.folder) == 0


def test_closed_log_says_so(open_log: OpenLog, make_batch: MakeBatch) -> None:
    log = open_log()
    log.close()
    log.close()
    for call in (lambda: log.append(make_batch(), 0), lambda: log.read(0, 1, 1), log.flush, log.roll):
        with pytest.raises(ClosedError):
            call()


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


def test_log_can_start_over_further_on(open_log: OpenLog, make_batch: MakeBatch) -> None:
    log = open_log()
    for _ in range(3):
        log.append(make_batch(2), 1)
        log.roll()
    log.flush()
    log.truncate_fully_and_start_at(50)
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (50, 50, 50)
    assert log.segment_count == 1
    assert log.leader_epochs.entries == ()
    assert log.append(make_batch(1), 1).base_offset == 50
    log = open_log(log_start_offset=50)
    assert (log.log_start_offset, log.log_end_offset) == (50, 51)
