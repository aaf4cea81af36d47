"""Loads of Avro whose schemas rename fields: what becomes of the columns, and of what a load is told."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from barnabas.errors import ConfigurationError
from barnabas.formats.event_time import EventTime
from barnabas.serialization import value_decoders
from barnabas.spark.load_types import LoadSettings, TableLoad
from barnabas.spark.table_load import TableLoader
from barnabas.spark.table_shape import TableShape
from barnabas.spark.tables import scan_table
from tests.support.fake_registry import avro_record, registry_of
from tests.support.loads_without_spark import Here, Lake

TIME = {"type": "long", "logicalType": "timestamp-millis"}
NOON = datetime(2020, 1, 1, 12, tzinfo=UTC)
Schema = dict[str, Any]


class SchemaLake(Lake):
    """A topic of Avro, and one table, `t`."""

    def __init__(self, folder: Path, table_format: str = "iceberg") -> None:
        super().__init__(folder, table_format)
        self.schemas: list[Schema] = []

    def add(self, schema: Schema, *values: Schema) -> None:
        if schema not in self.schemas:
            self.schemas.append(schema)
        schema_id = self.schemas.index(schema) + 1
        self.values = [*self.values, *(avro_record(schema_id, schema, value) for value in values)]

    def load_avro(self, event_time: str | None = None) -> TableLoad:
        time = None if event_time is None else EventTime.parse(event_time)
        settings = LoadSettings(
            "nowhere:1", "avro", None, {}, True, None, 100, {}, audit=False, event_time=time, registry="http://registry"
        )
        return TableLoader(Here(), self.open(), "t", settings, lambda _progress: None).run(["t"])

    def shape(self) -> TableShape:
        shape = self.open().begin("t").shape("avro")
        assert shape is not None
        return shape

    def table(self) -> pa.Table:
        found = scan_table(self.folder, "t", table_format=self.place.table_format)
        return pa.Table.from_batches(found).combine_chunks().sort_by("offset")

    def column(self, name: str) -> list[Any]:
        values: list[Any] = self.table()[name].to_pylist()
        return values

    def restored(self) -> list[bytes]:
        shape, table = self.shape(), self.table()
        decoder = shape.decoder("http://registry")
        assert decoder is not None
        columns = {name: _one(table[column]) for name, column in shape.columns.items()}
        kept, forms = _one(table["value"]).cast(pa.binary()), _one(table["value_form"]).cast(pa.string())
        values: list[bytes] = decoder.restore(kept, forms, columns).to_pylist()
        return values


def _one(column: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(column.chunks)


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SchemaLake:
    lake = SchemaLake(tmp_path)
    lake.stand_in(monkeypatch)
    monkeypatch.setattr(value_decoders, "registry_at", lambda _url: registry_of(*lake.schemas))
    return lake


def record(_name: str = "R", **fields: Any) -> Schema:
    """Return a schema; a field is a type, or a type and the field's alias."""
    told = []
    for name, kind in fields.items():
        own, *aliases = kind if isinstance(kind, tuple) else (kind,)
        told.append({"name": name, "type": own, **({"aliases": aliases} if aliases else {})})
    return {"type": "record", "name": _name, "fields": told}


AT, HAPPENED = record(at=TIME), record(happened=(TIME, "at"))


def test_event_times_follow_their_field_in_the_first_load(lake: SchemaLake) -> None:
    lake.add(AT, {"at": NOON})
    lake.add(HAPPENED, {"happened": NOON})
    assert lake.load_avro("at").without_time == 0
    assert lake.column("event_time") == [NOON, NOON]
    assert lake.shape().event_time == EventTime("happened")


def test_a_load_that_runs_on_is_told_the_event_time_by_the_name_of_before(lake: SchemaLake) -> None:
    lake.add(AT, {"at": NOON})
    lake.load_avro("at")
    for told in ("at", "at", "happened"):
        lake.add(HAPPENED, {"happened": NOON})
        assert lake.load_avro(told).without_time == 0
    assert lake.column("event_time") == [NOON] * 4
    with pytest.raises(ConfigurationError, match="event times from happened, not from other"):
        lake.load_avro("other")


