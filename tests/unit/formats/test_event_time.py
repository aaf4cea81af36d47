"""Event times: from a column of any type, from a line, from a field of JSON."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.errors import ConfigurationError
from barnabas.formats.event_time import EventTime, times_in_json, times_in_lines, times_of_column
from barnabas.formats.times import TIME_TYPE

MOMENT = datetime(2015, 5, 17, 10, 5, 3, tzinfo=UTC)


def test_where_it_comes_from_is_read_and_written() -> None:
    assert [EventTime.parse(text).unit for text in ("record", "ts", "ts:ms", "a:b:ns")] == [None, None, "ms", "ns"]
    assert EventTime.parse("a:b:ns").source == "a:b"
    assert [str(EventTime.parse(text)) for text in ("line", "ts:ms", "a:b")] == ["line", "ts:ms", "a:b"]
    with pytest.raises(ConfigurationError, match="give record, line"):
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
    assert len(times_in_lines(column, near)) == len(times_in_json(column, "t", near, None)) == len(values)


def test_fields_of_json_have_times_whatever_else_there_is() -> None:
    values = [
        b'{"t": 1431857103, "x": 1}',
        b'{"t": "2015-05-17T10:05:03Z"}',
        b'{"t": 1431857103.0}',
        b'{"t": true}',
        b"?",
        b"{}",
    ]
    found = times_in_json(pa.array(values), "t", pa.nulls(6, TIME_TYPE), None)
    assert found.to_pylist() == [MOMENT] * 3 + [None] * 3
