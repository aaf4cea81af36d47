"""Every value that a topic holds is a row, in a load, in SQL and in Arrow, and all three read it alike.

The schemas are those that a registry accepts, and not only those of records: unions, texts, lists, decimals of any
precision, types within themselves, names that collide as columns. The values are those that encode under these schemas,
and a few damaged ones.
"""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any
from unittest import mock

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from google.protobuf import descriptor_pb2
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.errors import SerializationError
from barnabas.formats.column_types import settled
from barnabas.formats.decoding import VALUE
from barnabas.formats.field_aliases import NO_ALIASES, Renaming
from barnabas.formats.json_fields import JsonRules
from barnabas.records.arrow import arrow_schema
from barnabas.serialization import value_decoders
from barnabas.serialization.avro_columns import decode_avro
from barnabas.serialization.avro_python_codec import PythonCodec
from barnabas.serialization.avro_types import AvroType, avro_type
from barnabas.serialization.avro_values import with_columns
from barnabas.serialization.protobuf import message_class
from barnabas.serialization.registry_client import PROTOBUF, Schema, SchemaRegistry
from barnabas.serialization.value_decoders import value_decoder
from barnabas.serialization.wire_format import HEADER_BYTES, header
from barnabas.spark.columns import to_record_batches
from barnabas.spark.table_rows import to_rows
from barnabas.spark.table_schema import FIELDS_MAX
from barnabas.spark.table_shape import TableShape
from barnabas.sql import sampling, value_columns
from barnabas.sql.record_columns import RecordRows
from barnabas.sql.sampling import ValueOptions, columns_of_values
from tests.support.fake_registry import registry_of
from tests.support.searches import examples

NAMES = ("a", "A", "offset", "Value", "value_offset", "topic", "select", "s", "_")
PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "string", "bytes")
LOGICAL: list[Any] = [
    *({"type": "int", "logicalType": each} for each in ("date", "time-millis", "decimal", "nothing")),
    *(
        {"type": "long", "logicalType": f"{kind}-{unit}"}
        for kind in ("time", "timestamp", "local-timestamp")
        for unit in ("millis", "micros", "nanos")
    ),
    {"type": "string", "logicalType": "uuid"},
    *(
        {"type": "bytes", "logicalType": "decimal", "precision": digits, "scale": scale}
        for digits, scale in ((1, 0), (38, 38), (39, 0), (60, 10), (4, 9))
    ),
    {"type": "bytes", "logicalType": "big-decimal"},
]
FIXED: list[tuple[int, dict[str, Any]]] = [
    (0, {}),
    (2, {}),
    (12, {"logicalType": "duration"}),
    (16, {"logicalType": "uuid"}),
    (9, {"logicalType": "decimal", "precision": 20, "scale": 3}),
]


class _Names:
    """Names for the named types of one schema."""

    def __init__(self) -> None:
        self._count = 0
        self.records: list[str] = []

    def new(self) -> str:
        self._count += 1
        return f"T{self._count}"


@st.composite
def kinds(draw: st.DrawFn, names: _Names, depth: int, *, in_union: bool = False) -> Any:
    """Return any type of Avro."""
    choices = ["plain", "plain", "logical", "fixed", "enum"]
    choices += ["array", "map", "record", "record", "union", "again"] if depth else []
    choice = draw(st.sampled_from(choices))
    if choice == "union" and not in_union:
        kind = draw(unions(names, depth - 1))
    elif choice == "again" and names.records and not in_union:
        kind = ["null", draw(st.sampled_from(names.records))]
    elif choice == "logical":
        kind = draw(st.sampled_from(LOGICAL))
    elif choice == "fixed":
        size, logical = draw(st.sampled_from(FIXED))
        kind = {"type": "fixed", "name": names.new(), "size": size, **logical}
    elif choice == "enum":
        kind = {"type": "enum", "name": names.new(), "symbols": ["P", "Q"]}
    elif choice in ("array", "map"):
        part = "items" if choice == "array" else "values"
        kind = {"type": choice, part: draw(kinds(names, depth - 1))}
    elif choice == "record":
        kind = draw(records(names, depth - 1))
    else:
        kind = draw(st.sampled_from(PRIMITIVES))
    return kind


@st.composite
def records(draw: st.DrawFn, names: _Names, depth: int) -> Any:
    """Return the schema of a record; its fields may be of its own type, in lists or unions."""
    name = names.new()
    names.records.append(name)
    chosen = draw(st.permutations(NAMES))[: draw(st.sampled_from([0, 1, 2, 3]))]
    fields = [{"name": each, "type": draw(kinds(names, depth))} for each in chosen]
    names.records.remove(name)
    return {"type": "record", "name": name, "fields": fields}


