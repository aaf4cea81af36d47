"""Points in time, written and shown."""

from __future__ import annotations

import pytest

from barnabas.cli.times import parse_time_ms, show_time_ms


@pytest.mark.parametrize(
    ("text", "time_ms"),
    [
        ("0", 0),
        ("1359644400000", 1_359_644_400_000),
        ("2013-01-31T15:00", 1_359_644_400_000),
        ("2013-01-31 16:00:00.123456+01:00", 1_359_644_400_123),
        ("2013-01-31", 1_359_590_400_000),
    ],
)
def test_times_are_numbers_or_dates_in_utc(text: str, time_ms: int) -> None:
    assert parse_time_ms(text) == time_ms


@pytest.mark.parametrize("text", ["", "-1", "yesterday", "2013-13-01", "1.5", "\u0663"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a time"):
        parse_time_ms(text)


@pytest.mark.parametrize("time_ms", [0, 1_359_644_400_123])
def test_what_is_shown_can_be_given(time_ms: int) -> None:
    assert parse_time_ms(show_time_ms(time_ms)) == time_ms


def test_what_is_no_time_of_the_calendar_is_shown_as_it_is() -> None:
    assert show_time_ms(2**62) == str(2**62)
    assert show_time_ms(-1) == "-"
