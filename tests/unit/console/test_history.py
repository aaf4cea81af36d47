"""Samples of offsets and lag."""

from __future__ import annotations

from barnabas.console.history import SAMPLES_MAX, SERIES_MAX, History


def test_rates_are_averaged_over_the_last_samples() -> None:
    history = History()
    for time_s, value in ((0, 100), (5, 150), (10, 170), (15, 230)):
        history.note(time_s, {"clicks": value})
    assert history.rate("clicks") == (230 - 150) / 10
    assert history.newest("clicks") == 230
    assert history.rate("other") is None
    assert history.newest("other") is None


def test_one_sample_has_no_rate() -> None:
    history = History()
    history.note(0, {"clicks": 1})
    assert history.rate("clicks") is None


def test_new_series_begin_late_and_old_ones_are_dropped() -> None:
    history = History()
    history.note(0, {"old": 1})
    history.note(5, {"old": 2, "new": 10})
    history.note(10, {"new": 20})
    assert history.values("new") == ([5, 10], [10, 20])
    assert history.values("old") == ([], [])
    assert list(history.names()) == ["new"]


def test_samples_and_series_are_bounded() -> None:
    history = History()
    for number in range(SAMPLES_MAX + 50):
        history.note(number, {"clicks": number})
    times, values = history.values("clicks")
    assert len(times) == len(values) == SAMPLES_MAX
    assert times[-1] == values[-1] == SAMPLES_MAX + 49
    history.note(10_000, {str(number): 1 for number in range(SERIES_MAX + 10)})
    assert len(list(history.names())) == SERIES_MAX
