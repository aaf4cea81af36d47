"""Counting by windows: the same whatever the batches, and only what has changed is told."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from barnabas.audit.identities import Producer
from barnabas.audit.windows import NO_WINDOW_MS, WindowCounter, tally, window_of

WIDTH_MS = 60_000
LATE_MS = 300_000
ONE = Producer(7, 0, 0)


def counter() -> WindowCounter:
    return WindowCounter(WIDTH_MS, LATE_MS)


def test_batches_that_follow_on_each_other_are_told_as_one() -> None:
    windows = counter()
    windows.count("clicks", ONE, 0, 10, 100, 5, now_ms=6)
    windows.count("clicks", ONE, 10, 20, 200, 7, now_ms=8)
    (place, counted), *others = windows.take_changes().items()
    assert place == ("clicks", 0)
    assert counted.partitions == {ONE: tally(ONE, 0, 30, 300)}
    assert not others
    assert not windows.has_changes
    assert windows.take_changes() == {}


def test_what_comes_later_is_told_with_what_was_told_before() -> None:
    windows = counter()
    windows.count("clicks", ONE, 0, 10, 100, 5, now_ms=6)
    windows.take_changes()
    windows.count("clicks", ONE, 10, 5, 50, 6, now_ms=7)
    windows.count("clicks", ONE._replace(partition=1), 0, 5, 50, WIDTH_MS, now_ms=7)
    news = windows.take_changes()
    assert news["clicks", 0].partitions == {ONE: tally(ONE, 0, 15, 150)}
    assert news["clicks", WIDTH_MS].partitions == {Producer(7, 0, 1): tally(Producer(7, 0, 1), 0, 5, 50)}


def test_records_acknowledged_long_after_their_window_are_late() -> None:
    windows = counter()
    windows.count("clicks", ONE, 0, 10, 100, 5, now_ms=WIDTH_MS + LATE_MS - 1)
    windows.count("clicks", ONE, 10, 3, 100, 5, now_ms=WIDTH_MS + LATE_MS)
    assert windows.take_changes()["clicks", 0].late == 3


def test_records_without_a_timestamp_have_a_window_of_their_own_and_are_never_late() -> None:
    windows = counter()
    windows.count("clicks", ONE, 0, 10, 100, -1, now_ms=10**12)
    windows.count("clicks", ONE, 10, 10, 100, 0, now_ms=0)
    news = windows.take_changes()
    assert news["clicks", NO_WINDOW_MS].partitions[ONE].records == 10
    assert news["clicks", NO_WINDOW_MS].late == 0
    assert news["clicks", 0].partitions[ONE].records == 10


batches = st.lists(
    st.tuples(st.integers(0, 2), st.integers(1, 50), st.integers(0, 3 * WIDTH_MS), st.booleans()), max_size=40
)


@given(batches)
def test_counts_are_those_of_a_count_batch_by_batch(given_batches: list[tuple[int, int, int, bool]]) -> None:
    windows = counter()
    expected: dict[tuple[int, Producer], tuple[int, int, int]] = {}
    sequences = dict.fromkeys(range(3), 0)
    reported: dict[int, dict[Producer, object]] = {}
    for partition, count, timestamp_ms, tells in given_batches:
        producer, first = Producer(7, 0, partition), sequences[partition]
        sequences[partition] += count
        windows.count("clicks", producer, first, count, count, timestamp_ms, now_ms=0)
        place = (window_of(timestamp_ms, WIDTH_MS), producer)
        before = expected.get(place, tally(producer, first, 0, 0))
        expected[place] = tally(producer, first, count, count).plus(before)  # type: ignore[arg-type]
        if tells:
            reported |= {begin: each.partitions for (_topic, begin), each in windows.take_changes().items()}
    reported |= {begin: each.partitions for (_topic, begin), each in windows.take_changes().items()}
    assert {
        (begin, producer): each for begin, found in reported.items() for producer, each in found.items()
    } == expected
