"""Tallies of columns are the sums of those of their records, whichever way they are found."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from barnabas.audit.column_tallies import hashes_of, tallies_by_window, windows_of
from barnabas.audit.identities import Producer, fingerprint
from barnabas.audit.windows import Tally, window_of

producers = st.builds(Producer, st.integers(-1, 2**62), st.integers(-1, 2**15 - 1), st.integers(0, 10_000))
numbers = st.integers(0, 2**63 - 1)


def one_by_one(producer: Producer, rows: list[tuple[int, int]]) -> dict[int, Tally]:
    found: dict[int, Tally] = {}
    for number, window_ms in rows:
        found[window_ms] = found.get(window_ms, Tally()).plus(Tally(1, 0, fingerprint(producer, number, 1)))
    return found


@given(producers, st.lists(numbers, max_size=50))
def test_hash_of_a_column_is_the_fingerprint_of_each_record(producer: Producer, given_numbers: list[int]) -> None:
    hashes = hashes_of(producer, np.array(given_numbers, np.int64)).tolist()
    assert hashes == [fingerprint(producer, number, 1) for number in given_numbers]


@given(producers, st.lists(st.tuples(numbers, st.sampled_from([-1, 0, 60_000])), max_size=60))
def test_records_whose_times_jump_about_are_counted_by_window(producer: Producer, rows: list[tuple[int, int]]) -> None:
    columns = [np.array([row[at] for row in rows], np.int64) for at in (0, 1)]
    assert tallies_by_window(producer, *columns) == one_by_one(producer, rows)


@given(producers, st.lists(st.tuples(st.integers(0, 2**40), st.integers(64, 90)), min_size=1, max_size=4))
def test_ranges_are_counted_by_window(producer: Producer, ranges: list[tuple[int, int]]) -> None:
    rows = [(first + each, at) for at, (first, count) in enumerate(ranges) for each in range(count)]
    columns = [np.array([row[at] for row in rows], np.int64) for at in (0, 1)]
    assert tallies_by_window(producer, *columns) == {
        at: Tally(count, 0, fingerprint(producer, first, count)) for at, (first, count) in enumerate(ranges)
    }


@given(st.lists(st.integers(-(2**62), 2**62), min_size=1), st.sampled_from([1_000, 60_000, 86_400_000]))
def test_windows_of_a_column_are_those_of_its_times(times_ms: list[int], width_ms: int) -> None:
    assert windows_of(np.array(times_ms), width_ms).tolist() == [window_of(each, width_ms) for each in times_ms]
