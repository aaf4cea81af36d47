"""Times as people write them: each form, each size of number, and what is none."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.errors import ConfigurationError
from barnabas.formats.times import TIME_TYPE, TimeUnit, checked_zone, from_numbers, from_texts

MOMENT = datetime(2015, 5, 17, 10, 5, 3, tzinfo=UTC)
MOMENT_S = 1_431_857_103


def one(text: str | None, near: datetime | None = None) -> datetime | None:
    found = from_texts(pa.array([text], pa.string()), pa.array([near], TIME_TYPE))[0].as_py()
    assert found is None or isinstance(found, datetime)
    return found


@pytest.mark.parametrize(
    "text",
    [
        "2015-05-17T10:05:03Z",
        "2015-05-17T12:05:03+02:00",
        "2015-05-17T04:35:03-0530",
        "2015-05-17 10:05:03",
        "2015-05-17 10:05:03 UTC",
        "2015-05-17T10:05:03.000000000Z",
        "2015-05-17T10:05:03,000",
        "2015/05/17 10:05:03",
        "20150517T100503Z",
        "17/May/2015:10:05:03 +0000",
        "[17/May/2015:12:05:03 +0200]",
        "Sun, 17 May 2015 10:05:03 GMT",
        "17 May 2015 10:05:03 +0000",
        "Sun May 17 10:05:03 2015",
        "Sun May 17 10:05:03.000 2015",
        "1431857103",
        "1431857103.0",
        "1431857103000",
        "1431857103000000",
        "1431857103000000000",
        " 2015-05-17T10:05:03Z ",
    ],
)
def test_the_same_moment_in_each_form(text: str) -> None:
    assert one(text) == MOMENT


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "2015-02-30T10:00:00Z",
        "2015-13-01",
        "2015-05-17T24:00:00",
        "2015-05-17T10:05:61Z",
        "31/Jun/2015:10:05:03 +0000",
        "0001-01-01T00:00:00Z",
        "9999-12-31T00:00:00Z",
        "99999999999999999999",
        "1e9",
        "0x10",
        "May 17 10:05:03",
        None,
    ],
)
def test_what_is_no_time_is_null_and_disturbs_no_other(text: str | None) -> None:
    assert one(text) is None
    assert from_texts(pa.array(["2015-05-17T10:05:03Z", text, "1431857103"])).to_pylist() == [MOMENT, None, MOMENT]


def test_parts_of_a_second_are_kept_to_the_microsecond() -> None:
    assert one("2015-05-17T10:05:03.123456789Z") == MOMENT + timedelta(microseconds=123_456)
    assert one("2015-05-17T10:05:03.5Z") == one("1431857103.5") == MOMENT + timedelta(milliseconds=500)
    assert one("2015-05-17") == MOMENT.replace(hour=0, minute=0, second=0)


def test_a_time_without_a_year_is_of_the_last_year_that_is_not_after_the_record() -> None:
    assert one("May 17 10:05:03", MOMENT) == MOMENT
    assert one("Dec 31 23:59:59", datetime(2016, 1, 1, tzinfo=UTC)) == datetime(2015, 12, 31, 23, 59, 59, tzinfo=UTC)
    assert one("Jul 17 10:05:03", MOMENT) == datetime(2014, 7, 17, 10, 5, 3, tzinfo=UTC)
    assert one("Jan  1 00:00:01", datetime(2015, 12, 31, tzinfo=UTC)) == datetime(2015, 1, 1, 0, 0, 1, tzinfo=UTC)
    ahead = datetime(2015, 12, 31, 20, tzinfo=UTC)
    assert one("Jan  1 09:00:00", ahead) == datetime(2016, 1, 1, 9, tzinfo=UTC), "of a zone ahead of UTC"
    assert one("Feb 29 10:00:00", datetime(2016, 3, 1, tzinfo=UTC)) == datetime(2016, 2, 29, 10, tzinfo=UTC)
    assert one("Feb 29 10:00:00", datetime(2018, 3, 1, tzinfo=UTC)) == datetime(2016, 2, 29, 10, tzinfo=UTC)
    assert one("Feb 29 10:00:00", datetime(1903, 3, 1, tzinfo=UTC)) == datetime(1896, 2, 29, 10, tzinfo=UTC)
    assert one("Feb 30 10:00:00", MOMENT) is None


@pytest.mark.parametrize(
    ("text", "zone", "hour"),
    [
        ("2015-05-17T12:05:03", "Europe/Berlin", 10),
        ("2015-05-17T10:05:03Z", "Europe/Berlin", 10),
        ("2015-05-17T12:05:03+02:00", "America/New_York", 10),
        ("Sun May 17 06:05:03 2015", "America/New_York", 10),
        ("May 17 15:35:03", "+05:30", 10),
        ("1431857103", "Europe/Berlin", 10),
    ],
)
def test_a_given_zone_is_that_of_times_that_name_none(text: str, zone: str, hour: int) -> None:
    found = from_texts(pa.array([text]), pa.array([MOMENT], TIME_TYPE), zone=checked_zone(zone))[0].as_py()
    assert found == MOMENT.replace(hour=hour)


@pytest.mark.parametrize("zone", ["", "Mars/Base", "+2", "+02:00:00", "../etc/passwd"])
def test_unknown_zone_is_refused(zone: str) -> None:
    with pytest.raises(ConfigurationError, match="time zone"):
        checked_zone(zone)


@pytest.mark.parametrize(("unit", "factor"), [("s", 1), ("ms", 1_000), ("us", 10**6), ("ns", 10**9), (None, 1)])
def test_numbers_count_what_their_unit_says(unit: TimeUnit | None, factor: int) -> None:
    assert from_numbers(pa.array([MOMENT_S * factor]), unit).to_pylist() == [MOMENT]
    assert from_numbers(pa.array([float(MOMENT_S * factor)]), unit).to_pylist() == [MOMENT]


def test_numbers_of_all_sizes_side_by_side_are_told_apart() -> None:
    numbers = pa.array([MOMENT_S, MOMENT_S * 10**3, MOMENT_S * 10**6, MOMENT_S * 10**9, None, -1])
    assert from_numbers(numbers).to_pylist() == [*[MOMENT] * 4, None, datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC)]


@given(st.lists(st.integers(-(2**63), 2**63 - 1) | st.none()), st.sampled_from(["s", "ms", "us", "ns", None]))
def test_any_number_is_a_time_or_null(numbers: list[int | None], unit: TimeUnit | None) -> None:
    for found in from_numbers(pa.array(numbers, pa.int64()), unit).to_pylist():
        assert found is None or 2 <= found.year <= 9998


@given(st.lists(st.floats() | st.none()))
def test_any_float_is_a_time_or_null(numbers: list[float | None]) -> None:
    assert len(from_numbers(pa.array(numbers, pa.float64()))) == len(numbers)


@given(st.lists(st.text(max_size=30) | st.from_regex(r"\A\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ?\Z") | st.none(), max_size=5))
def test_any_text_is_a_time_or_null(texts: list[str | None]) -> None:
    assert len(from_texts(pa.array(texts, pa.string()))) == len(texts)


ZONES = st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))


@given(st.datetimes(datetime(3, 1, 1), datetime(9997, 1, 1), timezones=ZONES))  # noqa: DTZ001  # bounds have no zone
def test_what_is_written_in_iso_8601_is_read_as_that(moment: datetime) -> None:
    assert one(moment.isoformat()) == moment
