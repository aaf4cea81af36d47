"""Tables as Avro records: what each row becomes, and that nothing is sent that is not what was given."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

import barnabas
from barnabas.client.producer.column_values import with_values
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


def test_a_column_that_is_missing_is_told() -> None:
    with pytest.raises(SerializationError, match="there is no column 'id', which the schema Click has"):
        sent(pa.Table.from_pylist([ROW]).drop_columns(["id"]))


def test_values_stand_beside_the_columns_of_key_and_time() -> None:
    table = pa.Table.from_pylist([ROW]).append_column("value", pa.array(["a key"]))
    made, name = with_values(table, "clicks", barnabas.AvroSerializer(registry(), SCHEMA), None)
    assert (name, made.column_names[-2:], made["value"].to_pylist()) == ("_value", ["value", "_value"], ["a key"])
    with pytest.raises(ConfigurationError, match="either value, a column, or value_schema"):
        with_values(table, "clicks", barnabas.AvroSerializer(registry(), SCHEMA), "value")
    not_one: Any = "Click"
    with pytest.raises(TypeError, match="value_schema must be an AvroSerializer, not 'Click'"):
        with_values(table, "clicks", not_one, None)
