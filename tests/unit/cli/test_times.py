"""Points in time, written and shown."""

from __future__ import annotations

import pytest

from barnabas.cli.times import parse_time_ms, show_time_ms
from barnabas.clock import SYSTEM_CLOCK


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


NOW_MS = 1_359_644_400_000
HOUR_MS = 3_600_000


@pytest.mark.parametrize(
    ("text", "before_ms"),
    [
        ("now", 0),
        ("-0s", 0),
        ("-1h", HOUR_MS),
        ("-15m", HOUR_MS // 4),
        ("-1h30m", HOUR_MS * 3 // 2),
        ("-90.5s", 90_500),
        ("-7d", 7 * 24 * HOUR_MS),
        ("-1w1d", 8 * 24 * HOUR_MS),
    ],
)
def test_times_before_now_are_counted_from_now(text: str, before_ms: int) -> None:
    assert parse_time_ms(text, NOW_MS) == NOW_MS - before_ms


def test_time_before_now_follows_the_clock() -> None:
    before_ms = SYSTEM_CLOCK.time_ms()
    assert before_ms - HOUR_MS <= parse_time_ms("-1h") <= SYSTEM_CLOCK.time_ms() - HOUR_MS


@pytest.mark.parametrize("text", ["-999999h", "-999999w"])
def test_times_before_1970_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="before 1970"):
        parse_time_ms(text, NOW_MS)


@pytest.mark.parametrize(
    "text",
    [
        *("", "-1", "yesterday", "2013-13-01", "1.5", "\u0663", "-", "-h", "1h", "-1m1h", "-1x", "-1 h", "-\u0663h"),
        *("9" * 19, "9" * 5_000, "-" + "9" * 5_000 + "h", "--1h", "+1h"),
    ],
)
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a time"):
        parse_time_ms(text)


@pytest.mark.parametrize("time_ms", [0, 1_359_644_400_123])
def test_what_is_shown_can_be_given(time_ms: int) -> None:
    assert parse_time_ms(show_time_ms(time_ms)) == time_ms


def test_what_is_no_time_of_the_calendar_is_shown_as_it_is() -> None:
    assert show_time_ms(2**62) == str(2**62)
    assert show_time_ms(-1) == "-"
