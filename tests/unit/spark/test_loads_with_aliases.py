"""Loads of Avro whose schemas rename fields: what becomes of the columns, and of what a load is told."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from barnabas.errors import ConfigurationError
from barnabas.formats.event_time import EventTime
from barnabas.spark import value_decoders
from barnabas.spark.load_types import LoadSettings, TableLoad
from barnabas.spark.table_load import TableLoader
from barnabas.spark.table_shape import TableShape
from barnabas.spark.tables import scan_table
from tests.known_schemas import avro_record, registry_of
from tests.unit.spark.lake import Here, Lake

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
    monkeypatch.setattr(value_decoders, "_registry", lambda _url: registry_of(*lake.schemas))
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
    with pytest.raises(ConfigurationError, match="event times from happened, and not from other"):
        lake.load_avro("other")


def test_event_times_follow_a_field_that_has_no_column_yet(lake: SchemaLake) -> None:
    lake.add(record(id="long"), {"id": 1})
    assert lake.load_avro("at").without_time == 1
    lake.add(HAPPENED, {"happened": NOON})
    assert lake.load_avro("at").without_time == 0
    assert lake.column("event_time") == [None, NOON]