@st.composite
def unions(draw: st.DrawFn, names: _Names, depth: int) -> Any:
    """Return a union of types that differ."""
    found: dict[str, Any] = {}
    for _ in range(draw(st.integers(1, 4))):
        kind = draw(kinds(names, depth, in_union=True))
        if not isinstance(kind, list):
            key = kind if isinstance(kind, str) else kind.get("name") or kind["type"]
            found.setdefault(key, kind)
    return list(found.values())


@st.composite
def schemas(draw: st.DrawFn) -> Any:
    """Return a schema of any type."""
    names = _Names()
    return draw(st.one_of(records(names, 2), unions(names, 2), kinds(names, 2)))


def values_of(tree: AvroType) -> st.SearchStrategy[Any]:
    """Return values as the codec in Python takes them."""
    plain: dict[str, st.SearchStrategy[Any]] = {
        "boolean": st.booleans(),
        "int": st.sampled_from([0, -1, 5, 2**31 - 1, -(2**31)]) | st.integers(-(2**31), 2**31 - 1),
        "long": st.sampled_from([0, -1, 5, 2**62, 2**63 - 1, -(2**63)]) | st.integers(-(2**63), 2**63 - 1),
        "float": st.floats(width=32),
        "double": st.floats(),
        "string": st.text(max_size=3) | st.sampled_from(["\ud7ff" * 20, "\0"]),
        "bytes": st.binary(max_size=20) | st.sampled_from([b"\xff" * 20, b"\x80" + bytes(30)]),
        "fixed": st.binary(min_size=tree.size, max_size=tree.size),
        "enum": st.sampled_from(tree.symbols or ("",)),
    }
    if tree.kind == "array":
        found: st.SearchStrategy[Any] = st.lists(values_of(tree.inner["items"]), max_size=3)
    elif tree.kind == "map":
        found = st.lists(st.tuples(st.sampled_from(["", "k", "l"]), values_of(tree.inner["values"])), max_size=3)
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
def written(draw: st.DrawFn, schema_id: int, schema: Any) -> bytes:
    """Return a value under a schema, a few of them damaged."""
    try:
        tree = with_columns(avro_type(registry_of(Schema(json.dumps(schema))), Schema(json.dumps(schema))))
    except SerializationError:  # one that is not decoded, but may be registered
        return header(schema_id) + draw(st.binary(max_size=3))
    out = bytearray()
    PythonCodec(tree)._write(draw(values_of(tree)), out)
    if draw(st.integers(0, 9)) == 0:
        place = draw(st.integers(0, len(out)))
        out[place : place + draw(st.integers(0, 2))] = draw(st.binary(max_size=11))
    return header(schema_id) + bytes(out)


def records_of(values: Sequence[bytes | None]) -> pa.RecordBatch:
    rows = [
        {
            "topic": "t",
            "partition": 0,
            "offset": offset,
            "timestamp": 0,
            "timestamp_type": 0,
            "value": value,
            "headers": [],
        }
        for offset, value in enumerate(values)
    ]
    return pa.RecordBatch.from_pylist(rows, schema=arrow_schema())


class Reading:
    """One topic's values, read in all ways.

    :param registry: None where values have no schemas.
    """

    def __init__(
        self, values: Sequence[bytes | None], value_format: str, registry: SchemaRegistry | None, rules: JsonRules
    ) -> None:
        self.records = records_of(values)
        self.values: pa.Array = self.records.column("value")
        self._format = value_format
        self._rules = rules
        self._registry = registry
        self._url = None if registry is None else "http://registry"

    def load(self) -> Mapping[str, pa.Array]:
        """Load the values into rows, and return their columns by field; check that the table gives each value back."""
        rules = self._rules if self._format == "json" else None
        decoder = value_decoder(self._format, rules, self._url)
        assert decoder is not None
        renaming = Renaming.of({}, decoder.infer(self.values), decoder.renames(self.values), NO_ALIASES, FIELDS_MAX)
        shape = TableShape.of(self._format, {name: settled(kind) for name, kind in renaming.found.items()})
        (batch,) = to_record_batches(self.records, include_headers=True, include_raw_timestamp=True)
        rows = to_rows(batch, shape, value_decoder(self._format, rules, self._url))
        file = io.BytesIO()
        pq.write_table(pa.Table.from_batches([rows.batch]), file)
        stored = pq.read_table(pa.BufferReader(file.getvalue())).combine_chunks().to_batches()[0]
        assert stored.num_rows == len(self.values)
        columns = {name: stored.column(shape.columns[name]) for name in shape.fields or {}}
        forms = stored.column("value_form")
        back = decoder.restore(stored.column("value"), forms, columns)
        for own, given_value, form in zip(back.to_pylist(), self.values.to_pylist(), forms.to_pylist(), strict=True):
            assert own == given_value or (form != VALUE and self._meaning(own) == self._meaning(given_value))
        return {shape.columns[name]: column for name, column in columns.items()}

    def _meaning(self, value: bytes) -> object:
        """Return what a value means: JSON of one number may be written in several ways, Protobuf in any order."""
        if self._format == "json":
            return json.loads(value, parse_float=Decimal, parse_int=Decimal)
        assert self._format == "protobuf", "Avro comes back byte for byte"
        message = message_class(self._registry, 1, (0,)).FromString(value[HEADER_BYTES + 1 :])
        return message.SerializeToString(deterministic=True)  # messages of two classes are never equal

    def query(self) -> Mapping[str, pa.Array]:
        """Return the columns of a query by DuckDB."""
        rows = RecordRows(columns_of_values(self.values, ValueOptions(self._format, self._url, self._rules)))
        made = pa.Table.from_batches([rows.make(self.records, rows.schema.names)])
        with duckdb.connect() as connection:
            connection.register("made", made)
            found = connection.sql('select * from made order by "offset"').to_arrow_table()
        assert found.num_rows == len(self.values)
        return {name: made.column(name).combine_chunks() for name in rows.values.schema.names}

    def check(self) -> None:
        loaded, queried = self.load(), self.query()
        for name, column in queried.items():
            assert _plain(column) == _plain(loaded[name]), name
        assert set(queried) == set(loaded)


