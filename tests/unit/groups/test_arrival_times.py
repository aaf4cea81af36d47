"""Arrival times: what bounded looks at an end offset tell of the age of records."""

from __future__ import annotations

import pytest

from barnabas.groups.arrival_times import POINTS_MAX, ArrivalTimes


def looked(*looks: tuple[float, int]) -> ArrivalTimes:
    arrivals = ArrivalTimes()
    for now_s, end_offset in looks:
        arrivals.note(now_s, end_offset)
    return arrivals


def test_nothing_is_known_without_a_look() -> None:
    assert ArrivalTimes().age_s(0, 10.0) is None


def test_offset_at_the_end_has_no_age() -> None:
    assert looked((0.0, 5)).age_s(5, 100.0) == 0.0


def test_record_after_a_long_silence_arrived_after_the_silence() -> None:
    silence = [(float(second), 5) for second in range(0, 3_600, 5)]
    age_s = looked(*silence, (3_600.0, 6)).age_s(5, 3_600.0)
    assert age_s is not None
    assert age_s <= 5.0


def test_records_behind_a_truncation_have_their_own_times() -> None:
    arrivals = looked((0.0, 100), (10.0, 200), (20.0, 150), (30.0, 250))
    assert arrivals.age_s(240, 30.0) == pytest.approx(1.0)
    assert arrivals.age_s(160, 30.0) == pytest.approx(9.0)


def test_looks_are_bounded_and_times_are_known_by_the_measure_of_their_age() -> None:
    arrivals = looked(*((5.0 * number, 100 * number) for number in range(20_000)))
    now_s = 5.0 * 19_999
    assert len(arrivals._points) <= 2 * POINTS_MAX
    for ago_s in (10.0, 100.0, 1_000.0, 10_000.0, 90_000.0):
        age_s = arrivals.age_s(round(20 * (now_s - ago_s)), now_s)
        assert age_s == pytest.approx(ago_s, rel=0.5)
