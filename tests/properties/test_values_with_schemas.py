"""Whatever is sent as a record with a schema: a table gives its bytes back, also when it has grown since then."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from barnabas.errors import SerializationError
from barnabas.formats.column_types import ColumnType, arrow_type, settled
from barnabas.formats.field_aliases import NO_ALIASES, Path, Renaming
from barnabas.formats.value_format import decoder_of
from barnabas.serialization.avro_codec import retyped
from barnabas.serialization.avro_python_codec import PythonCodec
from barnabas.serialization.avro_types import AvroType, avro_type
from barnabas.serialization.avro_values import AvroFormat
from barnabas.serialization.column_casts import fitted
from barnabas.serialization.framed_json import FramedJsonDecoder
from barnabas.serialization.record_values import RecordDecoder
from barnabas.serialization.registry_client import Schema, SchemaRegistry
from barnabas.serialization.wire_format import HEADER_BYTES, header
from barnabas.spark.table_schema import FIELDS_MAX
from barnabas.spark.table_shape import TableShape
from tests.support.fake_registry import registry_of
from tests.support.searches import examples

NAMES = ("a", "b", "c", "d")
PLAIN = st.sampled_from(
    [
        *("null", "boolean", "int", "long", "float", "double", "string", "bytes"),
        {"type": "int", "logicalType": "date"},
        {"type": "long", "logicalType": "timestamp-millis"},
        {"type": "long", "logicalType": "timestamp-nanos"},
        {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2},
    ]
)
MAYBE = PLAIN.flatmap(
    lambda kind: st.sampled_from([kind] if kind == "null" else [kind, ["null", kind], [kind, "null"]])
)
NESTED = st.recursive(
    MAYBE,
    lambda inner: (
        inner.filter(lambda kind: kind != "null").map(lambda kind: {"type": "array", "items": kind})
        | inner.map(lambda kind: {"type": "map", "values": kind})
        | st.sampled_from([["null", "long", "string"], ["int", "bytes"]])
    ),
    max_leaves=3,
)


def record_of(draw: st.DrawFn, name: str, kinds: Callable[[str], st.SearchStrategy[Any]]) -> dict[str, Any]:
    """Return a record's schema, with aliases of fields.

    :param kinds: the types of a field, by the name that a record in it gets.
    """
    fields = []
    for own in draw(st.permutations(NAMES))[: draw(st.sampled_from([0, 1, 2, 2, 3, 4]))]:
        alias = draw(st.sampled_from([None, None, *NAMES]))
        told = {"aliases": [alias]} if alias and alias != own else {}
        fields.append({"name": own, "type": draw(kinds(f"{name}{own}"))} | told)
    return {"type": "record", "name": name, "fields": fields}


@st.composite
def inner_records(draw: st.DrawFn, name: str, depth: int) -> Any:
    """Return a record within a record: as it is, or in a list, a map or a union; in it further ones."""
    record = record_of(draw, name, lambda inner: MAYBE | inner_records(inner, depth - 1) if depth else PLAIN)
    return draw(
        st.sampled_from(
            [
                record,
                ["null", record],
                {"type": "array", "items": record if record["fields"] else "int"},
                {"type": "map", "values": ["null", record]},
                ["long", record],
            ]
        )
    )


@st.composite
def schemas(draw: st.DrawFn) -> dict[str, Any]:
    """Return a record's schema, some of its fields records, enums or fixed."""
    schema = record_of(draw, "Top", lambda _: NESTED)
    for each in schema["fields"]:
        name, shape = each["name"], draw(st.integers(0, 9))
        if shape == 0:
            each["type"] = {"type": "enum", "name": f"E{name}", "symbols": ["P", "Q"]}
        elif shape == 1:
            each["type"] = {"type": "fixed", "name": f"F{name}", "size": 2}
        elif shape == 2:
            each["type"] = ["null", "Top"]
        elif shape < 7:
            each["type"] = draw(inner_records(f"R{name}", 1))
    assume(is_taken(schema))
    return schema


def evolved(draw: st.DrawFn, kind: Any) -> Any:
    """Return a later version of a type: fields of records have new names and the old ones for aliases, or are gone."""
    if isinstance(kind, list):
        return [evolved(draw, each) for each in kind]
    if not isinstance(kind, dict) or kind["type"] not in ("record", "array", "map"):
        return kind
    if kind["type"] != "record":
        return {part: inner if part == "type" else evolved(draw, inner) for part, inner in kind.items()}
    fields: list[dict[str, Any]] = []
    for each in kind["fields"]:
        free = [name for name in NAMES if name not in {other["name"] for other in (*kind["fields"], *fields)}]
        change = draw(st.sampled_from(["stays", "stays", "renamed", "renamed", "gone"]))
        if change != "gone":
            now = {"name": each["name"], "type": evolved(draw, each["type"])}
            renamed = {**now, "name": draw(st.sampled_from(free)), "aliases": [each["name"]]} if free else now
            fields.append(renamed if change == "renamed" else now)
    return {**kind, "fields": fields}


