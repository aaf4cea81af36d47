"""Times of lines at the source: from the line, a field or a group; lines without one have the time of shipping."""

from __future__ import annotations

import pytest

from barnabas.errors import ConfigurationError
from barnabas.formats.line_times import LineTimes

MOMENT_MS = 1_431_857_103_000
NOW_MS = 1_431_900_000_000
COMMON = b'127.0.0.1 - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.0" 200 5'


@pytest.mark.parametrize(
    ("value_format", "event_time", "line"),
    [
        ("raw", "line", COMMON),
        ("lines:common", None, COMMON),
        ("lines:syslog", None, b"May 17 10:05:03 host su: failed"),
        ("lines:(?P<at>[0-9]+) (?P<rest>.*)", "at:ms", b"1431857103000 text"),
        ("json", "at", b'{"at": 1431857103, "x": [1]}'),
        ("json", "at:ms", b'{"at": 1431857103000}'),
    ],
)
def test_a_line_has_its_own_time(value_format: str, event_time: str | None, line: bytes) -> None:
    times = LineTimes.of(value_format, event_time)
    assert times is not None
    assert times.times_ms([line, b"no time \xff", line], NOW_MS) == ([MOMENT_MS, NOW_MS, MOMENT_MS], 1)


@pytest.mark.parametrize(("value_format", "event_time"), [("raw", None), ("json", None), ("lines:common", "record")])
def test_without_a_source_of_times_there_are_none(value_format: str, event_time: str | None) -> None:
    assert LineTimes.of(value_format, event_time) is None


@pytest.mark.parametrize(
    ("value_format", "event_time", "told"),
    [
        ("raw", "at", "set the format"),
        ("lines:common", "at", "no group 'at'; it has host"),
        ("lines:none", None, "common"),
        ("yaml", None, "unknown format 'yaml'"),
    ],
)
def test_what_does_not_fit_is_told(value_format: str, event_time: str | None, told: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        LineTimes.of(value_format, event_time)
    assert told in str(raised.value)


@pytest.mark.parametrize(
    ("value_format", "event_time", "line"),
    [
        ("raw", "line", b"2015-05-17 12:05:03 started\r"),
        ("lines:syslog", None, b"May 17 12:05:03 host su: failed\r"),
        ("lines:(?P<time>[^|]*)[|](?P<rest>.*)", None, b"2015-05-17 12:05:03|rest\r"),
        ("json", "at", b'{"at": "2015-05-17T12:05:03"}\r'),
    ],
)
def test_a_time_without_a_zone_is_of_the_given_one(value_format: str, event_time: str | None, line: bytes) -> None:
    times = LineTimes.of(value_format, event_time, "Europe/Berlin")
    assert times is not None
    assert times.times_ms([line], NOW_MS) == ([MOMENT_MS], 0)
