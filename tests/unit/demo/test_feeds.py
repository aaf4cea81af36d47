"""What the demo ships: the departures with their times, and any text log byte for byte."""

from __future__ import annotations

import json
from pathlib import Path
from zipfile import ZipFile

import pytest

from barnabas.clock import ManualClock
from barnabas.errors import BarnabasError
from demo.access_log import parse_line
from demo.departures import read_departures
from demo.text_log import access_events, line_events, text_log, topic_of

ACCESS_LINE = b'10.0.0.1 - - [17/May/2015:10:05:03 +0200] "GET /a?b HTTP/1.1" 304 - "-" "agent"'


def test_departures_have_the_airport_as_key_and_the_scheduled_time_in_utc(tmp_path: Path) -> None:
    header = "year,dep_time,dep_delay,tailnum,origin,minute,time_hour"
    rows = ["2013,517,2,N14228,EWR,15,2013-01-01T10:00:00Z", "2013,NA,NA,NA,JFK,0,2013-01-01T11:00:00Z"]
    with ZipFile(tmp_path / "flights.zip", "w") as archive:
        archive.writestr("flights.csv", "\n".join([header, *rows]) + "\n")
    first, second = read_departures(tmp_path / "flights.zip")
    assert (first.key, first.timestamp_ms) == (b"EWR", 1_357_035_300_000)  # 2013-01-01 10:15 UTC
    assert json.loads(first.value)["tailnum"] == "N14228"
    assert json.loads(second.value) == {
        "year": 2013,
        "dep_time": None,
        "dep_delay": None,
        "tailnum": None,
        "origin": "JFK",
        "minute": 0,
        "time_hour": "2013-01-01T11:00:00Z",
    }


def test_lines_are_shipped_byte_for_byte(tmp_path: Path) -> None:
    path = tmp_path / "odd log.txt"
    path.write_bytes(b"one\n\nthr\xff\xfee\r\n  spaces  \nno line feed at the end")
    feed = text_log(path)
    assert feed.count == 5
    assert feed.kind == "text log"
    assert [event.value for event in feed.read()] == [
        b"one",
        b"",
        b"thr\xff\xfee\r",
        b"  spaces  ",
        b"no line feed at the end",
    ]


def test_lines_of_a_log_have_the_time_of_shipping(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"a\n")
    assert next(line_events(path, ManualClock(5))).timestamp_ms == 5


def test_lines_of_an_access_log_have_their_own_time_and_client(tmp_path: Path) -> None:
    path = tmp_path / "access.log"
    path.write_bytes(b"\n".join([ACCESS_LINE] * 20 + [b"\xff broken"]))
    assert text_log(path).kind == "access log"
    events = list(access_events(path, ManualClock(7)))
    assert (events[0].key, events[0].timestamp_ms) == (b"10.0.0.1", 1_431_849_903_000)  # 08:05:03 UTC
    assert (events[-1].key, events[-1].value, events[-1].timestamp_ms) == (None, b"\xff broken", 7)


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"Mar 27 13:06:56 host sshd[1]: Server listening",
        ACCESS_LINE.replace(b"May", b"Foo"),
        ACCESS_LINE.replace(b"17/", b"32/"),
        ACCESS_LINE.replace(b" 304 -", b""),
    ],
)
def test_lines_that_are_not_of_an_access_log(line: bytes) -> None:
    assert parse_line(line) is None


def test_requests_that_are_not_http_still_count() -> None:
    request = parse_line(rb'h - bob [17/May/2015:10:05:03 +0000] "\x16\x03\"" 400 226')
    assert request is not None
    assert (request.status, request.page) == (400, rb"\x16\x03\"")


def test_topics_are_named_after_the_file() -> None:
    assert topic_of(Path("/x/apache_access.log")) == "apache_access.log"
    assert topic_of(Path("ätsch log.1")) == "_tsch_log.1"
    assert topic_of(Path("departures")) == "departures_log"


def test_logs_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    with pytest.raises(BarnabasError, match="No such file"):
        text_log(tmp_path / "nowhere")
    (tmp_path / "empty").touch()
    with pytest.raises(BarnabasError, match="no lines"):
        text_log(tmp_path / "empty")
