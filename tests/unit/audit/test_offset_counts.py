"""Counts of offsets: the same as those of a plain array, and no memory for blocks that are whole."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.audit import offset_counts
from barnabas.audit.offset_counts import COPIES_MAX, OffsetCounts

LENGTH = 18
SMALL_BLOCK = 5


@pytest.fixture(autouse=True, scope="module")
def _small_blocks() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(offset_counts, "BLOCK", SMALL_BLOCK)
        yield


places = st.lists(st.integers(0, LENGTH - 1), max_size=12)
ranges = st.tuples(st.integers(0, LENGTH), st.integers(0, LENGTH)).map(lambda ends: (min(ends), max(ends)))
runs = ranges.map(lambda ends: list(range(*ends)))


@given(st.lists(st.one_of(places, runs, ranges), max_size=20))
def test_counts_are_those_of_an_array(steps: list[list[int] | tuple[int, int]]) -> None:
    copies, plain = OffsetCounts(LENGTH), np.zeros(LENGTH, np.int64)
    for step in steps:
        if isinstance(step, tuple):
            begin, end = step
            assert copies.take(begin, end - begin).tolist() == plain[begin:end].tolist()
            plain[begin:end] = 0
        else:
            copies.add(np.array(step, np.int64))
            np.add.at(plain, step, 1)
    left = np.zeros(LENGTH, np.int64)
    for first, of_block in copies.left():
        left[first : first + len(of_block)] = of_block
    assert left.tolist() == plain.tolist()


def test_whole_blocks_need_no_memory_in_whatever_order_their_offsets_come() -> None:
    copies = OffsetCounts(LENGTH)
    copies.add(np.array([*range(9, 18), *range(4)]))
    assert copies.size_bytes == 2 * SMALL_BLOCK
    copies.add(np.array([8, 7, 6, 5, 4]))
    assert copies.size_bytes == 0
    copies.add(np.array([17]))
    assert copies.size_bytes == SMALL_BLOCK
    assert copies.take(0, LENGTH).tolist() == [*[1] * 17, 2]
    assert copies.size_bytes == 0
    assert list(copies.left()) == []


def test_very_many_copies_count_as_the_most_that_are_counted() -> None:
    copies = OffsetCounts(1)
    for _ in range(3):
        copies.add(np.zeros(200, np.int64))
        copies.add(np.zeros(1, np.int64))
    assert copies.take(0, 1).tolist() == [COPIES_MAX]