def _plain(column: pa.Array) -> str:
    return repr(column.cast(pa.string()).to_pylist() if pa.types.is_timestamp(column.type) else column.to_pylist())


@given(st.data())
@settings(max_examples=examples(50))
def test_values_of_any_avro_schema(data: st.DataObject) -> None:
    known = data.draw(st.lists(schemas(), min_size=1, max_size=3))
    registry = registry_of(*(Schema(json.dumps(each)) for each in known))
    some = st.integers(1, len(known)).flatmap(lambda number: written(number, known[number - 1]))
    values = data.draw(st.lists(some | st.none() | st.just(b"\0\0\0\0\x09."), min_size=1, max_size=6))
    value_columns.record_decoder.cache_clear()
    with (
        mock.patch.object(value_decoders, "registry_at", return_value=registry),
        mock.patch.object(sampling, "registry_at", return_value=registry),
    ):
        Reading(values, "avro", registry, JsonRules()).check()
        assert decode_avro(pa.array(values, pa.binary()), registry).batch.num_rows == len(values)


NUMBERS = (
    "0",
    "-0",
    "5",
    "2.50",
    "1e5",
    "1e999",
    "-1E-999",
    "NaN",
    "Infinity",
    "9" * 38,
    "9" * 400,
    "0." + "3" * 60,
    "01",
)
TEXTS = ('"a"', '""', r'"\ud800"', r'"\u0000"', '"\ud7ff"', '"{"', '"2020-01-01T00:00:00Z"', '"10000-01-01"', '"\x01"')
JSON_NAMES = ("a", "A", "offset", "value", "\u017f", "s", "", "a.b", "`", "\n", "headers")
PLAIN_JSON = st.sampled_from([*NUMBERS, *TEXTS, "null", "true", "false"])


def joined(parts: Sequence[tuple[str, str]]) -> str:
    return "{" + ", ".join(f"{json.dumps(name)}:{value}" for name, value in parts) + "}"


ANY_JSON = st.recursive(
    PLAIN_JSON,
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda items: "[" + ",".join(items) + "]")
        | st.lists(st.tuples(st.sampled_from(JSON_NAMES), inner), max_size=3).map(joined)
    ),
    max_leaves=5,
)
DEEP_JSON = st.sampled_from(["[" * 5_000, '{"a":' * 1_100 + "1" + "}" * 1_100, '{"a":' + "[" * 30 + "]" * 30 + "}"])
JSON_VALUES = (
    st.lists(st.tuples(st.sampled_from(JSON_NAMES), ANY_JSON), max_size=3).map(joined).map(str.encode)
    | (ANY_JSON | DEEP_JSON).map(str.encode)
    | st.binary(max_size=5)
    | st.none()
)


@given(
    st.lists(JSON_VALUES, min_size=1, max_size=6),
    st.builds(JsonRules, nested=st.booleans(), decimals=st.booleans()),
)
@settings(max_examples=examples(50))
def test_values_of_any_json(values: list[bytes | None], rules: JsonRules) -> None:
    Reading(values, "json", None, rules).check()


PROTO = descriptor_pb2.FieldDescriptorProto
WELL_KNOWN = {
    **dict.fromkeys(("Int64Value", "UInt64Value", "FloatValue", "StringValue", "BytesValue"), "wrappers"),
    **dict.fromkeys(("Struct", "Value", "ListValue"), "struct"),
    **{"Timestamp": "timestamp", "Duration": "duration", "Any": "any", "Empty": "empty", "FieldMask": "field_mask"},
}
PROTO_NAMES = ("a", "A", "offset", "value", "class", "from", "descriptor", "DESCRIPTOR", "Clear")
MESSAGES = (".p.Top", ".p.Inner", ".p.Nothing", *(f".google.protobuf.{name}" for name in WELL_KNOWN))
OF_MESSAGES, OF_ENUMS = (PROTO.TYPE_MESSAGE, PROTO.TYPE_GROUP), (PROTO.TYPE_ENUM,)


