"""Structs in lists and maps: read, put together with older files and given back, they are what they were."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from barnabas.clock import SYSTEM_CLOCK
from barnabas.serialization import value_decoders
from barnabas.spark.load_types import LoadSettings, TableLoad
from barnabas.spark.table_formats import format_of
from barnabas.spark.table_load import TableLoader
from barnabas.spark.table_store import maintain
from barnabas.spark.tables import scan_table
from tests.support.fake_registry import avro_record, registry_of
from tests.support.loads_without_spark import Here, Lake

Fields = dict[str, Any]


def record(name: str, **fields: Any) -> Fields:
    """Return a schema; a field is a type, or a type and its alias."""
    told = []
    for field, kind in fields.items():
        of, aliases = kind if isinstance(kind, tuple) else (kind, None)
        told.append({"name": field, "type": of} | ({"aliases": [aliases]} if aliases else {}))
    return {"type": "record", "name": name, "fields": told}


class Nested(Lake):
    """A topic of Avro records, all of one day."""

    def __init__(self, folder: Path, table_format: str, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(folder, table_format)
        self.ms_between = 1
        self.schemas: list[Fields] = []
        self.stand_in(monkeypatch)
        monkeypatch.setattr(value_decoders, "registry_at", lambda _url: registry_of(*self.schemas))

    def add(self, schema: Fields, *values: Fields) -> TableLoad:
        """Load records, each by itself."""
        self.schemas.append(schema)
        settings = LoadSettings(
            "nowhere:1", "avro", None, {}, True, None, 100, {}, audit=False, registry="http://registry"
        )
        sessions: Any = Here()
        for value in values:
            self.values = [*self.values, avro_record(len(self.schemas), schema, value)]
            done = TableLoader(sessions, self.open(), "t", settings, lambda _progress: None).run(["t"])
        return done

    def maintain(self) -> tuple[int, int]:
        store = self.open()
        done = maintain(format_of(self.place).maintainer(store, "t", SYSTEM_CLOCK))
        return done.compacted_files, done.new_files

    def table(self, *columns: str, where: str | None = None) -> pa.Table:
        found = scan_table(self.folder, "t", columns=columns or None, where=where, table_format=self.place.table_format)
        return pa.Table.from_batches(list(found))

    def column(self, name: str) -> list[Any]:
        values: list[Any] = self.table("offset", name).sort_by("offset")[name].to_pylist()
        return values

    def restored(self) -> list[bytes]:
        shape = self.open().begin("t").shape("avro")
        assert shape is not None
        decoder = shape.decoder("http://registry")
        assert decoder is not None
        rows = self.table().sort_by("offset").combine_chunks()
        columns = {field: _whole(rows[column]) for field, column in shape.columns.items()}
        value, form = _whole(rows["value"]).cast(pa.binary()), _whole(rows["value_form"]).cast(pa.string())
        restored: list[bytes] = decoder.restore(value, form, columns).to_pylist()
        return restored


def _whole(column: pa.ChunkedArray) -> pa.Array:
    found = column.combine_chunks()
    return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found


@pytest.fixture(params=["iceberg", "delta"])
def lake(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Nested:
    return Nested(tmp_path, request.param, monkeypatch)


@pytest.fixture
def iceberg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Nested:
    return Nested(tmp_path, "iceberg", monkeypatch)


def a_list(of: Any) -> Fields:
    return {"type": "array", "items": of}


def a_map(of: Any) -> Fields:
    return {"type": "map", "values": of}


@pytest.mark.parametrize(
    ("kind", "some"),
    [
        (a_list(record("P", x="long")), [{"x": 1}]),
        (a_map(record("P", x="long")), {"k": {"x": 1}}),
        (a_list(["null", a_list(record("P", x="long"))]), [[{"x": 1}], [], None]),
        (a_map(["null", a_map(record("P", x="long"))]), {"k": {"j": {"x": 1}}, "l": {}, "m": None}),
    ],
)
def test_null_is_not_empty(lake: Nested, kind: Fields, some: Any) -> None:
    empty: Any = type(some)()
    wanted = [some, None, empty, None]
    lake.add(record("R", m=["null", kind]), *({"m": value} for value in wanted))
    for done in (None, (4, 1)):
        assert done is None or lake.maintain() == done
        assert _plain(lake.column("m")) == _plain(wanted)
        assert lake.restored() == lake.values


def _plain(value: Any) -> Any:
    """Return Arrow's maps, and dicts that stand for them, as lists of pairs."""
    if isinstance(value, dict):
        return [(key, _plain(each)) for key, each in value.items()]
    return [_plain(each) for each in value] if isinstance(value, list) else _pair(value)


def _pair(value: Any) -> Any:
    return tuple(_plain(each) for each in value) if isinstance(value, tuple) else value


@pytest.mark.parametrize("around", [a_list, a_map])
@pytest.mark.parametrize("within", [a_list, a_map])
def test_a_renamed_field_far_within_has_the_values_of_before(iceberg: Nested, around: Any, within: Any) -> None:
    def values(struct: Fields) -> Any:
        inner = [struct] if within is a_list else {"k": struct}
        return {"m": [inner] if around is a_list else {"k": inner}}

    iceberg.add(record("R", m=around(within(record("P", x="long")))), values({"x": 1}), values({"x": 2}))
    iceberg.add(record("R", m=around(within(record("P", y=("long", "x"))))), values({"y": 3}))
    for done in (None, (3, 1)):
        assert done is None or iceberg.maintain() == done
        assert _plain(iceberg.column("m")) == [_plain(values({"y": each})["m"]) for each in (1, 2, 3)]
        assert iceberg.restored() == iceberg.values


def test_a_filter_may_ask_for_columns_that_are_not_wanted(iceberg: Nested) -> None:
    old, new = (record("R", n="long", p=record("P", **fields)) for fields in ({"x": "long"}, {"y": ("long", "x")}))
    iceberg.add(old, {"n": 1, "p": {"x": 1}}, {"n": 2, "p": {"x": 2}})
    iceberg.add(new, {"n": 3, "p": {"y": 3}})
    assert iceberg.table("n", where="offset > 0").sort_by("n").to_pydict() == {"n": [2, 3]}
    assert iceberg.table("n", where="p.y >= 2 and n < 3").to_pydict() == {"n": [2]}
    assert iceberg.table("p", where="n = 1").to_pydict() == {"p": [{"y": 1}]}
    assert iceberg.table().schema == iceberg.open().current_table("t").table.scan().to_arrow_batch_reader().schema
    assert not list(scan_table(iceberg.folder, "t", where="offset > 7"))


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (lambda kind: kind, lambda value: value),
        (a_list, lambda value: [value]),
        (lambda kind: record("S", s=kind), lambda value: {"s": value}),
    ],
)
def test_a_table_can_be_read_and_maintained_after_structs_in_maps_got_fields(
    lake: Nested, kind: Any, value: Any
) -> None:
    old, new = (record("P", **fields) for fields in ({"x": "long"}, {"x": "long", "y": ["null", "long"]}))
    lake.add(record("R", m=kind(a_map(old))), *[{"m": value({"k": {"x": 1}})}] * 2)
    lake.add(record("R", m=kind(a_map(new))), {"m": value({"k": {"x": 2, "y": 3}})})
    assert lake.restored() == lake.values
    assert lake.maintain() == (3, 1)
    assert lake.restored() == lake.values
