"""Event times: from a column of any type, from a line, from a field of JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.errors import ConfigurationError
from barnabas.formats.event_time import EventTime, times_in_json, times_in_lines, times_of_column
from barnabas.formats.field_aliases import Aliases
from barnabas.formats.json_fields import decode
from barnabas.formats.times import TIME_TYPE

MOMENT = datetime(2015, 5, 17, 10, 5, 3, tzinfo=UTC)


def test_where_it_comes_from_is_read_and_written() -> None:
    assert [EventTime.parse(text).unit for text in ("record", "ts", "ts:ms", "a:b:ns")] == [None, None, "ms", "ns"]
    assert EventTime.parse("a:b:ns").source == "a:b"
    assert [str(EventTime.parse(text)) for text in ("line", "ts:ms", "a:b")] == ["line", "ts:ms", "a:b"]
    with pytest.raises(ConfigurationError, match="use record, line"):
        EventTime.parse(":ms")


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1_431_857_103]),
        pa.array([1_431_857_103_000.0]),
        pa.array(["17/May/2015:10:05:03 +0000"]),
        pa.array([MOMENT], TIME_TYPE),
        pa.array([Decimal(1_431_857_103)], pa.decimal128(38, 2)),
    ],
)
def test_columns_of_any_type_have_times(column: pa.Array) -> None:
    assert times_of_column(column, pa.nulls(1, TIME_TYPE), None).to_pylist() == [MOMENT]


def test_columns_of_other_types_have_none() -> None:
    assert times_of_column(pa.array([True]), pa.nulls(1, TIME_TYPE), None).to_pylist() == [None]


@pytest.mark.parametrize(
    "line",
    [
        b'h - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 5',
        b"May 17 10:05:03 host su: failed",
        b"<34>May 17 10:05:03 host su: failed",
        b"<34>1 2015-05-17T10:05:03.000Z host app - - - text",
        b"2015/05/17 10:05:03 [error] 1#0: failed",
        b"[Sun May 17 10:05:03.000 2015] [error] failed",
        b"2015-05-17 10:05:03,000 INFO main started",
        b"1431857103.000 200 TCP_MISS/200",
        b'{"time": "2015-05-17T10:05:03Z"}',
    ],
)
def test_the_time_in_a_line_is_found(line: bytes) -> None:
    assert times_in_lines(pa.array([line]), pa.array([MOMENT], TIME_TYPE)).to_pylist() == [MOMENT]


def test_a_line_without_a_time_has_none() -> None:
    lines = pa.array(
        [b"no time", b"\xff 2015-05-17T10:05:03Z", None, b"", b"version 1.2.3 of 12345678901"], pa.binary()
    )
    assert times_in_lines(lines, pa.nulls(5, TIME_TYPE)).null_count == 5


@given(st.lists(st.none() | st.binary(max_size=20), max_size=4))
def test_any_bytes_are_taken(values: list[bytes | None]) -> None:
    column = pa.array(values, pa.binary())
    near = pa.array([MOMENT] * len(values), TIME_TYPE)
    found, _ = times_in_json(column, EventTime("t"), near)
    assert len(times_in_lines(column, near)) == len(found) == len(values)


def times_of(items: Sequence[str], path: str = "t") -> list[datetime | None]:
    values = pa.array([f'{{"t": {item}}}'.encode() for item in items])
    found, _ = times_in_json(values, EventTime(path), pa.nulls(len(items), TIME_TYPE))
    (column,) = decode(values, {"t": "timestamp"}).columns
    assert path != "t" or column.to_pylist() == found.to_pylist(), "columns of times have the same rules"
    return found.to_pylist()


def test_fields_of_json_have_times_in_all_forms() -> None:
    written = ["1431857103", '"2015-05-17T10:05:03Z"', "1431857103.0", "1.431857103e9", '"1431857103"']
    assert times_of(written) == [MOMENT] * 5


NO_TIMES = [
    *("true", "false", "null", "[1]", "[1431857103]", '["2015-05-17T10:05:03Z"]', '{"t": 1}'),
    *("1e400", "-1e400", "1e30", "1" * 30, "9223372036854775808"),
    *('"NaN"', '"[1]"', '"[1431857103]"', '""', '"5"', '"2015"', '"20150517"', '"20150517100503"'),
    *('"2015-05-17T10:05:03+25:00"', '"2015-05-17T10:05:03+24:00"', '"2015-05-17T10:05:03-99:99"'),
    *('"2015-05-17T10:05:03+14:60"', '"2015-05-17T10:05:03+99"', '"2015-05-17T10:05:03+2500"'),
    *('"2015-05-17T24:00:00Z"', '"2015-05-17T24:00:01Z"', '"2015-05-17T25:00:00Z"', '"2015-05-17T10:60:00Z"'),
    *('"0000-01-01T00:00:00Z"', '"0001-01-01T00:00:00Z"', '"9999-12-31T00:00:00Z"', '"2015-02-29T10:00:00Z"'),
    *('"2015-00-17T10:00:00Z"', '"2015-05-00T10:00:00Z"', '"12:00:00"', '"17/May/2015:10:05:03 +2500"'),
    *('"Sun, 17 May 2015 10:05:03 +9900"', '"20150517T100503+2500"', '"\\u0662015-05-17"', '"\\ud800"'),
]


@pytest.mark.parametrize("item", NO_TIMES)
def test_what_is_no_time_has_none(item: str) -> None:
    assert times_of([item]) == [None]
    if item.startswith('"') and "\\" not in item:
        text = json.loads(item)
        assert times_of_column(pa.array([text]), pa.nulls(1, TIME_TYPE), None).to_pylist() == [None]


def test_leap_second_is_no_time_or_the_next_second() -> None:
    assert times_of(['"2016-12-31T23:59:60Z"'])[0] in (None, datetime(2017, 1, 1, tzinfo=UTC))


def test_offsets_of_less_than_a_day_are_taken() -> None:
    assert times_of(['"2015-05-18T10:04:03+23:59"', '"2015-05-17T00:05:03-10"']) == [MOMENT] * 2


@pytest.mark.parametrize(
    "column",
    [
        pa.array([2**31 - 1], pa.int32()).cast(pa.date32()),
        pa.array([2**62], pa.int64()).cast(TIME_TYPE),
        pa.array([-(2**63)], pa.int64()).cast(pa.timestamp("ms")),
        pa.array([2**64 - 1], pa.uint64()),
    ],
)
def test_columns_beyond_the_calendar_have_no_times(column: pa.Array) -> None:
    assert times_of_column(column, pa.nulls(1, TIME_TYPE), None).to_pylist() == [None]


@pytest.mark.parametrize(
    ("source", "path"),
    [
        ("at", ("at",)),
        ("source.ts_ms", ("source", "ts_ms")),
        (r"meta.sent\.at", ("meta", "sent.at")),
        ("a\\\\.b", ("a\\", "b")),
        ("a\\b", ("a\\b",)),
        ("a..b.", ("a", "", "b", "")),
    ],
)
def test_path_is_split_at_dots_without_a_backslash(source: str, path: tuple[str, ...]) -> None:
    assert EventTime(source).path == path
    assert EventTime(source).renamed(Aliases(within={path[0]: Aliases({"x": "y"})})).path == path
