"""Records whose arrays could have any number of items without bytes are refused with their schema."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest

from barnabas.errors import SerializationError
from barnabas.serialization.avro import AvroDeserializer
from barnabas.serialization.registry_client import AVRO, Schema, SchemaRegistry
from barnabas.serialization.wire_format import header

NOTHING = {"type": "record", "name": "Nothing", "fields": [{"name": "n", "type": "null"}]}
FORTY_BITS = b"\x80\x80\x80\x80\x80\x40"


class OneSchema:
    """A registry with one schema."""

    def __init__(self, parsed: Any) -> None:
        self.text = json.dumps(parsed)

    def schema(self, _number: int) -> Schema:
        return Schema(self.text, AVRO, ())

    def dependencies(self, _schema: Schema) -> list[tuple[str, str]]:
        return []


def deserializer(items: Any, *before: Any) -> AvroDeserializer:
    fields = [{"name": f"f{number}", "type": kind} for number, kind in enumerate(before)]
    array = {"name": "items", "type": {"type": "array", "items": items}}
    parsed = {"type": "record", "name": "Whole", "fields": [*fields, array]}
    return AvroDeserializer(cast(SchemaRegistry, OneSchema(parsed)))


@pytest.mark.parametrize(
    ("items", "before"),
    [
        ("null", []),
        (NOTHING, []),
        ("Nothing", [NOTHING]),
        ({"type": "fixed", "name": "F", "size": 0}, []),
        ({"type": "record", "name": "Outer", "fields": [{"name": "n", "type": NOTHING}]}, []),
    ],
)
def test_arrays_of_items_without_bytes_are_refused(items: Any, before: list[Any]) -> None:
    with pytest.raises(SerializationError, match="items take no bytes"):
        deserializer(items, *before).deserialize(header(1) + FORTY_BITS)


@pytest.mark.parametrize("items", ["long", "string", ["null"], {"type": "array", "items": "long"}])
def test_arrays_that_claim_more_items_than_there_are_bytes_are_refused(items: Any) -> None:
    with pytest.raises(SerializationError, match="invalid record"):
        deserializer(items).deserialize(header(1) + FORTY_BITS + b"\0" * 9)


class TwoSchemas(OneSchema):
    """A registry with a schema that refers to another."""

    def dependencies(self, _schema: Schema) -> list[tuple[str, str]]:
        return [("Nothing", json.dumps(NOTHING))]


def test_items_without_bytes_of_another_schema_are_refused() -> None:
    parsed = {"type": "array", "items": "Nothing"}
    reader = AvroDeserializer(cast(SchemaRegistry, TwoSchemas(parsed)))
    with pytest.raises(SerializationError, match="items take no bytes"):
        reader.deserialize(header(1) + FORTY_BITS)


def test_other_arrays_are_read() -> None:
    assert deserializer("long").deserialize(header(1) + b"\x04\x02\x04\x00") == {"items": [1, 2]}
