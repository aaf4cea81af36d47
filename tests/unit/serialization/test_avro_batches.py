"""Tables as Avro records: what each row becomes, and that nothing is sent that is not what was given."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

import barnabas
from barnabas.client.producer.serializers import with_values
from barnabas.errors import ConfigurationError, SerializationError
from barnabas.serialization.registry_client import SchemaRegistry

MOMENT = datetime(2015, 5, 17, 10, 5, 3, tzinfo=UTC)
SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "Click",
    "fields": [
        {"name": "id", "type": "int"},
        {"name": "page", "type": ["null", "string"], "default": None},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["VIEW", "BUY"]}},
        {
            "name": "tags",
            "type": {
                "type": "array",
                "items": {"type": "record", "name": "Tag", "fields": [{"name": "t", "type": "string"}]},
            },
        },
        {"name": "sort", "type": "string", "default": "usual"},
    ],
}
ROW: dict[str, Any] = {
    "id": 1,
    "page": "/a",
    "at": MOMENT,
    "price": Decimal("1.50"),
    "kind": "BUY",
    "tags": [{"t": "x"}],
    "sort": "s",
}


def registry() -> SchemaRegistry:
    """Return a registry that gives each schema the id 7."""
    answer = json.dumps({"id": 7, "schema": json.dumps(SCHEMA)}).encode()
    return SchemaRegistry(transport=lambda *_request: (200, answer, {}))


def sent(table: Any) -> list[Any]:
    known = registry()
    values = barnabas.AvroSerializer(known, SCHEMA).serialize_columns(table, "clicks")
    read = barnabas.AvroDeserializer(known).deserialize
    return [read(value) for value in values.to_pylist()]


def test_rows_become_records_that_are_read_as_what_they_were() -> None:
    rows = [ROW, {**ROW, "page": None, "tags": [], "id": -5}]
    table = pa.Table.from_pylist(rows).append_column("user", pa.array(["key"] * 2))
    assert sent(table) == rows
    assert sent(table.slice(1)) == rows[1:]
    assert sent(table.drop_columns(["page", "sort"])) == [{**row, "page": None, "sort": "usual"} for row in rows]
    assert sent(table.slice(0, 0)) == []


def test_columns_may_have_the_types_of_other_libraries() -> None:
    table = pa.Table.from_pylist([ROW])
    other = (
        table.set_column(1, "page", table["page"].cast(pa.large_string()))
        .set_column(4, "kind", table["kind"].dictionary_encode())
        .set_column(0, "id", table["id"].cast(pa.uint8()))
    )
    assert sent(other) == [ROW]


MISFITS = {
    "column 'id', row 1: 2147483648 (int64) does not fit the schema's int": {"id": 2**31},
    "column 'id', row 1: None (int64) does not fit the schema's int": {"id": None},
    "column 'kind', row 1: 'NONE' (string) does not fit the schema's enum": {"kind": "NONE"},
    "column 'price', row 1: Decimal('1000.00') (decimal128(6, 2)) does not fit the schema's decimal": {
        "price": Decimal("1000.00")
    },
    "column 'tags', row 1: [{'t': 'y'}, {'t': None}] (list<": {"tags": [{"t": "y"}, {"t": None}]},
    "column 'tags', row 1: [None] (list<": {"tags": [None]},
}


@pytest.mark.parametrize("told", MISFITS)
def test_what_does_not_fit_is_told_with_its_row(told: str) -> None:
    with pytest.raises(SerializationError) as raised:
        sent(pa.Table.from_pylist([ROW, {**ROW, **MISFITS[told]}]))
    assert str(raised.value).startswith(told)


def made(kind: Any, column: pa.Array, *, default: Any = None) -> list[bytes]:
    """Return what is sent of a column behind the schema's id; with a default, of a table without it."""
    field = {"name": "x", "type": kind, **({} if default is None else {"default": default})}
    schema = {"type": "record", "name": "One", "fields": [field]}
    known = SchemaRegistry(transport=lambda *_request: (200, json.dumps({"id": 7}).encode(), {}))
    table = pa.table({"x" if default is None else "other": column})
    written = barnabas.AvroSerializer(known, schema).serialize_columns(table, "t").to_pylist()
    return [value[5:] for value in written]


