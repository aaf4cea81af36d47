"""`ScannedRanges.show` passes on the same records that the ranges had at first."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.audit import scanned_ranges
from barnabas.audit.batch_windows import RecordRange
from barnabas.audit.identities import Producer
from barnabas.audit.scanned_ranges import ScannedRanges

Seen = dict[tuple[int, int], tuple[Producer, int]]


class Reader:
    """Notes whose each record is, and its window."""

    def __init__(self) -> None:
        self.records: Seen = {}
        self.longest = 0

    def __call__(self, producer: Producer, offset: int, record_range: RecordRange) -> None:
        self.longest = max(self.longest, record_range.records)
        for each in range(offset, offset + record_range.records):
            assert (producer.partition, each) not in self.records
            self.records[producer.partition, each] = (producer, record_range.window_ms)


STRETCHES = st.lists(
    st.tuples(st.integers(0, 1), st.integers(7, 8), st.integers(0, 1), st.integers(1, 5), st.integers(0, 1)),
    max_size=40,
)
"""Partition, producer, how many offsets are missing before it, records and window."""


@given(STRETCHES)
def test_what_is_shown_again_is_what_was_seen(ranges: list[tuple[int, int, int, int, int]]) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(scanned_ranges, "RECORDS_MAX", 8)
        first, again = Reader(), Reader()
        seen = ScannedRanges(first)
        ends = [0, 0]
        for partition, producer_id, gap, records, window in ranges:
            offset = ends[partition] + gap
            seen(Producer(producer_id, 0, partition), offset, RecordRange(records, window * 60_000))
            ends[partition] = offset + records
        seen.show(again)
    assert again.records == first.records
    assert again.longest <= 8
    assert len(seen) <= len(ranges)


def test_batches_of_one_producer_in_a_row_are_kept_as_one() -> None:
    seen = ScannedRanges()
    for offset in range(0, 1_000, 10):
        seen(Producer(7, 0, 0), offset, RecordRange(10, 0))
        seen(Producer(7, 0, 1), offset, RecordRange(10, 0))
    assert len(seen) == 2


def test_too_many_are_not_kept_but_still_handed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scanned_ranges, "RANGES_MAX", 3)
    reader = Reader()
    seen = ScannedRanges(reader)
    for number in range(4):
        seen(Producer(number, 0, 0), number, RecordRange(1, 0))
    assert not seen.is_whole
    assert len(seen) == 0
    assert len(reader.records) == 4
