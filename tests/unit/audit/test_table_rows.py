"""Rows against the log: each offset once up to where loads have come, and what is not says where."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.audit import table_rows
from barnabas.audit.account import offsets_of
from barnabas.audit.batch_windows import RecordRange
from barnabas.audit.findings import RANGES_MAX, Kind
from barnabas.audit.identities import Producer
from barnabas.audit.offset_counts import BLOCK
from barnabas.audit.stored_log import NotAuditableError
from barnabas.audit.table_rows import TableRows
from barnabas.audit.windows import tally

WIDTH_MS = 60_000
ONE = Producer(7, 0, 0)

Found = list[tuple[Kind, int, tuple[tuple[int, int], ...]]]


def rows_of(offsets: list[int], *, begin: int = 0, end: int = 20, complete_until_ms: int | None = None) -> TableRows:
    rows = TableRows({0: begin}, {0: end}, WIDTH_MS, complete_until_ms)
    rows.add(0, np.array(offsets, np.int64), np.full(len(offsets), 5))
    return rows


def found(rows: TableRows) -> Found:
    rows.check_is_over()
    return [(each.kind, each.records, each.offsets) for each in rows.findings]


def test_table_that_has_each_record_once_is_complete() -> None:
    rows = rows_of([*range(10, 20), *range(10)])
    rows.check(ONE, 0, RecordRange(12, 0))
    rows.check(ONE, 12, RecordRange(8, 0))
    assert found(rows) == []
    assert (rows.records, rows.tallies) == (20, {0: {0: tally(offsets_of(0), 0, 20, 0)}})


def test_missing_rows_and_second_copies_are_found_with_their_offsets_and_producer() -> None:
    rows = rows_of([0, 1, 1, 1, 2, 5, 6, 7, 9])
    rows.check(ONE, 0, RecordRange(10, 0))
    assert found(rows) == [(Kind.LOST, 3, ((3, 2), (8, 1))), (Kind.DOUBLED, 2, ((1, 1),))]
    assert {each.producer for each in rows.findings} == {ONE}


def test_what_is_not_loaded_yet_is_open_and_late_where_the_table_called_itself_complete() -> None:
    rows = rows_of(list(range(20)), complete_until_ms=WIDTH_MS)
    rows.check(ONE, 0, RecordRange(22, 0))
    rows.check(ONE, 22, RecordRange(3, WIDTH_MS))
    assert found(rows) == [(Kind.LATE, 2, ((20, 2),)), (Kind.OPEN, 3, ((22, 3),))]
    assert rows.waiting == 5


def test_rows_that_no_log_ever_had_are_extra() -> None:
    rows = rows_of([0, 1, 5, 25])
    rows.check(ONE, 0, RecordRange(2, 0))
    assert found(rows) == [(Kind.EXTRA, 1, ((25, 1),)), (Kind.EXTRA, 1, ((5, 1),))]


def test_rows_of_no_offset_that_a_log_can_have_are_extra() -> None:
    rows = rows_of([-1, 0, 1, -(2**63)], end=2)
    rows.check(ONE, 0, RecordRange(2, 0))
    assert found(rows) == [(Kind.EXTRA, 2, ((-1, 1), (-(2**63), 1)))]


def test_rows_of_before_the_logs_begin_are_counted_and_not_compared() -> None:
    rows = rows_of(list(range(3, 20)), begin=10)
    rows.check(ONE, 8, RecordRange(12, 0))  # a batch of which the log still has the end
    assert found(rows) == []
    assert rows.records == 17


def test_partition_of_which_the_table_has_nothing_is_to_be_loaded() -> None:
    rows = rows_of([])
    rows.check(ONE._replace(partition=4), 0, RecordRange(3, 0))
    rows.check(ONE, 0, RecordRange(20, 0))
    assert found(rows) == [(Kind.OPEN, 3, ((0, 3),)), (Kind.LOST, 20, ((0, 20),))]


def test_more_gaps_than_are_named_are_counted() -> None:
    rows = rows_of(list(range(0, 6_000, 2)), end=6_000)
    rows.check(ONE, 0, RecordRange(6_000, 0))
    ((kind, records, offsets),) = found(rows)
    assert (kind, records, len(offsets)) == (Kind.LOST, 3_000, RANGES_MAX)


def test_more_strays_than_are_named_are_counted_whether_they_stand_together_or_not() -> None:
    alone = rows_of([*range(0, 6_000, 2), 0], begin=0, end=6_000)
    ((kind, records, offsets),) = found(alone)
    assert (kind, records, len(offsets), offsets[:2]) == (Kind.EXTRA, 3_001, RANGES_MAX, ((0, 1), (2, 1)))
    assert found(rows_of(list(range(5, 5_000)), end=6_000)) == [(Kind.EXTRA, 4_995, ((5, 4_995),))]


def test_rows_with_gaps_everywhere_need_too_much_memory_and_others_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_rows, "MEMORY_BYTES_MAX", 3 * BLOCK)
    rows_of(list(range(10 * BLOCK)), end=10 * BLOCK)
    with pytest.raises(NotAuditableError, match="--since"):
        rows_of(list(range(0, 10 * BLOCK, BLOCK // 2)), end=10 * BLOCK)


@given(st.lists(st.integers(0, 39), max_size=80), st.lists(st.integers(1, 9), max_size=12), st.integers(0, 40))
def test_what_is_found_is_what_the_counts_of_the_offsets_say(offsets: list[int], sizes: list[int], end: int) -> None:
    rows = TableRows({0: 0}, {0: end}, WIDTH_MS)
    for at in range(0, len(offsets), 7):
        part = np.array(offsets[at : at + 7], np.int64)
        rows.add(0, part, np.zeros(len(part), np.int64))
    log_end = 0
    for size in sizes:
        rows.check(ONE, log_end, RecordRange(size, 0))
        log_end += size
    rows.check_is_over()
    records = {kind: sum(each.records for each in rows.findings if each.kind is kind) for kind in Kind}
    loaded = min(end, log_end)
    assert records[Kind.LOST] == sum(offset not in offsets for offset in range(loaded))
    assert records[Kind.DOUBLED] == sum(max(0, offsets.count(offset) - 1) for offset in range(loaded))
    assert records[Kind.OPEN] == max(0, log_end - end)
    assert records[Kind.EXTRA] == sum(offset >= loaded for offset in offsets)
