"""Lines of the log, as people and as programs read them."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest

from barnabas.log_lines import (
    JsonLines,
    Lines,
    LogEvent,
    PlainLines,
    about,
    event,
    lines_about,
    lines_about_partition,
)
from barnabas.model import TopicPartition

CLICKS = TopicPartition("clicks", 3)


class Log:
    """A logger of its own, and what it wrote."""

    def __init__(self, lines: Lines) -> None:
        self.written = io.StringIO()
        self.handler = logging.StreamHandler(self.written)
        self.handler.setFormatter(lines)
        self.logger = logging.getLogger("tests.log_lines")
        self.logger.addHandler(self.handler)

    def only_line(self) -> str:
        (line,) = self.written.getvalue().splitlines()
        return line

    def only_object(self) -> dict[str, Any]:
        found = json.loads(self.only_line())
        assert isinstance(found, dict)
        return found


@pytest.fixture
def as_json() -> Iterator[Log]:
    lines = JsonLines()
    lines.broker = 7
    log = Log(lines)
    yield log
    log.logger.removeHandler(log.handler)


@pytest.fixture
def plain() -> Iterator[Log]:
    log = Log(PlainLines())
    yield log
    log.logger.removeHandler(log.handler)


def test_json_line_tells_when_who_and_what(as_json: Log) -> None:
    as_json.logger.warning("%d of\n%s", 2, "é")
    found = as_json.only_object()
    assert datetime.fromisoformat(found.pop("timestamp")).utcoffset() == timedelta(0)
    assert found == {"level": "WARNING", "logger": "tests.log_lines", "message": "2 of\né", "broker": 7}


def test_partition_among_the_arguments_is_what_a_line_is_about(as_json: Log) -> None:
    as_json.logger.warning("%s: an append failed: %s", CLICKS, "no room")
    found = as_json.only_object()
    assert (found["topic"], found["partition"], found["message"]) == (
        "clicks",
        3,
        "clicks-3: an append failed: no room",
    )


def test_line_that_names_two_partitions_is_about_none(as_json: Log) -> None:
    as_json.logger.warning("%s and %s", CLICKS, TopicPartition("clicks", 4))
    assert as_json.only_object().keys() == {"timestamp", "level", "logger", "message", "broker"}


def test_topic_alone_has_no_partition(as_json: Log) -> None:
    as_json.logger.warning("created", extra=about("clicks"))
    found = as_json.only_object()
    assert found["topic"] == "clicks"
    assert "partition" not in found


def test_lines_inside_are_about_the_partition_and_those_after_are_not(as_json: Log) -> None:
    class Opens:
        @lines_about_partition
        def open(self, partition: TopicPartition, end: int) -> int:
            as_json.logger.warning("cut at %d", end)
            return end + 1

    assert Opens().open(CLICKS, 5) == 6
    with lines_about(CLICKS):
        as_json.logger.warning("inside", extra=about(TopicPartition("views", 0)))
    as_json.logger.warning("after")
    inside, said, after = map(json.loads, as_json.written.getvalue().splitlines())
    assert (inside["topic"], inside["partition"]) == ("clicks", 3)
    assert (said["topic"], said["partition"]) == ("views", 0)
    assert "topic" not in after


def test_exception_is_one_field(as_json: Log) -> None:
    try:
        int("no\nroom")
    except ValueError:
        as_json.logger.exception("it failed")
    found = as_json.only_object()
    assert found["message"] == "it failed"
    assert found["exception"].splitlines()[0] == "Traceback (most recent call last):"
    assert found["exception"].endswith("invalid literal for int() with base 10: 'no\\nroom'")


def test_line_for_people_stays_one_line(plain: Log) -> None:
    plain.logger.warning("group %s", "a\nERROR b\r")
    assert plain.only_line().endswith("WARNING group a\\nERROR b\\r")


def test_event_is_a_field_of_its_own_and_its_line_is_about_a_partition(as_json: Log, plain: Log) -> None:
    as_json.logger.error("the disk failed", extra=event(LogEvent.LOG_OFFLINE, CLICKS))
    found = as_json.only_object()
    assert (found["event"], found["topic"], found["partition"]) == ("log.offline", "clicks", 3)
    assert plain.only_line().endswith("ERROR the disk failed")


def test_errors_with_a_traceback_are_unexpected_unless_they_say_otherwise(as_json: Log) -> None:
    error = ValueError("odd")
    as_json.logger.error("failed", exc_info=error)
    as_json.logger.critical("failed", exc_info=error, extra=event(LogEvent.LOG_OFFLINE))
    as_json.logger.warning("failed", exc_info=error)
    found = [json.loads(line).get("event") for line in as_json.written.getvalue().splitlines()]
    assert found == ["broker.unexpected-error", "log.offline", None]
