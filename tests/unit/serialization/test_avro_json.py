"""Avro records as JSON, and back."""

from __future__ import annotations

import json
from typing import Any

import pytest

from barnabas.errors import SerializationError
from barnabas.serialization.avro_json import AvroJson
from barnabas.serialization.registry_client import AVRO, Schema
from tests.support.fake_registry import avro_record, registry_of

EVERYTHING = {
    "type": "record",
    "name": "All",
    "namespace": "web",
    "fields": [
        {"name": "flag", "type": "boolean"},
        {"name": "small", "type": "int"},
        {"name": "large", "type": "long"},
        {"name": "ratio", "type": "float"},
        {"name": "exact", "type": "double"},
        {"name": "raw", "type": "bytes"},
        {"name": "text", "type": "string"},
        {"name": "pair", "type": {"type": "fixed", "name": "Pair", "size": 2}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "id", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "list", "type": {"type": "array", "items": ["null", "long"]}},
        {"name": "map", "type": {"type": "map", "values": "Kind"}},
        {"name": "maybe", "type": ["null", "string"], "default": None},
        {"name": "many", "type": ["null", "long", "double", "string", {"type": "record", "name": "One", "fields": [
            {"name": "a", "type": "long"}]}, {"type": "record", "name": "Two", "fields": [
                {"name": "a", "type": "string"}, {"name": "next", "type": ["null", "Two"]}]}]},
    ],
}  # fmt: skip
VALUE: dict[str, Any] = {
    "flag": True,
    "small": -(2**31),
    "large": 2**63 - 1,
    "ratio": 0.5,
    "exact": "-Infinity",
    "raw": "\x00ÿ",
    "text": "ż\u0000",
    "pair": "ab",
    "kind": "B",
    "price": "-12.50",
    "at": 2**62,  # a time that Python does not have
    "day": -1,
    "id": "0b7e7dee-87b1-4f3e-8d1a-6b1a7a1e2a2a",
    "list": [1, None],
    "map": {"k": "A"},
    "maybe": None,
    "many": {"a": "x", "next": {"a": "y", "next": None}},
}


def codec_of(kind: Any) -> tuple[AvroJson, int, Schema]:
    schema = Schema(json.dumps(kind), AVRO)
    return AvroJson(registry_of(schema)), 1, schema


def again(kind: Any, value: Any) -> Any:
    """Return a value that was encoded and decoded."""
    codec, schema_id, schema = codec_of(kind)
    return codec.decode(codec.encode(value, schema_id, schema))


def test_json_of_each_type_is_encoded_to_what_it_was() -> None:
    found = again(EVERYTHING, VALUE)
    assert found == VALUE
    assert json.loads(json.dumps(found)) == VALUE


def test_records_are_those_of_the_serializer() -> None:
    kind = {**EVERYTHING, "fields": [each for each in EVERYTHING["fields"] if each["name"] != "price"]}
    shown = {name: each for name, each in VALUE.items() if name != "price"} | {"at": 7}
    plain = {**shown, "raw": b"\0\xff", "pair": b"ab", "exact": float("-inf")}
    codec, schema_id, schema = codec_of(kind)
    written = avro_record(schema_id, kind, plain)
    assert codec.decode(written) == shown
    assert codec.encode(shown, schema_id, schema) == written


@pytest.mark.parametrize(
    ("kind", "value", "found"),
    [
        (["null", "double", "long"], 5, 5),
        (["null", "double"], 5, 5.0),
        (["null", "double", "long"], {"double": 5}, 5.0),
        (["null", "string"], {"string": "a"}, "a"),
        (["null", {"type": "map", "values": "string"}], {"string": "a"}, {"string": "a"}),
        (["null", {"type": "map", "values": "string"}, "string"], {"string": "a"}, {"string": "a"}),
        ("double", "NaN", "NaN"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 1}, 1.5, "1.5"),
        ({"type": "string"}, "a", "a"),
    ],
)
def test_value_finds_its_branch_and_its_type(kind: Any, value: Any, found: Any) -> None:
    assert again(kind, value) == found


def test_missing_field_gets_its_default() -> None:
    fields = [{"name": "n", "type": "long", "default": 7}, {"name": "m", "type": ["null", "long"], "default": None}]
    assert again({"type": "record", "name": "R", "fields": fields}, {}) == {"n": 7, "m": None}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"small": 2**31}, "at small: 2147483648 is not of type int"),
        ({"small": True}, "at small: true is not of type int"),
        ({"small": 1.0}, "at small: 1.0 is not of type int"),
        ({"flag": 1}, "at flag: 1 is not of type boolean"),
        ({"text": None}, "at text: null is not of type string"),
        ({"raw": "€"}, "at raw: a string for bytes has one character per byte"),
        ({"pair": "abc"}, 'at pair: "abc" is not of type web.Pair'),
        ({"kind": "C"}, 'at kind: "C" is not of type web.Kind'),
        ({"price": "1.234"}, "the value does not fit the schema"),
        ({"price": "NaN"}, 'at price: "NaN" is not of type decimal'),
        ({"price": "1e999999999"}, 'at price: "1e999999999" is not of type decimal'),
        ({"exact": 10**400}, "at exact: 1000"),
        ({"list": [1, "x"]}, 'at list[1]: "x" is not of type long'),
        ({"map": {"k": "C"}}, 'at map.k: "C" is not of type web.Kind'),
        ({"many": []}, "at many: [] is not of type null or long or double or string or web.One or web.Two"),
        ({"other": 1}, "web.All has no field 'other'"),
    ],
)
def test_value_that_does_not_fit_is_refused_with_its_path(change: dict[str, Any], reason: str) -> None:
    codec, schema_id, schema = codec_of(EVERYTHING)
    with pytest.raises(SerializationError) as caught:
        codec.encode({**VALUE, **change}, schema_id, schema)
    assert reason in str(caught.value)


def test_missing_field_without_default_is_refused() -> None:
    codec, schema_id, schema = codec_of(EVERYTHING)
    with pytest.raises(SerializationError, match=r"the field 'flag' of web\.All is missing"):
        codec.encode({name: each for name, each in VALUE.items() if name != "flag"}, schema_id, schema)


def test_damaged_records_are_refused() -> None:
    codec, schema_id, schema = codec_of(EVERYTHING)
    record = codec.encode(VALUE, schema_id, schema)
    for damaged in (record[:3], b"\x01" + record[1:], record[:-1], record + b"x", record[:5]):
        with pytest.raises(SerializationError):
            codec.decode(damaged)
