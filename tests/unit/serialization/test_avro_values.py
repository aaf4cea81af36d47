"""Avro records as columns: each type, what comes back from its columns, what is kept, and what is bad."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from barnabas.clock import ManualClock
from barnabas.errors import SchemaRegistryError, TimedOutError
from barnabas.formats.column_types import ColumnType, settled
from barnabas.formats.decoding import Decoded
from barnabas.formats.field_aliases import NO_ALIASES, Aliases
from barnabas.formats.further_columns import further_key
from barnabas.formats.json_fields import JsonRules
from barnabas.formats.value_format import JsonDecoder
from barnabas.serialization.avro_codec import CompiledCodec
from barnabas.serialization.avro_python_codec import PythonCodec
from barnabas.serialization.avro_values import AvroFormat, AvroRecords
from barnabas.serialization.framed_json import FramedJsonDecoder
from barnabas.serialization.record_values import RecordDecoder
from barnabas.serialization.registry_client import Schema, SchemaRegistry
from barnabas.serialization.unknown_ids import UNKNOWN_IDS_MAX
from barnabas.serialization.wire_format import Writer
from tests.support.fake_registry import avro_record, registry_of

PAGE: dict[str, Any] = {"name": "page", "type": "string"}
NUMBER: dict[str, Any] = {"name": "number", "type": "int"}


def record(*fields: dict[str, Any], name: str = "Click") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields)}


def binary(*values: bytes | None) -> pa.Array:
    return pa.array(values, pa.binary())


def decoder(*schemas: Schema | dict[str, Any], aliases: Aliases = NO_ALIASES) -> RecordDecoder:
    return RecordDecoder(AvroFormat(), registry_of(*schemas), aliases)


def fields_of(values: pa.Array, *schemas: Schema | dict[str, Any]) -> dict[str, ColumnType]:
    return {name: settled(kind) for name, kind in decoder(*schemas).infer(values).items()}


def come_back(
    values: pa.Array, fields: Mapping[str, ColumnType], decoded: Decoded, own: RecordDecoder
) -> list[bytes | None]:
    kept = pc.if_else(pc.equal(decoded.forms, "value"), values, pa.scalar(None, values.type))
    return list(own.restore(kept, decoded.forms, dict(zip(fields, decoded.columns, strict=True))).to_pylist())


def enum(*symbols: str) -> dict[str, Any]:
    return {"type": "enum", "name": "E", "symbols": list(symbols)}


def logical(kind: str, meaning: str, /, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": meaning, **more}


NODE = record({"name": "id", "type": "long"}, {"name": "next", "type": ["null", "Node"]}, name="Node")
MOMENT = datetime(2015, 5, 17, 10, 5, 3, 123000, tzinfo=UTC)
TYPES: list[tuple[str, Any, Any, ColumnType | None, Any]] = [
    ("int", "int", -(2**31), "int", -(2**31)),
    ("long", "long", 2**63 - 1, "long", 2**63 - 1),
    ("float", "float", 1.5, "float", 1.5),
    ("double", "double", -0.1, "double", -0.1),
    ("boolean", "boolean", True, "boolean", True),
    ("string", "string", "\u00e4\U0001f600", "string", "\u00e4\U0001f600"),
    ("bytes", "bytes", b"\xff\0", "binary", b"\xff\0"),
    ("fixed", {"type": "fixed", "name": "F", "size": 3}, b"\xff\0a", "binary", b"\xff\0a"),
    ("enum", enum("A", "B"), "B", "string", "B"),
    ("nullable", ["null", "string"], None, "string", None),
    ("null last", ["string", "null"], "x", "string", "x"),
    ("only branch", ["long"], 7, "long", 7),
    ("date", logical("int", "date"), date(2015, 5, 17), "date", date(2015, 5, 17)),
    ("millis", logical("long", "timestamp-millis"), MOMENT, "timestamp", MOMENT),
    ("micros", ["null", logical("long", "timestamp-micros")], MOMENT, "timestamp", MOMENT),
    ("nanos", logical("long", "timestamp-nanos"), 1_431_857_103_123_000_000, "timestamp", MOMENT),
    (
        "local",
        logical("long", "local-timestamp-micros"),
        MOMENT.replace(tzinfo=None),
        "timestamp_ntz",
        MOMENT.replace(tzinfo=None),
    ),
    ("time", logical("int", "time-millis"), 1000, "int", 1000),
    (
        "decimal",
        logical("bytes", "decimal", precision=38, scale=2),
        Decimal("-1.05"),
        "decimal(38,2)",
        Decimal("-1.05"),
    ),
    (
        "decimal in a fixed",
        ["null", logical("fixed", "decimal", name="D", size=9, precision=10, scale=3)],
        Decimal("12.500"),
        "decimal(10,3)",
        Decimal("12.500"),
    ),
    (
        "uuid",
        logical("string", "uuid"),
        "f81d4fae-7dec-11d0-a765-00a0c91e6bf6",
        "string",
        "f81d4fae-7dec-11d0-a765-00a0c91e6bf6",
    ),
    ("list", {"type": "array", "items": ["null", "int"]}, [1, None], ["int"], [1, None]),
    ("list of bytes", {"type": "array", "items": "bytes"}, [b"\xff", b""], ["binary"], [b"\xff", b""]),
    (
        "map",
        {"type": "map", "values": {"type": "array", "items": "bytes"}},
        {"b": [b"\xff"], "a": []},
        ["string", ["binary"]],
        [("b", [b"\xff"]), ("a", [])],
    ),
    (
        "record",
        record({"name": "x", "type": "bytes"}, {"name": "y", "type": ["null", enum("P", "Q")]}, name="R"),
        {"x": b"\xfe", "y": "Q"},
        {"x": "binary", "y": "string"},
        {"x": b"\xfe", "y": "Q"},
    ),
    (
        "nullable record",
        ["null", record({"name": "x", "type": {"type": "array", "items": "long"}}, name="R")],
        None,
        {"x": ["long"]},
        None,
    ),
    (
        "union",
        ["null", "long", "string", record(PAGE, name="a.R")],
        ("a.R", {"page": "p"}),
        {"long": "long", "string": "string", "R": {"page": "string"}},
        {"long": None, "string": None, "R": {"page": "p"}},
    ),
    ("union of numbers", ["int", "long"], ("long", 5), {"int": "int", "long": "long"}, {"int": None, "long": 5}),
    ("null", "null", None, None, None),
]


@pytest.mark.parametrize(("kind", "value", "column", "cell"), [each[1:] for each in TYPES], ids=[e[0] for e in TYPES])
def test_each_type_has_its_column_and_comes_back(kind: Any, value: Any, column: ColumnType | None, cell: Any) -> None:
    schema = record({"name": "a", "type": kind}, NUMBER)
    values = binary(avro_record(1, schema, {"a": value, "number": 7}), None)
    fields = fields_of(values, schema)
    assert fields == ({} if column is None else {"a": column}) | {"number": "int"}
    decoded = decoder(schema).decode(values, fields)
    assert decoded.columns[-1].to_pylist() == [7, None]
    if column is not None:
        assert decoded.columns[0].to_pylist() == [cell, None]
    assert (decoded.forms.to_pylist(), decoded.found) == (["avro:1", "tombstone"], {})
    assert decoded.reasons.null_count == 2
    assert come_back(values, fields, decoded, decoder(schema)) == values.to_pylist()


def test_usual_schemas_are_compiled_and_the_others_read_in_python() -> None:
    def codec(schema: dict[str, Any]) -> object:
        found = AvroFormat().record_type(registry_of(schema), Writer(1), NO_ALIASES)
        return type(found._codec)

    assert codec(record(PAGE, {"name": "b", "type": "bytes"}, {"name": "m", "type": {"type": "map", "values": "int"}}))
    assert codec(record(PAGE, {"name": "b", "type": ["null", "bytes"]})) is CompiledCodec
    assert codec(record({"name": "f", "type": {"type": "fixed", "name": "F", "size": 1}})) is PythonCodec
    assert codec(NODE) is PythonCodec


def test_a_record_within_itself_keeps_its_value_and_has_the_other_columns() -> None:
    alone, pair = ({"id": 1, "next": None}, {"id": 1, "next": {"id": 2, "next": None}})
    values = binary(avro_record(1, NODE, alone), avro_record(1, NODE, pair))
    fields = fields_of(values, NODE)
    decoded = decoder(NODE).decode(values, fields)
    assert (fields, decoded.columns[0].to_pylist()) == ({"id": "long"}, [1, 1])
    assert (decoded.forms.to_pylist(), decoded.reasons.to_pylist()) == (["avro:1", "value"], [None, None])


def test_each_record_is_read_with_its_own_schema() -> None:
    old, new = record(NUMBER), record(PAGE, {"name": "number", "type": "double"})
    values = binary(
        avro_record(2, new, {"number": 0.5, "page": "/a"}), avro_record(1, old, {"number": 7}), None, b"\0\0\0\0\2"
    )
    fields = fields_of(values, old, new)
    assert fields == {"number": "double", "page": "string"}
    decoded = decoder(old, new).decode(values, fields)
    assert [each.to_pylist() for each in decoded.columns] == [[0.5, 7.0, None, None], ["/a", None, None, None]]
    assert decoded.forms.to_pylist() == ["avro:2", "avro:1", "tombstone", "value"]
    assert come_back(values, fields, decoded, decoder(old, new)) == values.to_pylist()


def test_a_field_that_a_column_does_not_take_is_found_told_and_kept() -> None:
    schema = record({"name": "a", "type": "long"}, {"name": "b", "type": "string"})
    values = binary(avro_record(1, schema, {"a": 2**40, "b": "x"}), avro_record(1, schema, {"a": 7, "b": ""}))
    decoded = decoder(schema).decode(values, {"a": "int", "b": "long"})
    assert [each.to_pylist() for each in decoded.columns] == [[None, 7], [None, None]]
    assert decoded.found == {further_key("a", "long"): "long", further_key("b", "string"): "string"}
    assert decoded.reasons.to_pylist() == ["field 'b' does not fit its column (long)"] * 2
    assert come_back(values, {"a": "int", "b": "long"}, decoded, decoder(schema)) == values.to_pylist()


def test_fields_of_before_go_to_the_column_of_their_new_name() -> None:
    old, new = record(PAGE), record({"name": "url", "type": "string", "aliases": ["page"]})
    values = binary(avro_record(1, old, {"page": "/a"}), avro_record(2, new, {"url": "/b"}))
    assert decoder(old, new).renames(values) == Aliases({"page": "url"})
    renamed = decoder(old, new, aliases=Aliases({"page": "url"}))
    decoded = renamed.decode(values, {"url": "string"})
    assert (decoded.columns[0].to_pylist(), decoded.found) == (["/a", "/b"], {})
    assert come_back(values, {"url": "string"}, decoded, renamed) == values.to_pylist()


def test_a_record_that_has_lost_all_its_fields_goes_into_the_struct_that_it_was() -> None:
    schema = record({"name": "a", "type": ["long", record(name="R")]})
    values = binary(written(b"\x02"))
    fields: dict[str, ColumnType] = {"a": {"long": "long", "R": {"x": "int"}}}
    decoded = decoder(schema).decode(values, fields)
    assert decoded.columns[0].to_pylist() == [{"long": None, "R": {"x": None}}]
    assert decoded.forms.to_pylist() == ["avro:1"]
    assert come_back(values, fields, decoded, decoder(schema)) == values.to_pylist()


def test_a_name_that_was_another_field_has_no_column_again() -> None:
    both = record({"name": "url", "type": "string"}, PAGE)
    values = binary(avro_record(1, both, {"url": "/a", "page": "p"}))
    decoded = decoder(both, aliases=Aliases({"page": "url"})).decode(values, {"url": "string"})
    assert (decoded.columns[0].to_pylist(), decoded.forms.to_pylist()) == (["/a"], ["value"])


def test_a_value_is_kept_whose_field_has_no_column_as_its_name_was_another_field() -> None:
    both = record(PAGE, {"name": "url", "type": "string"})
    values = binary(avro_record(1, both, {"page": "", "url": "/a"}))
    decoded = decoder(both, aliases=Aliases({"page": "url"})).decode(values, {"url": "string"})
    assert decoded.forms.to_pylist() == ["value"], "when url is renamed too, both names are those of its column"
    fixed = RecordDecoder(AvroFormat(), registry_of(both), Aliases({"page": "url"}), may_rename=False)
    assert fixed.decode(values, {"url": "string"}).forms.to_pylist() == ["avro:1"]


def test_fields_within_go_to_the_columns_of_their_new_names() -> None:
    def visits(x: dict[str, Any]) -> dict[str, Any]:
        place = {"type": "array", "items": ["null", record(x, NUMBER, name="Place")]}
        return record({"name": "places", "type": ["null", place]})

    old = visits({"name": "x", "type": "float"})
    new = visits({"name": "longitude", "type": "double", "aliases": ["x"]})
    aliases = Aliases(within={"places": Aliases({"x": "longitude"})})
    values = binary(
        avro_record(1, old, {"places": [{"x": 1.5, "number": 7}, None]}),
        avro_record(2, new, {"places": [{"longitude": 2.5, "number": 8}]}),
    )
    assert decoder(old, new).renames(values) == aliases
    renamed = decoder(old, new, aliases=aliases)
    fields: dict[str, ColumnType] = {"places": [{"number": "int", "longitude": "double"}]}
    decoded = renamed.decode(values, fields)
    assert decoded.columns[0].to_pylist() == [
        [{"number": 7, "longitude": 1.5}, None],
        [{"number": 8, "longitude": 2.5}],
    ]
    assert (decoded.forms.to_pylist(), decoded.found) == (["avro:1", "avro:2"], {})
    assert come_back(values, fields, decoded, renamed) == values.to_pylist()


def test_a_value_is_kept_whose_fields_within_have_not_all_a_column_where_they_may_be_renamed() -> None:
    schema = record({"name": "place", "type": record(PAGE, {"name": "url", "type": "string"}, name="Place")})
    values = binary(avro_record(1, schema, {"place": {"page": "", "url": "/a"}}))
    aliases = Aliases(within={"place": Aliases({"page": "url"})})
    for column in ({"url": "string"}, {"url": "string", "page": "string"}):
        decoded = decoder(schema, aliases=aliases).decode(values, {"place": column})
        assert decoded.columns[0].to_pylist() == [dict.fromkeys(column) | {"url": "/a"}]
        assert decoded.forms.to_pylist() == ["value"]
    assert decoder(schema).decode(values, {"place": {"url": "string"}}).forms.to_pylist() == ["value"]


def written(*parts: bytes) -> bytes:
    return b"\0\0\0\0\1" + b"".join(parts)


DAMAGED = {
    b"": "a record of 0 bytes is too short for a schema id: its header takes 5 bytes",
    b"\x05\0\0\0\1..": "the first byte is 5 instead of 0: the record was written without a schema id",
    b"\0\0\0\0\x63..": "schema 99 is not known to the registry",
    b"\0\0\0\0\2\0": "schema 2: the schema is of type JSON, not AVRO",
    b"\0\0\0\0\3\0": "schema 3: invalid Avro schema: KeyError('nothing')",
    written(): "the record ends before its last field",
    written(b"\x04a"): "a length exceeds the rest of the record",
    written(b"\x02\xff", b"\0", b"\0"): "a string is not valid UTF-8",
    written(b"\x02a", b"\x80\x80\x80\x80\x20", b"\0"): "a number does not fit into 32 bits",
    written(b"\x02a", b"\0", b"\x06"): "a union's index is out of range",
    written(b"\x02a", b"\0", b"\0", b"?"): "the record has bytes after its last field",
}


@pytest.mark.parametrize("bad", DAMAGED, ids=DAMAGED.values())
def test_a_bad_record_says_why_and_leaves_nothing_in_the_columns(bad: bytes) -> None:
    schema = record(PAGE, NUMBER, {"name": "flag", "type": ["null", "boolean"]})
    good = avro_record(1, schema, {"page": "a", "number": 1, "flag": None})
    own = decoder(schema, Schema("{}", "JSON"), Schema('"nothing"'))
    values = binary(good, bad, good)
    decoded = own.decode(values, fields_of(binary(good), schema))
    assert decoded.reasons.to_pylist() == [None, DAMAGED[bad], None]
    assert [column.to_pylist() for column in decoded.columns] == [["a", None, "a"], [1, None, 1], [None, None, None]]
    assert decoded.forms.to_pylist() == ["avro:1", "value", "avro:1"]


def test_a_record_that_is_written_in_an_unusual_way_is_sound_and_kept() -> None:
    schema = record({"name": "a", "type": {"type": "array", "items": "int"}})
    values = binary(written(b"\x02\x02", b"\x02\x04", b"\0"), written(b"\x03\x04\x02\x04\0"), written(b"\x82\0\x02\0"))
    decoded = decoder(schema).decode(values, {"a": ["int"]})
    assert decoded.columns[0].to_pylist() == [[1, 2], [1, 2], [1]]
    assert decoded.forms.to_pylist() == ["value"] * 3
    assert decoded.reasons.null_count == 3


def test_what_is_too_long_ago_for_a_table_is_null_and_kept() -> None:
    schema = record({"name": "at", "type": logical("long", "timestamp-millis")})
    values = binary(written(b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"))
    decoded = decoder(schema).decode(values, {"at": "timestamp"})
    assert (decoded.columns[0].to_pylist(), decoded.forms.to_pylist()) == ([None], ["value"])
    assert decoded.reasons.to_pylist() == ["field 'at' does not fit its column (timestamp)"]


def test_arrays_of_nothing_and_endless_schemas_are_refused() -> None:
    nothing = record({"name": "a", "type": {"type": "array", "items": "null"}})
    many: dict[str, Any] = record(PAGE, name="R0")
    for number in range(1, 20):
        inner = {"name": "a", "type": many}
        many = record(inner, {"name": "b", "type": f"R{number - 1}"}, name=f"R{number}")
    decoded = decoder(nothing, many).decode(binary(written(b"\x02\0"), b"\0\0\0\0\2\0"), {})
    assert decoded.reasons.to_pylist() == [
        "schema 1: cannot decode arrays whose items take no bytes",
        "schema 2: invalid Avro schema: ValueError('the schema has more than 5000 types')",
    ]


def test_a_registry_that_is_away_is_no_fault_of_a_record() -> None:
    clock = ManualClock()

    def away(*_arguments: Any) -> Any:
        clock.advance(1)
        raise ConnectionRefusedError("refused")

    def forbidden(*_arguments: Any) -> Any:
        return 401, b'{"error_code":40101,"message":"who are you?"}', {}

    values = binary(written())
    own = RecordDecoder(AvroFormat(), SchemaRegistry(transport=away, clock=clock, timeout_s=0.5))
    with pytest.raises(TimedOutError, match="start it, or pass the URL"):
        own.decode(values, {})
    with pytest.raises(SchemaRegistryError, match="who are you"):
        RecordDecoder(AvroFormat(), SchemaRegistry(transport=forbidden)).decode(values, {})


def test_the_registry_is_not_asked_for_any_number_of_ids_that_it_does_not_know() -> None:
    asked = []

    def answer(url: str, *_rest: Any) -> Any:
        asked.append(url)
        return 404, b'{"error_code":40403,"message":"Schema not found"}', {}

    own = RecordDecoder(AvroFormat(), SchemaRegistry(transport=answer))
    values = binary(*(b"\0" + number.to_bytes(4, "big") for number in range(1_000)))
    decoded = own.decode(values, {})
    assert (len(asked), decoded.reasons.null_count) == (UNKNOWN_IDS_MAX, 0)
    assert set(decoded.reasons.to_pylist()[UNKNOWN_IDS_MAX:]) == {
        "the batch has more than 100 schema ids that the registry does not know"
    }


def test_unknown_ids_leave_the_records_of_a_known_one_good() -> None:
    known = registry_of(record(NUMBER))  # which gives the id 1

    def answer(url: str, *rest: Any) -> Any:
        if url.endswith("/1"):
            return known._transport(url, *rest)
        return 404, b'{"error_code":40403,"message":"Schema not found"}', {}

    good = b"\0\0\0\0\1\2"
    framed = b"\0\0\0\0\1{}"
    foreign = [b"\0" + number.to_bytes(4, "big") for number in range(1_000, 1_000 + 2 * UNKNOWN_IDS_MAX)]
    in_one = RecordDecoder(AvroFormat(), SchemaRegistry(transport=answer))
    assert in_one.decode(binary(*foreign, good, good), {"number": "int"}).reasons.null_count == 2
    later = RecordDecoder(AvroFormat(), SchemaRegistry(transport=answer))
    assert later.decode(binary(*foreign), {}).reasons.null_count == 0
    decoded = later.decode(binary(good), {"number": "int"})
    assert (decoded.forms.to_pylist(), decoded.reasons.to_pylist()) == (["avro:1"], [None])
    as_json = FramedJsonDecoder(JsonDecoder(JsonRules()), registry_of(Schema("{}", "JSON")))
    assert as_json.decode(binary(*foreign), {}).reasons.null_count == 0
    assert as_json.decode(binary(*foreign, framed, framed), {}).reasons.to_pylist()[-2:] == [None, None]


def test_values_that_look_like_many_ids_cost_no_pass_over_all_values_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    passes = []
    for name in ("equal", "if_else", "indices_nonzero", "is_in"):
        whole = getattr(pc, name)

        def counted(*arguments: Any, whole: Any = whole, **options: Any) -> Any:
            passes.append(whole)
            return whole(*arguments, **options)

        monkeypatch.setattr(pc, name, counted)
    framed = b'\0\0\0\0\1{"a":1}'
    counts = []
    for ids in (200, 800):
        foreign = [b"\0" + number.to_bytes(4, "big") + b'{"a":2}' for number in range(1_000, 1_000 + ids)]
        own = FramedJsonDecoder(JsonDecoder(JsonRules()), registry_of(Schema("{}", "JSON")))
        passes.clear()
        decoded = own.decode(binary(framed, *foreign, None, b'{"a":3}', framed), {"a": "long"})
        counts.append(len(passes))
        assert decoded.columns[0].to_pylist() == [1, *[2] * ids, None, 3, 1]
        assert decoded.forms.to_pylist() == [
            "json:1:columns", *["value"] * ids, "tombstone", "columns", "json:1:columns"
        ]  # fmt: skip
        assert [reason is None for reason in decoded.reasons.to_pylist()] == [True, *[False] * ids, True, True, True]
    assert counts[0] == counts[1]


def test_compiled_and_python_codecs_agree() -> None:
    schema = record(PAGE, NUMBER, {"name": "x", "type": {"type": "map", "values": ["null", "bytes"]}})
    tree = AvroFormat().record_type(registry_of(schema), Writer(1), NO_ALIASES)._tree
    rows = [{"page": "p" * n, "number": -n, "x": {"k": b"\xff" * n, "n": None}} for n in range(200)]
    out = []
    for row in rows:
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, fastavro.parse_schema(json.loads(json.dumps(schema))), row)
        out.append(stream.getvalue())
    fast, slow = CompiledCodec(tree), PythonCodec(tree)
    columns = fast.decode(out)
    assert [each.to_pylist() for each in columns] == [each.to_pylist() for each in slow.decode(out)]
    assert fast.encode(columns, 200).to_pylist() == slow.encode(columns, 200).to_pylist() == out
    assert isinstance(AvroRecords(tree, NO_ALIASES), AvroRecords)


def test_a_schema_whose_reference_was_deleted_makes_bad_records_of_its_own_alone() -> None:
    def answer(url: str, *_request: Any) -> tuple[int, bytes, Mapping[str, str]]:
        if "/subjects/" in url:
            return 404, b'{"error_code":40401,"message":"Subject not found."}', {}
        if url.endswith("/ids/2"):
            references = [{"name": "Place", "subject": "place", "version": 1}]
            text = json.dumps(record({"name": "at", "type": "Place"}))
            return 200, json.dumps({"schema": text, "references": references}).encode(), {}
        return 200, json.dumps({"schema": json.dumps(record(NUMBER))}).encode(), {}

    own = RecordDecoder(AvroFormat(), SchemaRegistry("http://registry", transport=answer))
    decoded = own.decode(binary(b"\0\0\0\0\1\2", b"\0\0\0\0\2\2"), {"number": "int"})
    assert decoded.columns[0].to_pylist() == [1, None]
    assert decoded.reasons.to_pylist() == [None, "schema 2: Subject not found. (40401)"]


@pytest.mark.parametrize("levels", [60, 200, 900])
def test_a_schema_nested_deeply_keeps_no_other_record_from_its_columns(levels: int) -> None:
    kind: Any = "int"
    for _ in range(levels):
        kind = {"type": "array", "items": kind}
    own = decoder(record(NUMBER), record({"name": "deep", "type": kind}, NUMBER))
    values = binary(b"\0\0\0\0\1\2", b"\0\0\0\0\2" + b"\2" * levels + b"\4" + b"\0" * levels + b"\6")
    decoded = own.decode(values, {"number": "int"})
    assert decoded.columns[0][0].as_py() == 1
    assert len(decoded.forms) == 2
    assert come_back(values, {"number": "int"}, decoded, own) == values.to_pylist()


def test_a_map_with_a_repeated_key_has_its_last_entry_and_is_kept_whole() -> None:
    schema = record({"name": "m", "type": {"type": "map", "values": "int"}})
    twice, once = b"\0\0\0\0\1\6\2a\2\2b\4\2a\6\0", b"\0\0\0\0\1\2\2a\2\0"
    decoded = decoder(schema).decode(binary(twice, None, once), {"m": ["string", "int"]})
    assert decoded.columns[0].to_pylist() == [[("b", 2), ("a", 3)], None, [("a", 1)]]
    assert decoded.forms.to_pylist() == ["value", "tombstone", "avro:1"]


def test_values_whose_schema_is_no_record_have_columns() -> None:
    known = [
        ["null", record(PAGE)],
        [record(NUMBER), "null"],
        "string",
        ["null", "long", record(PAGE, name="web.Visit")],
        enum("A", "B"),
        {"type": "map", "values": "int"},
        "null",
    ]
    values = binary(
        b"\0\0\0\0\1\2\4/a",
        b"\0\0\0\0\1\0",
        b"\0\0\0\0\2\0\6",
        b"\0\0\0\0\3\4hi",
        b"\0\0\0\0\4\4\4/b",
        b"\0\0\0\0\4\2\6",
        b"\0\0\0\0\4\0",
        b"\0\0\0\0\5\2",
        b"\0\0\0\0\6\2\2k\2\0",
        b"\0\0\0\0\7",
        b"\0\0\0\0\1\4",
    )
    own = decoder(*(Schema(json.dumps(each)) for each in known))
    fields = {name: settled(kind) for name, kind in own.infer(values).items()}
    assert fields == {
        "page": "string",
        "number": "int",
        "string": "string",
        "long": "long",
        "Visit": {"page": "string"},
        "E": "string",
        "map": ["string", "int"],
    }
    decoded = own.decode(values, fields)
    rows = [
        {name: cell for name, cell in zip(fields, to_column, strict=True) if cell is not None}
        for to_column in zip(*(column.to_pylist() for column in decoded.columns), strict=True)
    ]
    assert rows == [
        {"page": "/a"},
        {},
        {"number": 3},
        {"string": "hi"},
        {"Visit": {"page": "/b"}},
        {"long": 3},
        {},
        {"E": "B"},
        {"map": [("k", 1)]},
        {},
        {},
    ]
    assert [each for each in decoded.reasons.to_pylist() if each] == ["a union's index is out of range"]
    assert come_back(values, fields, decoded, own) == values.to_pylist()
    assert decoded.forms.to_pylist()[1] == "value"
