"""What a log holds, counted from its batches: each record once, and second copies where they are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.audit.batch_windows import RecordRange, batches_by_window
from barnabas.audit.identities import Producer
from barnabas.audit.stored_log import Gap, NotAuditableError, Repeat, SequenceRanges, StoredLog
from barnabas.audit.windows import tally
from barnabas.records import BatchBuilder, Compression, read_header
from barnabas.records.header import SEQUENCE_MAX, BatchHeader

WIDTH_MS = 60_000


def batch(
    offset: int, count: int, *, sequence: int = -1, producer_id: int = 7, timestamp_ms: int = 1
) -> tuple[BatchHeader, list[RecordRange]]:
    builder = BatchBuilder()
    for _ in range(count):
        builder.append(timestamp_ms, None, b"x")
    header = read_header(builder.build(producer_id, 0 if producer_id >= 0 else -1, sequence))
    return header._replace(base_offset=offset), [RecordRange(count, timestamp_ms // WIDTH_MS * WIDTH_MS)]


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 12)), min_size=1))
def test_stretches_are_a_set_of_numbers(given_stretches: list[tuple[int, int]]) -> None:
    ranges = SequenceRanges()
    seen: set[int] = set()
    for first, count in given_stretches:
        new = ranges.add(first, count)
        assert [each for begin, size in new for each in range(begin, begin + size)] == sorted(
            set(range(first, first + count)) - seen
        )
        seen |= set(range(first, first + count))
    assert [ranges.count_in(first, 5) for first in range(70)] == [
        len(seen & set(range(first, first + 5))) for first in range(70)
    ]
    missing = [each for begin, size in ranges.gaps() for each in range(begin, begin + size)]
    assert missing == sorted(set(range(min(seen), max(seen))) - seen)


def test_batches_are_counted_by_window_and_producer() -> None:
    stored = StoredLog(WIDTH_MS)
    stored.add(3, *batch(0, 10, sequence=0))
    stored.add(3, *batch(10, 5, sequence=10))
    stored.add(3, *batch(15, 2, sequence=15, timestamp_ms=WIDTH_MS))
    producer = Producer(7, 0, 3)
    assert stored.counted == {0: {producer: tally(producer, 0, 15, 0)}, WIDTH_MS: {producer: tally(producer, 15, 2, 0)}}
    assert stored.repeats == []


def test_second_copy_is_found_with_its_offset_and_counts_once() -> None:
    stored = StoredLog(WIDTH_MS)
    stored.add(0, *batch(0, 10, sequence=0))
    stored.add(0, *batch(10, 10, sequence=10))
    stored.add(0, *batch(20, 10, sequence=0))
    producer = Producer(7, 0, 0)
    assert stored.counted[0] == {producer: tally(producer, 0, 20, 0)}
    assert stored.repeats == [Repeat(0, producer, 10, 20)]


def test_missing_sequence_numbers_are_told() -> None:
    stored = StoredLog(WIDTH_MS)
    stored.add(0, *batch(0, 10, sequence=0))
    stored.add(0, *batch(10, 10, sequence=14))
    assert stored.gaps_of(Producer(7, 0, 0)) == [(10, 4)]
    assert stored.count_of(Producer(7, 0, 0), 8, 8) == 4
    assert stored.count_of(Producer(8, 0, 0), 8, 8) == 0


def test_numbers_that_begin_again_with_0_are_no_second_copies() -> None:
    stored = StoredLog(WIDTH_MS)
    stored.add(0, *batch(0, 10, sequence=SEQUENCE_MAX - 4))
    stored.add(0, *batch(10, 10, sequence=5))
    stored.add(0, *batch(20, 10, sequence=15))
    stored.add(0, *batch(30, 10, sequence=5))
    producer = Producer(7, 0, 0)
    assert stored.counted[0][producer] == tally(producer, SEQUENCE_MAX - 4, 30, 0)
    assert stored.repeats == [Repeat(0, producer, 10, 30)]


def test_records_without_a_producer_id_are_known_by_their_offsets() -> None:
    stored = StoredLog(WIDTH_MS)
    stored.add(2, *batch(100, 10, producer_id=-1))
    stored.add(2, *batch(110, 10, producer_id=-1))
    producer = Producer(-1, -1, 2)
    assert stored.counted[0] == {producer: tally(producer, 100, 20, 0)}


def test_compacted_log_is_refused() -> None:
    stored = StoredLog(WIDTH_MS)
    header, windows = batch(5, 10, sequence=0)
    with pytest.raises(NotAuditableError, match="partition 1, offset 5: the log is compacted"):
        stored.add(1, header._replace(record_count=9), windows)


def test_batch_over_several_windows_is_counted_by_its_records() -> None:
    stored = StoredLog(WIDTH_MS)
    header, _windows = batch(0, 10, sequence=0)
    stored.add(0, header, [RecordRange(4, 0), RecordRange(1, WIDTH_MS), RecordRange(5, 0)])
    producer = Producer(7, 0, 0)
    assert stored.counted[WIDTH_MS] == {producer: tally(producer, 4, 1, 0)}
    assert stored.counted[0] == {producer: tally(producer, 0, 4, 0).plus(tally(producer, 5, 5, 0))}


def test_windows_are_read_from_the_records_of_a_batch() -> None:
    builder = BatchBuilder(Compression.LZ4)
    for time_ms in (WIDTH_MS, 5, 6, 2 * WIDTH_MS):
        builder.append(time_ms, None, b"x")
    assert (builder.min_timestamp_ms, builder.max_timestamp_ms) == (5, 2 * WIDTH_MS)
    ((header, windows),) = batches_by_window(builder.build(7, 0, 0), WIDTH_MS)
    assert header.record_count == 4
    assert windows == [RecordRange(1, WIDTH_MS), RecordRange(2, 0), RecordRange(1, 2 * WIDTH_MS)]


def test_gap_is_in_the_window_of_the_record_behind_it() -> None:
    stored = StoredLog(WIDTH_MS)
    stored.add(0, *batch(0, 10, sequence=0))
    stored.add(0, *batch(10, 5, sequence=12, timestamp_ms=WIDTH_MS))
    assert list(stored.gaps()) == [Gap(WIDTH_MS, Producer(7, 0, 0), 10, 2)]
    stored.leave_out_before(2 * WIDTH_MS)
    assert list(stored.gaps()) == []
