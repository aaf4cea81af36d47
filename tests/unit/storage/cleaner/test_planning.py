"""What part of a log is cleaned, and which segments become one: tables of the rules of Kafka's cleaner."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from barnabas.storage.cleaner.planning import (
    CleanableRange,
    IndexedExtent,
    find_range,
    first_dirty_offset,
    group_segments,
)
from barnabas.storage.log_config import NEVER, LogConfig

NOW_MS = 1_000_000


class Extent(NamedTuple):
    base_offset: int
    next_offset: int
    size: int
    newest_ms: int = 0
    oldest_ms: int = 0


SEALED = [Extent(0, 10, 100), Extent(10, 20, 200), Extent(20, 30, 300)]


def found(
    sealed: list[Extent], first_dirty: int, limit: int, *, min_lag_ms: int = 0, max_lag_ms: int = NEVER
) -> CleanableRange | None:
    config = LogConfig(min_compaction_lag_ms=min_lag_ms, max_compaction_lag_ms=max_lag_ms)
    return find_range(
        sealed,
        first_dirty,
        limit,
        config,
        NOW_MS,
        newest_ms=lambda each: each.newest_ms,
        oldest_ms=lambda each: each.oldest_ms,
    )


@pytest.mark.parametrize(
    ("checkpoint", "start", "active", "expected"),
    [
        (0, 0, 0, 0),
        (15, 0, 30, 15),
        (30, 0, 30, 30),
        (5, 10, 30, 10),  # the log was shortened at its beginning
        (31, 10, 30, 10),  # ... or at its end, or its files were exchanged
    ],
)
def test_a_checkpoint_that_cannot_be_makes_all_dirty(checkpoint: int, start: int, active: int, expected: int) -> None:
    assert first_dirty_offset(checkpoint, start, active) == expected


@pytest.mark.parametrize(
    ("first_dirty", "limit", "expected"),
    [
        (0, 30, CleanableRange(0, 30, 0, 600, False)),
        (10, 30, CleanableRange(10, 30, 100, 500, False)),
        (15, 30, CleanableRange(15, 30, 100, 500, False)),  # a segment that is clean in part counts as dirty
        (10, 29, CleanableRange(10, 20, 100, 200, False)),  # not flushed, or above the high watermark
        (10, 19, None),
        (30, 30, None),
    ],
)
def test_whole_segments_are_cleaned_up_to_the_limit(
    first_dirty: int, limit: int, expected: CleanableRange | None
) -> None:
    assert found(SEALED, first_dirty, limit) == expected


def test_empty_segments_are_no_reason_to_clean() -> None:
    assert found([Extent(0, 10, 100), Extent(10, 20, 0)], 10, 20) is None


def test_what_is_too_young_stays_with_all_behind_it() -> None:
    sealed = [
        Extent(0, 10, 100, newest_ms=NOW_MS),  # clean, whatever its time
        Extent(10, 20, 200, newest_ms=NOW_MS - 1_000),
        Extent(20, 30, 300, newest_ms=NOW_MS - 999),
        Extent(30, 40, 400, newest_ms=0),
    ]
    assert found(sealed, 10, 40, min_lag_ms=1_000) == CleanableRange(10, 20, 100, 200, False)
    assert found(sealed, 20, 40, min_lag_ms=1_000) is None


@pytest.mark.parametrize(
    ("oldest_ms", "is_overdue"),
    [(NOW_MS - 1_001, True), (NOW_MS - 1_000, False), (-1, False), (0, False)],
)
def test_a_record_waits_no_longer_than_it_may(oldest_ms: int, is_overdue: bool) -> None:
    sealed = [Extent(0, 10, 1_000, oldest_ms=1), Extent(10, 20, 1, oldest_ms=oldest_ms)]
    range_ = found(sealed, 10, 20, max_lag_ms=1_000)
    assert range_ is not None
    assert range_.is_overdue == is_overdue
    assert range_.is_due(LogConfig()) == is_overdue


def test_a_log_is_cleaned_when_more_of_it_is_dirty_than_the_setting_says() -> None:
    half = CleanableRange(10, 20, 100, 100, False)
    assert not half.is_due(LogConfig(min_cleanable_dirty_ratio=0.5))
    assert half.is_due(LogConfig(min_cleanable_dirty_ratio=0.4))


def sizes(groups: list[list[IndexedExtent]]) -> list[list[int]]:
    return [[segment.base_offset for segment in group] for group in groups]


def extents(*each_size: int, span: int = 10, index_bytes: int = 0, time_index_bytes: int = 0) -> list[IndexedExtent]:
    return [
        IndexedExtent(number * span, (number + 1) * span, size, index_bytes, time_index_bytes)
        for number, size in enumerate(each_size)
    ]


def test_segments_are_merged_as_long_as_they_fit_into_one() -> None:
    assert sizes(group_segments(extents(40, 60, 50, 51, 100, 1), 100, 1_000)) == [[0, 10], [20], [30], [40], [50]]
    assert sizes(group_segments(extents(0, 0, 100, 0), 100, 1_000)) == [[0, 10, 20, 30]]
    assert group_segments([], 100, 1_000) == []


def test_merged_segments_have_indexes_that_fit() -> None:
    assert sizes(group_segments(extents(1, 1, 1, index_bytes=16), 100, 32)) == [[0, 10], [20]]
    assert sizes(group_segments(extents(1, 1, 1, time_index_bytes=24), 100, 50)) == [[0, 10], [20]]


def test_merged_segments_have_offsets_that_an_index_can_tell() -> None:
    span = 2**30
    assert sizes(group_segments(extents(1, 1, 1, span=span), 100, 100)) == [[0, span], [2 * span]]
    # A segment without batches needs no entries.
    assert sizes(group_segments(extents(1, 1, 0, span=span), 100, 100)) == [[0, span, 2 * span]]
