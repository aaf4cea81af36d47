"""The zone of event times that name none: a table remembers it."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from barnabas.errors import ConfigurationError
from barnabas.formats.event_time import EventTime
from barnabas.spark import table_load
from barnabas.spark.load_types import LoadSettings
from barnabas.spark.table_load import TableLoader
from tests.support.loads_without_spark import Here, Lake

LINES = "lines:(?P<time>[^|]*)[|](?P<message>.*)"


@pytest.fixture(params=["iceberg", "delta"])
def lake(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    made = Lake(tmp_path, request.param)
    made.stand_in(monkeypatch)
    return made


def load(lake: Lake, timezone: str | None, event_time: EventTime | None = None, value_format: str = LINES) -> None:
    settings = LoadSettings(
        "nowhere:1", value_format, None, {}, True, None, 100, {}, audit=False, event_time=event_time, timezone=timezone
    )
    sessions: Any = Here()
    TableLoader(sessions, lake.open(), "t", settings, lambda _progress: None).run(["t"])


@pytest.mark.parametrize("event_time", [None, EventTime("time"), EventTime("line")])
def test_later_loads_read_times_in_the_zone_of_the_first(lake: Lake, event_time: EventTime | None) -> None:
    lake.values = [b"2015-05-17 12:05:03|one"]
    load(lake, "Europe/Berlin", event_time)
    lake.values = [*lake.values, b"2015-05-17 12:05:04|two", b"2015-05-17T10:05:05Z|three"]
    load(lake, None)
    times = [datetime(2015, 5, 17, 10, 5, second, tzinfo=UTC) for second in (3, 4, 5)]
    assert [time for _, time in lake.rows("t", "event_time")] == times
    with pytest.raises(ConfigurationError, match=r"uses the time zone Europe/Berlin .*, not UTC"):
        load(lake, "UTC")


def test_zone_without_times_in_the_values_is_refused(lake: Lake) -> None:
    lake.values = [b"text"]
    with pytest.raises(ConfigurationError, match="time zone: the event time is the record's timestamp"):
        load(lake, "Europe/Berlin", value_format="raw")


def test_dead_letter_topic_keeps_the_old_timestamps_of_bad_records() -> None:
    created = []

    class Brokers:
        def list_topics(self) -> list[str]:
            return []

        def create_topic(self, name: str, config: dict[str, str]) -> None:
            created.append((name, config))

    admin: Any = Brokers()
    table_load._prepare_dead_letter(admin, "bad")
    assert created == [("bad", {"retention.ms": "-1"})]