def timestamps(unit: str) -> dict[str, str]:
    return {"type": "long", "logicalType": f"timestamp-{unit}"}


@pytest.mark.parametrize(
    ("kind", "column"),
    [
        (timestamps("nanos"), pa.array([2**60], pa.timestamp("us", "UTC"))),
        (timestamps("micros"), pa.array([2**55], pa.timestamp("s", "UTC"))),
        ({"type": "fixed", "name": "Four", "size": 4}, pa.array([b"ab"])),
        ({"type": "fixed", "name": "Four", "size": 4}, pa.array([b"abcde"])),
    ],
)
def test_no_time_is_wrapped_and_no_bytes_are_cut_or_filled_up(kind: Any, column: pa.Array) -> None:
    with pytest.raises(SerializationError, match=r"column 'x', row 0: .* does not fit the schema's"):
        made(kind, column)


def test_times_of_any_unit_and_bytes_of_the_right_size_are_sent() -> None:
    for unit, number in (("s", -2), ("ms", -2_000), ("us", -2_000_000), ("ns", -2_000_000_001)):
        assert made(timestamps("millis"), pa.array([number], pa.timestamp(unit, "UTC"))) == [b"\x9f\x1f"]
    assert made({"type": "fixed", "name": "Four", "size": 4}, pa.array([b"abcd"])) == [b"abcd"]


def test_a_default_of_bytes_has_a_letter_for_each_byte() -> None:
    assert made("bytes", pa.array([1]), default="\u00ff") == [b"\x02\xff"]


UNION = ["long", "string", {"type": "record", "name": "P", "fields": [{"name": "x", "type": "bytes"}]}]


@pytest.mark.parametrize(
    ("kind", "default", "written"),
    [
        (UNION, 7, b"\x00\x0e"),
        ("long", -(2**63), b"\xff" * 9 + b"\x01"),
        (UNION, "a", b"\x02\x02a"),
        (["string", "null", "long"], "a", b"\x00\x02a"),
        (UNION[2], {"x": "\u00ff"}, b"\x02\xff"),
        ({"type": "array", "items": "bytes"}, ["\u0001"], b"\x02\x02\x01\x00"),
        ({"type": "map", "values": UNION}, {"k": 7}, b"\x02\x02k\x00\x0e\x00"),
    ],
)
def test_a_default_is_written_whatever_its_type(kind: Any, default: Any, written: bytes) -> None:
    assert made(kind, pa.array([1, 2]), default=default) == [written] * 2


@pytest.mark.parametrize("default", [1.5, True, {"y": "a"}, 2**63])
def test_a_default_that_is_none_is_told(default: Any) -> None:
    with pytest.raises(SerializationError, match=r"no column 'x', and the field's default .* is invalid"):
        made(UNION, pa.array([1]), default=default)


def test_a_column_that_is_there_twice_is_told() -> None:
    table = pa.Table.from_pylist([ROW])
    with pytest.raises(SerializationError, match="the table has 2 columns 'id'"):
        sent(table.append_column("id", table["id"]))


def test_a_column_that_is_missing_is_told() -> None:
    with pytest.raises(SerializationError, match="the table has no column 'id'; field 'id' of schema Click"):
        sent(pa.Table.from_pylist([ROW]).drop_columns(["id"]))


def test_values_stand_beside_the_columns_of_key_and_time() -> None:
    table = pa.Table.from_pylist([ROW]).append_column("value", pa.array(["a key"]))
    made, name = with_values(table, "clicks", barnabas.AvroSerializer(registry(), SCHEMA), None)
    assert (name, made.column_names[-2:], made["value"].to_pylist()) == ("_value", ["value", "_value"], ["a key"])
    with pytest.raises(ConfigurationError, match=r"either value \(a column\) or value_schema"):
        with_values(table, "clicks", barnabas.AvroSerializer(registry(), SCHEMA), "value")
    not_one: Any = "Click"
    with pytest.raises(TypeError, match="value_schema must be an AvroSerializer, not 'Click'"):
        with_values(table, "clicks", not_one, None)
