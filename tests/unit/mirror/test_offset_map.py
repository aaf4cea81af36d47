"""Offsets that stand for each other: exact within runs, never too far on between them."""

from __future__ import annotations

import pytest

from barnabas.mirror.offset_map import RUNS_MAX, OffsetMap


def test_map_is_exact_where_there_are_no_holes() -> None:
    offsets = OffsetMap(100, 0)
    offsets.add(150, 50)
    offsets.add(300, 100, source_first=200)  # 150 to 199 were deleted
    assert [offsets.to_target(each) for each in (0, 100, 149, 150, 199, 200, 250, 300, 999)] == [
        *(0, 0, 49, 50, 50, 50, 100, 150, 150)
    ]
    assert [offsets.to_source(each) for each in (0, 49, 50, 149, 150, 999)] == [100, 149, 200, 299, 300, 300]


def test_batch_with_holes_is_answered_with_its_bounds() -> None:
    offsets = OffsetMap(0, 0)
    offsets.add(10, 10)
    offsets.add(20, 3)  # three of ten are left, nobody knows which
    offsets.add(25, 5)
    assert [offsets.to_target(each) for each in (9, 10, 15, 19, 20, 24)] == [9, 10, 10, 10, 13, 17]
    assert [offsets.to_source(each) for each in (10, 11, 12, 13, 17)] == [10, 10, 10, 20, 24]


def test_very_many_runs_become_fewer_and_the_map_coarser_not_wrong() -> None:
    offsets = OffsetMap(0, 0)
    for number in range(5 * RUNS_MAX):
        offsets.add(10 * number + 10, 3)
    assert len(offsets.runs) <= RUNS_MAX
    for number in range(5 * RUNS_MAX):
        assert offsets.to_target(10 * number) <= 3 * number
        assert offsets.to_source(3 * number) <= 10 * number
    assert (offsets.source_end, offsets.target_end) == (50 * RUNS_MAX, 15 * RUNS_MAX)
    assert OffsetMap.of(offsets.runs).runs == offsets.runs


def test_what_the_target_has_lost_is_forgotten() -> None:
    offsets = OffsetMap(0, 0)
    offsets.add(10, 10)
    offsets.add(40, 10, source_first=30)
    offsets.rewind(5, 5)
    assert offsets.runs == ((0, 0, 5),)


@pytest.mark.parametrize("runs", [[], [(0, 0, 5), (4, 5, 1)], [(0, 0, 5), (5, 4, 1)], [(0, 0, -1), (1, 1, 1)]])
def test_runs_that_cannot_be_are_refused(runs: list[tuple[int, int, int]]) -> None:
    with pytest.raises(ValueError, match="run"):
        OffsetMap.of(runs)
