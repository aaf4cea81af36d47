"""Records and schemas that would exhaust the stack or the memory are refused before fastavro reads them."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.errors import SerializationError
from barnabas.serialization.avro import AvroDeserializer, WriterSchema
from barnabas.serialization.avro_json import AvroJson
from barnabas.serialization.avro_limits import DEPTH_MAX
from barnabas.serialization.wire_format import header
from tests.support.fake_registry import avro_record, registry_of

LIST = {"type": "record", "name": "Node", "fields": [{"name": "next", "type": ["null", "Node"]}]}


def record(name: str, *kinds: Any) -> dict[str, Any]:
    fields = [{"name": f"f{number}", "type": kind} for number, kind in enumerate(kinds)]
    return {"type": "record", "name": name, "fields": fields}


def doubling(levels: int, last: Any) -> dict[str, Any]:
    """Return a schema of `2 ** levels` values: each record has two fields of the next one."""
    kind: Any = last
    for level in range(levels, 0, -1):
        kind = record(f"L{level}", kind, f"L{level + 1}" if level < levels else last)
    return record("Top", kind)


def test_record_of_a_recursive_schema_ends_with_an_error_not_with_the_process() -> None:
    reader = AvroDeserializer(registry_of(LIST))
    assert reader.deserialize(header(1) + b"\x02\x02\x00") == {"next": {"next": {"next": None}}}
    with pytest.raises(SerializationError, match="levels of nested values"):
        reader.deserialize(header(1) + b"\x02" * 100_000 + b"\x00")
    with pytest.raises(SerializationError, match="schema 1: the record ends"):
        reader.deserialize(header(1) + b"\x02\x02")


def test_command_refuses_deep_records_as_the_deserializer_does() -> None:
    reader = AvroJson(registry_of(LIST))
    assert reader.decode(header(1) + b"\x02\x00") == {"next": {"next": None}}
    with pytest.raises(SerializationError, match="levels of nested values"):
        reader.decode(header(1) + b"\x02" * 100_000 + b"\x00")


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        (record("Endless", "Endless"), "would contain another one"),
        (record("A", record("B", record("C", "A"))), "would contain another one"),
        ({"type": "array", "items": doubling(60, "null")}, "items take no bytes"),
    ],
    ids=["itself", "through others", "doubling"],
)
def test_schemas_without_bounds_are_refused(schema: dict[str, Any], text: str) -> None:
    with pytest.raises(SerializationError, match=text):
        AvroDeserializer(registry_of(schema)).deserialize(header(1) + b"\x00" * 9)


def test_schema_of_more_values_than_the_limit_is_refused() -> None:
    with pytest.raises(SerializationError, match="too many values"):
        AvroDeserializer(registry_of(doubling(60, "null"))).deserialize(header(1))


def test_chain_of_many_types_is_refused() -> None:
    chain: list[Any] = [record("R0", "int")]
    chain += [record(f"R{number}", f"R{number - 1}") for number in range(1, 20 * DEPTH_MAX)]
    with pytest.raises(SerializationError, match="levels of nested types"):
        AvroDeserializer(registry_of(record("Top", chain))).deserialize(header(1) + b"\0" * 9)


def test_deep_text_of_a_schema_is_refused() -> None:
    schema: Any = "int"
    for _ in range(320):
        schema = {"type": "array", "items": schema}
    deep = AvroDeserializer(registry_of(record("Deep", schema)))
    assert deep.deserialize(header(1) + b"\x00") == {"f0": []}
    for _ in range(100):
        schema = {"type": "array", "items": schema}
    with pytest.raises(SerializationError, match=r"nested|recursion"):
        AvroDeserializer(registry_of(record("Deep", schema))).deserialize(header(1) + b"\x00")


def test_values_of_all_types_are_counted() -> None:
    schema = record(
        "Whole",
        "int", "boolean", "float", "double", "bytes", "string",
        {"type": "enum", "name": "E", "symbols": ["A", "B"]},
        {"type": "fixed", "name": "F", "size": 3},
        {"type": "array", "items": "long"},
        {"type": "map", "values": ["null", "string"]},
        {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2},
    )  # fmt: skip
    value = dict(
        zip(
            [field["name"] for field in schema["fields"]],
            [1, True, 1.5, 2.5, b"b", "s", "B", b"abc", [1, 2, 3], {"k": "v", "n": None}, b"\x01"],
            strict=True,
        )
    )
    data = avro_record(1, schema, value)
    registry = registry_of(schema)
    expected = WriterSchema(registry, registry.schema(1)).read(data)
    assert expected["f8"] == [1, 2, 3]
    # The walk visits the record, its eleven fields, three items, and two values with their branches.
    assert WriterSchema(registry, registry.schema(1), values_max=19).read(data) == expected
    with pytest.raises(SerializationError, match="too many values"):
        WriterSchema(registry, registry.schema(1), values_max=18).read(data)
    for end in range(5, len(data)):
        with pytest.raises(SerializationError):
            WriterSchema(registry, registry.schema(1), values_max=19).read(data[:end])