def test_event_times_follow_a_field_that_has_no_column_yet(lake: SchemaLake) -> None:
    lake.values = [b"not a record, so that the load does not miss the field"]
    assert lake.load_avro("at").without_time == 1
    lake.add(HAPPENED, {"happened": NOON})
    assert lake.load_avro("at").without_time == 0
    assert lake.column("event_time") == [None, NOON]


@pytest.mark.parametrize(
    ("before", "after", "old", "new"),
    [
        ("long", "double", 1, 0.5),
        ("long", "string", 1, "a"),
        ({"type": "array", "items": "long"}, {"type": "array", "items": "string"}, [1], ["a"]),
        ({"type": "map", "values": "long"}, "long", [("k", 1)], 1),
        ("string", {"type": "array", "items": "string"}, "a", ["b"]),
        ("string", TIME, "a", NOON),
        ("string", "bytes", "a", b"\xff"),
    ],
)
def test_a_column_that_does_not_take_the_new_type_stays_beside(
    lake: SchemaLake, before: Any, after: Any, old: Any, new: Any
) -> None:
    sent = dict(old) if isinstance(old, list) and isinstance(old[0], tuple) else old
    lake.add(record(x=before, place=record("P", t="long", x=before)), {"x": sent, "place": {"t": 1, "x": sent}})
    lake.load_avro()
    renamed = record(lon=(after, "x"), place=record("P", t="long", lon=(after, "x")))
    lake.add(renamed, {"lon": new, "place": {"t": 2, "lon": new}})
    result = lake.load_avro()
    assert (result.bad.count, result.kept_values) == (0, 0)
    assert result.not_renamed == {"x": "lon", "place.x": "place.lon"}
    assert (lake.column("x"), lake.column("lon")) == ([old, None], [None, new])
    assert lake.column("place") == [{"t": 1, "x": old, "lon": None}, {"t": 2, "x": None, "lon": new}]
    assert lake.restored() == lake.values


@pytest.mark.parametrize(
    ("before", "after", "old", "new"),
    [("int", "long", 1, 2**40), ("string", "string", "a", "b"), ("string", "long", "a", 1)],
)
def test_a_column_that_can_take_the_new_type_is_renamed(
    lake: SchemaLake, before: str, after: str, old: Any, new: Any
) -> None:
    lake.add(record(x=before), {"x": old})
    lake.load_avro()
    lake.add(record(lon=(after, "x")), {"lon": new})
    result = lake.load_avro()
    assert (result.bad.count, result.not_renamed) == (0, {})
    assert lake.column("lon") == [old, str(new) if before == "string" else new]
    assert lake.restored() == lake.values


def test_what_stays_beside_within_a_renamed_column_is_told_by_the_name_of_now(lake: SchemaLake) -> None:
    point = record("P", x="long", lon="long")
    lake.add(record(place=point), {"place": {"x": 1, "lon": 2}})
    lake.load_avro()
    lake.add(record(spot=(point, "place")), {"spot": {"x": 1, "lon": 2}})
    lake.load_avro()
    lake.add(record(place=record("P", lon=("long", "x"), q="long")), {"place": {"lon": 2, "q": 3}})
    assert lake.load_avro().not_renamed == {"spot.x": "spot.lon"}


P, Q = record(p=("long", "x")), record(q=("long", "x"))


@pytest.mark.parametrize("loads", [1, 2])
def test_two_new_names_for_one_field_are_told(lake: SchemaLake, loads: int) -> None:
    lake.add(record(x="long"), {"x": 1})
    lake.load_avro()
    lake.add(P, {"p": 2})
    if loads == 2:
        assert lake.load_avro().not_renamed == {}
    lake.add(Q, {"q": 3})
    told = lake.load_avro().not_renamed
    assert told == ({"q": "p"} if loads == 1 else {"p": "q"})
    assert lake.restored() == lake.values