@st.composite
def messages(draw: st.DrawFn) -> descriptor_pb2.FileDescriptorProto:
    """Return a file with a message `Top` of any fields: recursive, maps, groups, of a oneof, of well-known types."""
    syntax = draw(st.sampled_from(["proto2", "proto3"]))
    file = descriptor_pb2.FileDescriptorProto(name="top.proto", package="p", syntax=syntax)
    file.dependency.extend(f"google/protobuf/{name}.proto" for name in sorted(set(WELL_KNOWN.values())))
    top = file.message_type.add(name="Top")
    file.message_type.add(name="Nothing")
    inner = file.message_type.add(name="Inner")
    inner.field.add(name="x", number=1, type=PROTO.TYPE_STRING, label=PROTO.LABEL_OPTIONAL)
    inner.field.add(name="top", number=2, type=PROTO.TYPE_MESSAGE, type_name=".p.Top", label=PROTO.LABEL_OPTIONAL)
    enum = file.enum_type.add(name="E")
    for number, name in enumerate(("P", "Q")):
        enum.value.add(name=name, number=number)
    top.oneof_decl.add(name="choice")
    for number, name in enumerate(draw(st.permutations(PROTO_NAMES))[: draw(st.integers(0, 4))], start=1):
        shape = draw(st.sampled_from(["one", "one", "many", "map", "oneof", "group" if syntax == "proto2" else "one"]))
        kind = draw(st.integers(1, 18).filter(lambda each: each != PROTO.TYPE_GROUP))
        field = top.field.add(name=name, number=number, type=kind, label=PROTO.LABEL_OPTIONAL)
        if kind in OF_MESSAGES:
            field.type_name = draw(st.sampled_from(MESSAGES))
        elif kind in OF_ENUMS:
            field.type_name = ".p.E"
        if shape == "oneof":
            field.oneof_index = 0
        elif shape == "many":
            field.label = PROTO.LABEL_REPEATED
        elif shape == "group":
            field.type, field.type_name = PROTO.TYPE_GROUP, ".p.Inner"
        elif shape == "map":
            entry = top.nested_type.add(name=f"M{number}Entry")
            entry.options.map_entry = True
            key = draw(st.sampled_from([PROTO.TYPE_STRING, PROTO.TYPE_INT32, PROTO.TYPE_BOOL, PROTO.TYPE_UINT64]))
            entry.field.add(name="key", number=1, type=key, label=PROTO.LABEL_OPTIONAL)
            entry.field.add(name="value", number=2, type=kind, type_name=field.type_name, label=PROTO.LABEL_OPTIONAL)
            field.name, field.label, field.type = f"m{number}", PROTO.LABEL_REPEATED, PROTO.TYPE_MESSAGE
            field.type_name = f".p.Top.M{number}Entry"
            entry.name = f"M{number}Entry"
    if not any(each.HasField("oneof_index") for each in top.field):
        del top.oneof_decl[:]
    return file


PIECES = st.tuples(st.integers(0, 6), st.sampled_from([0, 1, 2, 5]), st.binary(max_size=10)).map(
    lambda piece: bytes([piece[0] << 3 | piece[1]]) + _payload(piece[1], piece[2])
)


def _payload(wire_type: int, data: bytes) -> bytes:
    """Return what stands behind a tag: a number, a text or message, 4 or 8 bytes."""
    if wire_type == 0:
        return bytes(each | 0x80 for each in data[:9]) + b"\1"
    if wire_type == 2:
        return bytes([len(data)]) + data
    return (data + bytes(8))[: 8 if wire_type == 1 else 4]


@given(
    messages(),
    st.lists(st.lists(PIECES, max_size=4).map(b"".join) | st.binary(max_size=8) | st.none(), min_size=1, max_size=6),
)
@settings(max_examples=examples(30))
def test_values_of_any_protobuf_message(file: descriptor_pb2.FileDescriptorProto, bodies: list[bytes | None]) -> None:
    registry = registry_of(Schema(base64.b64encode(file.SerializeToString()).decode(), PROTOBUF))
    values = [None if body is None else header(1) + b"\0" + body for body in bodies]
    value_columns.record_decoder.cache_clear()
    with (
        mock.patch.object(value_decoders, "registry_at", return_value=registry),
        mock.patch.object(sampling, "registry_at", return_value=registry),
    ):
        Reading(values, "protobuf", registry, JsonRules()).check()