@st.composite
def versions(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Return schemas, most of them later versions of those before."""
    found = [draw(schemas())]
    for _ in range(draw(st.sampled_from([0, 1, 2, 3, 3]))):
        later = evolved(draw, draw(st.sampled_from(found)))
        found.append(later if draw(st.integers(0, 4)) and is_taken(later) else draw(schemas()))
    return found


def is_taken(schema: dict[str, Any]) -> bool:
    """Whether it is no schema with arrays of what takes no bytes."""
    try:
        avro_type(registry_of(schema), Schema(json.dumps(schema)))
    except SerializationError:
        return False
    return True


def values_of(tree: AvroType) -> st.SearchStrategy[Any]:
    """Return values as the codec in Python takes them; what does not fit it writes as zero."""
    plain: dict[str, st.SearchStrategy[Any]] = {
        "boolean": st.booleans(),
        "int": st.integers(-(2**31), 2**31 - 1) | st.integers(-2, 2),
        "long": st.integers(-(2**63), 2**63 - 1) | st.integers(-2, 2),
        "float": st.floats(width=32, allow_nan=False),
        "double": st.floats(allow_nan=False),
        "string": st.text(max_size=3),
        "bytes": st.binary(max_size=3),
        "fixed": st.binary(min_size=2, max_size=2),
        "enum": st.sampled_from(["P", "Q"]),
    }
    if tree.kind == "array":
        found: st.SearchStrategy[Any] = st.lists(values_of(tree.inner["items"]), max_size=3)
    elif tree.kind == "map":
        pairs = st.tuples(st.text(max_size=2), values_of(tree.inner["values"]))
        found = st.lists(pairs, max_size=3)
    elif tree.kind == "record":
        found = st.fixed_dictionaries({name: values_of(each) for name, each in tree.inner.items()})
    elif tree.kind == "union":
        found = st.one_of(
            [values_of(each).map(lambda value, name=name: {name: value}) for name, each in tree.inner.items()]
        )
    else:
        found = plain.get(tree.kind, st.none())
    return found | st.none() if tree.is_nullable else found


@st.composite
def records(draw: st.DrawFn, schema_id: int, schema: dict[str, Any]) -> bytes:
    """Return a record of a schema, some of them damaged."""
    tree = avro_type(registry_of(schema), Schema(json.dumps(schema)))
    out = bytearray()
    PythonCodec(tree)._write(draw(values_of(tree)), out)
    for _ in range(draw(st.sampled_from([*[0] * 8, 1, 2]))):
        place = draw(st.integers(0, len(out)))
        out[place : place + draw(st.integers(0, 2))] = draw(st.binary(max_size=2))
    return header(schema_id) + bytes(out)


@st.composite
def loads(draw: st.DrawFn, known: list[dict[str, Any]]) -> list[pa.Array]:
    """Return what several loads find: records of these schemas, mostly of later ones in later loads, some of none."""

    def value(newest: int) -> bytes | None:
        if draw(st.integers(0, 9)) == 0:
            return draw(st.none() | st.binary(max_size=8))
        number = draw(st.integers(1, newest) | st.just(newest) | st.integers(1, len(known)))
        return draw(records(number, known[number - 1]))

    return [
        pa.array([value(min(number, len(known))) for _ in range(draw(st.integers(1, 3)))], pa.binary())
        for number in range(1, draw(st.integers(1, 4)) + 1)
    ]


def restored(decoder: Any, kept: pa.Array, forms: pa.Array, columns: dict[str, pa.Array]) -> list[bytes | None]:
    return list(decoder.restore(kept, forms, columns).to_pylist())


def renamed(kind: ColumnType, path: Path, names: Mapping[Path, str]) -> ColumnType:
    """Return the type of a column with other names within, as a catalog makes it."""
    if isinstance(kind, dict):
        return {names.get((*path, name), name): renamed(inner, (*path, name), names) for name, inner in kind.items()}
    if isinstance(kind, list):
        return [*kind[:-1], renamed(kind[-1], (*path, "element" if len(kind) == 1 else "value"), names)]
    return kind


@dataclass
class Table:
    """A table as a catalog keeps it: rows stay as they were written, and find their columns under new names."""

    registry: SchemaRegistry
    shape: TableShape
    rows: list[tuple[pa.Array, pa.Array, pa.Array, dict[str, pa.Array]]] = field(default_factory=list)

    @classmethod
    def of(cls, registry: SchemaRegistry, values: pa.Array) -> Table:
        first = RecordDecoder(AvroFormat(), registry)
        renaming = Renaming.of({}, first.infer(values), first.renames(values), NO_ALIASES, FIELDS_MAX)
        shape = TableShape.of("avro", {name: settled(kind) for name, kind in renaming.found.items()})
        return cls(registry, replace(shape, aliases=renaming.aliases))

    def decoder(self) -> RecordDecoder:
        return RecordDecoder(AvroFormat(), self.registry, self.shape.aliases)

    def load(self, values: pa.Array) -> None:
        decoder = self.decoder()
        decoded = decoder.decode(values, self.shape.fields or {})
        before, self.shape = self.shape, self.shape.grown_by(decoded.found, decoder.renames(values))
        if self.shape is not before:
            self.rows = [
                (loaded, kept, forms, self.grown(columns, before, len(loaded)))
                for loaded, kept, forms, columns in self.rows
            ]
            decoded = self.decoder().decode(values, self.shape.fields or {})
        kept = pc.if_else(pc.equal(decoded.forms, "value"), values, pa.scalar(None, values.type))
        columns = dict(zip(self.shape.columns.values(), decoded.columns, strict=True))
        self.rows.append((values, kept, decoded.forms, columns))

    def grown(self, columns: dict[str, pa.Array], before: TableShape, count: int) -> dict[str, pa.Array]:
        names = before.columns_renamed_in(self.shape)
        found = {}
        for name, kind in (before.fields or {}).items():
            column = before.columns[name]
            now = arrow_type(renamed(kind, (column,), names))
            found[names.get((column,), column)] = retyped(columns[column], now)
        return {
            self.shape.columns[name]: fitted(found[self.shape.columns[name]], kind)
            if self.shape.columns[name] in found
            else pa.nulls(count, arrow_type(kind))
            for name, kind in (self.shape.fields or {}).items()
        }

    def restored(self) -> list[list[bytes | None]]:
        by_field = {column: name for name, column in self.shape.columns.items()}
        return [
            restored(self.decoder(), kept, forms, {by_field[column]: array for column, array in columns.items()})
            for _, kept, forms, columns in self.rows
        ]


@given(st.data())
@settings(max_examples=examples(150))
def test_any_bytes_come_back_from_a_table_of_avro_however_often_it_has_grown(data: st.DataObject) -> None:
    known = data.draw(versions())
    registry = registry_of(*known)
    given_values = data.draw(loads(known))
    first = given_values[0]
    table = Table.of(registry, first.slice(0, data.draw(st.sampled_from([0, len(first), len(first)]))))
    for values in given_values:
        table.load(values)
        assert table.restored() == [loaded.to_pylist() for loaded, *_ in table.rows]


def meaning(value: bytes | None) -> object:
    """Return what a value means that begins with a schema id or with none: `5` and `5.0` are one number of JSON."""
    size = 0 if value is None or value[:1] != b"\0" else HEADER_BYTES
    try:
        return (value or b"")[:size], json.loads((value or b"")[size:], parse_float=Decimal, parse_int=Decimal)
    except ValueError:
        return value


JSON_FIELDS: dict[str, ColumnType] = {"a": "long", "b": "string"}


@pytest.mark.parametrize("fields", [JSON_FIELDS, {}])
@given(
    st.lists(
        st.none()
        | st.binary(max_size=9)
        | st.tuples(
            st.sampled_from([b"", header(1), header(2), header(3)]),
            st.sampled_from([b'{"a":1,"b":"x"}', b'{"a":1.0}', b"{}", b"[]", b"\xff"]),
        ).map(b"".join),
        min_size=1,
        max_size=6,
    )
)
@example([b"\t{}", header(1) + b'{ "a": 1}', b" {"])
@settings(max_examples=examples(60))
def test_any_json_comes_back_with_its_schema_id(
    fields: dict[str, ColumnType], given_values: list[bytes | None]
) -> None:
    inner: Any = decoder_of("json")
    decoder = FramedJsonDecoder(inner, registry_of(Schema("{}", "JSON"), {"type": "record", "name": "R", "fields": []}))
    values = pa.array(given_values, pa.binary())
    decoded = decoder.decode(values, fields)
    kept = pc.if_else(pc.equal(decoded.forms, "value"), values, pa.scalar(None, values.type))
    back = restored(decoder, kept, decoded.forms, dict(zip(fields, decoded.columns, strict=True)))
    assert list(map(meaning, back)) == list(map(meaning, given_values))
