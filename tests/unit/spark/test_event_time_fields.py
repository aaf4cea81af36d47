"""Event times in fields: within objects, in names with dots, and in fields that no record of a load has."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from barnabas.formats.event_time import EventTime
from barnabas.formats.json_fields import JsonRules
from barnabas.serialization import value_decoders
from barnabas.spark.errors import EventTimeFieldError
from tests.support.fake_registry import avro_record, registry_of
from tests.support.loads_without_spark import Lake

MOMENT = datetime(2024, 6, 30, 12, tzinfo=UTC)
MOMENT_MS = 1_719_748_800_000


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    made = Lake(tmp_path, "delta")
    made.stand_in(monkeypatch)
    return made


def values(*records: object) -> list[bytes]:
    return [json.dumps(record).encode() for record in records]


def times(lake: Lake) -> list[datetime | None]:
    return [time for _, time in lake.rows("t", "event_time")]


@pytest.mark.parametrize("nested", [False, True])
def test_event_times_are_found_within_objects(lake: Lake, nested: bool) -> None:
    inside = {"source": {"db": {"ts_ms": MOMENT_MS}}}
    lake.values = values(inside, {"source": {"db": None}}, {"source": {"db": {"ts_ms": "2024-06-30T12:00:00Z"}}}, {})
    rules = JsonRules(nested=nested)
    done = lake.load(event_time=EventTime.parse("source.db.ts_ms:ms"), rules=rules)
    assert times(lake) == [MOMENT, None, MOMENT, None]
    assert (done.without_time, done.missing_event_field) == (2, None)
    lake.values = [*lake.values, *values(inside)]
    lake.load()
    assert times(lake)[-1] == MOMENT, "the table remembers the path"


@pytest.mark.parametrize("nested", [False, True])
def test_field_whose_name_has_a_dot_goes_before_a_path(lake: Lake, nested: bool) -> None:
    inside = {"a": {"at": MOMENT_MS}}
    lake.values = values({"a.at": MOMENT_MS, "a": {"at": 5}}, inside, {"a.at": None, **inside})
    lake.load(event_time=EventTime.parse("a.at"), rules=JsonRules(nested=nested))
    assert times(lake) == [MOMENT] * 3


def test_backslash_makes_a_dot_part_of_a_name(lake: Lake) -> None:
    lake.values = values({"meta": {"sent.at": MOMENT_MS}}, {"meta": {"sent": {"at": 5}}})
    lake.load(event_time=EventTime.parse(r"meta.sent\.at"))
    assert times(lake) == [MOMENT, None]


def test_event_times_are_found_within_records_of_avro(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    source = {"type": "record", "name": "S", "fields": [{"name": "ts_ms", "type": ["null", "long"]}]}
    fields = [{"name": "source", "type": source}, {"name": "tags", "type": {"type": "map", "values": "long"}}]
    schema = {"type": "record", "name": "R", "fields": fields}
    monkeypatch.setattr(value_decoders, "registry_at", lambda _url: registry_of(schema))
    record = {"source": {"ts_ms": MOMENT_MS}, "tags": {"at": MOMENT_MS}}
    lake.values = [avro_record(1, schema, record), avro_record(1, schema, {"source": {"ts_ms": None}, "tags": {}})]
    given = {"value_format": "avro", "registry": "http://registry"}
    lake.load(event_time=EventTime.parse("source.ts_ms:ms"), **given)
    assert times(lake) == [MOMENT, None]
    lake.load("tagged", None, event_time=EventTime.parse("tags.at:ms"), **given)
    assert [time for _, time in lake.rows("tagged", "event_time")] == [MOMENT, None]


@pytest.mark.parametrize("name", ["tiem", "data.tiem", "data.time.x", r"data\.time"])
def test_new_table_is_not_made_with_a_field_that_no_record_has(lake: Lake, name: str) -> None:
    lake.values = values({"data": {"time": MOMENT_MS}})
    with pytest.raises(EventTimeFieldError, match="no record has the event-time field"):
        lake.load(event_time=EventTime.parse(name))
    assert lake.files() == (set(), 0)
    lake.load(event_time=EventTime.parse("data.time"))
    assert times(lake) == [MOMENT]


@pytest.mark.parametrize("lines", [b"at=5", b"[x"])
def test_new_table_of_lines_or_raw_values_is_not_made_without_the_field(lake: Lake, lines: bytes) -> None:
    lake.values = [lines]
    for value_format in ("raw", "lines:(?P<word>.*)"):
        with pytest.raises(EventTimeFieldError):
            lake.load(event_time=EventTime.parse("at"), value_format=value_format)


def test_field_that_no_record_of_a_later_load_has_is_reported(lake: Lake) -> None:
    lake.values = values({"at": MOMENT_MS})
    lake.load(event_time=EventTime.parse("at"))
    lake.values = [*lake.values, *values({"time": MOMENT_MS}, {"at": None})]
    with pytest.raises(EventTimeFieldError, match="no record has the event-time field 'at'"):
        lake.load(strict=True)
    lake.values[-1] = b'{"time": "x"}'
    with pytest.raises(EventTimeFieldError, match=r"the records: at, time$"):
        lake.load(strict=True)
    lake.values[-1] = b'{"at": null}'
    assert times(lake) == [MOMENT]
    assert lake.load().missing_event_field == "at"
    assert times(lake) == [MOMENT, None, None]


def test_load_of_tombstones_and_bad_records_only_says_nothing_of_the_field(lake: Lake) -> None:
    lake.values = [b"not JSON"]
    assert lake.load(event_time=EventTime.parse("at"), strict=True).missing_event_field is None


def test_field_that_is_null_in_all_records_is_no_reason_to_refuse_a_new_table(lake: Lake) -> None:
    lake.values = values({"at": None})
    assert lake.load(event_time=EventTime.parse("at")).missing_event_field == "at"
