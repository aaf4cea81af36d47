"""Splitting offset ranges into tasks: nothing left out, nothing twice, limits kept."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.spark.offset_ranges import TASK_RECORDS, OffsetRange, combine_ranges, split_ranges

RANGES = st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 1000)), max_size=6).map(
    lambda pairs: [OffsetRange("t", number, start, start + count) for number, (start, count) in enumerate(pairs)]
)


@given(RANGES, st.none() | st.integers(1, 20), st.none() | st.integers(1, 300))
def test_pieces_cover_the_ranges_exactly(
    ranges: list[OffsetRange], partitions_min: int | None, records_max: int | None
) -> None:
    pieces = split_ranges(ranges, partitions_min=partitions_min, records_max=records_max)
    offsets = [(piece.partition, offset) for piece in pieces for offset in range(piece.start_offset, piece.end_offset)]
    wanted = [(each.partition, offset) for each in ranges for offset in range(each.start_offset, each.end_offset)]
    assert offsets == wanted
    assert all(piece.count > 0 for piece in pieces)
    assert records_max is None or all(piece.count <= records_max for piece in pieces)


def test_without_limits_each_range_is_one_piece() -> None:
    ranges = [OffsetRange("t", 0, 0, 5), OffsetRange("t", 1, 7, 7), OffsetRange("t", 2, 1, 3)]
    assert split_ranges(ranges) == [ranges[0], ranges[2]]


def test_min_partitions_splits_large_ranges_more_than_small_ones() -> None:
    pieces = split_ranges([OffsetRange("t", 0, 0, 900), OffsetRange("t", 1, 0, 100)], partitions_min=10)
    assert [piece.partition for piece in pieces] == [0] * 9 + [1]


@pytest.mark.parametrize(
    ("partitions_min", "counts", "expected"),
    [
        (3, [1, 1, 1], [1, 1, 1]),
        (4, [4], [4]),
        (4, [4, 20], [1, 3]),
        (4, [0, 20], [0, 4]),
        (4, [1, 1_000], [1, 3]),
        (4, [4, 20, 0], [1, 3, 0]),
        (6, [10, 10, 1], [3, 3, 1]),
        (9, [10_000, 15_000, 20_000], [2, 3, 4]),
        (6, [500, 12_000, 15_001], [1, 2, 3]),
        (6, [1, 1, 10_000], [1, 1, 4]),
        (3, [10], [3]),
    ],
)
def test_small_ranges_are_a_task_each_and_the_others_share_the_rest(
    partitions_min: int, counts: list[int], expected: list[int]
) -> None:
    ranges = [OffsetRange("t", number, 1, 1 + count) for number, count in enumerate(counts)]
    pieces = split_ranges(ranges, partitions_min=partitions_min)
    assert [sum(piece.partition == number for piece in pieces) for number in range(len(counts))] == expected
    for number in range(len(counts)):
        sizes = {piece.count for piece in pieces if piece.partition == number}
        assert not sizes or max(sizes) - min(sizes) <= 1


def test_min_partitions_below_the_number_of_ranges_merges_nothing() -> None:
    ranges = [OffsetRange("t", number, 0, 10) for number in range(4)]
    assert split_ranges(ranges, partitions_min=2) == ranges


def test_a_record_is_never_split() -> None:
    assert len(split_ranges([OffsetRange("t", 0, 5, 7)], partitions_min=100)) == 2


@given(RANGES, st.none() | st.integers(1, 4))
def test_gathered_ranges_are_those_that_there_were(ranges: list[OffsetRange], cores: int | None) -> None:
    pieces = split_ranges(ranges)
    tasks = combine_ranges(pieces, cores)
    assert sorted(each for task in tasks for each in task) == pieces
    assert all(task == tuple(sorted(task)) and task for task in tasks)
    assert len(tasks) == min(len(pieces), cores or len(pieces))


def test_where_nobody_knows_how_many_tasks_run_at_a_time_each_range_is_a_task() -> None:
    pieces = [OffsetRange("t", number, 0, 10) for number in range(4)]
    assert combine_ranges(pieces, None) == [(piece,) for piece in pieces]


@pytest.mark.parametrize(
    ("counts", "cores", "expected"),
    [
        ([3, 9, 3, 3], 2, [9, 9]),
        ([333_000] * 6, 2, [999_000] * 2),
        ([333_000] * 6, 8, [333_000] * 6),
        ([10_000] * 200, 2, [1_000_000] * 2),
        ([TASK_RECORDS // 2] * 8, 2, [TASK_RECORDS] * 4),
        ([TASK_RECORDS // 2] * 9, 2, [TASK_RECORDS] * 3 + [TASK_RECORDS // 2] * 3),
        ([TASK_RECORDS] * 6, 2, [TASK_RECORDS] * 6),
    ],
)
def test_gathered_tasks_keep_all_cores_busy_and_stay_small(counts: list[int], cores: int, expected: list[int]) -> None:
    tasks = combine_ranges([OffsetRange("t", number, 1, 1 + count) for number, count in enumerate(counts)], cores)
    assert sorted((sum(each.count for each in task) for task in tasks), reverse=True) == expected
