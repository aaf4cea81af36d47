"""Columns of Avro records: as each record would be read by itself, bad ones named, old and new versions together."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from barnabas.errors import SerializationError
from barnabas.serialization import wire_format
from barnabas.serialization.avro_columns import decode_avro
from barnabas.serialization.registry_client import Schema, SchemaRegistry

Fields = list[dict[str, Any]]

PAGE: dict[str, Any] = {"name": "page", "type": "string"}
NUMBER: dict[str, Any] = {"name": "number", "type": "int"}
REFERRER: dict[str, Any] = {"name": "referrer", "type": ["null", "string"], "default": None}


def click(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": "Click", "fields": list(fields)}


def registry(*schemas: dict[str, Any]) -> SchemaRegistry:
    """Return a registry that has these schemas, with ids from 1."""

    def answer(
        url: str, _method: str, _body: bytes | None, _headers: Mapping[str, str], _timeout_s: float
    ) -> tuple[int, bytes, Mapping[str, str]]:
        number = int(url.rpartition("/")[2])
        if number > len(schemas):
            return 404, b'{"error_code":40403,"message":"Schema not found"}', {}
        return 200, json.dumps({"schema": json.dumps(schemas[number - 1])}).encode(), {}

    return SchemaRegistry("http://registry", transport=answer)


def record(schema_id: int, schema: dict[str, Any], value: Any) -> bytes:
    out = io.BytesIO(wire_format.header(schema_id))
    out.seek(wire_format.HEADER_BYTES)
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def rows(*values: bytes | None) -> pa.Array:
    return pa.array(values, pa.binary())


def reader(schema: dict[str, Any]) -> Schema:
    return Schema(json.dumps(schema))


def test_records_become_columns_and_tombstones_rows_of_nulls() -> None:
    schema = click(PAGE, NUMBER, REFERRER)
    first, second = ({"page": "/ä", "number": 7, "referrer": None}, {"page": "", "number": -1, "referrer": "x"})
    decoded = decode_avro(rows(record(1, schema, first), None, record(1, schema, second)), registry(schema))
    assert decoded.batch.to_pylist() == [first, {"page": None, "number": None, "referrer": None}, second]
    assert decoded.reasons.null_count == 3
    assert decoded.schema_ids.to_pylist() == [1, None, 1]


def test_versions_are_brought_to_the_latest() -> None:
    old, new = click(NUMBER), click({"name": "number", "type": ["null", "long"]}, {**PAGE, "default": "/"}, REFERRER)
    column = rows(
        record(2, new, {"number": 2**40, "page": "/a", "referrer": "b"}),
        record(1, old, {"number": 7}),
        record(2, new, {"number": None, "page": "/c"}),
    )
    assert decode_avro(column, registry(old, new)).batch.to_pylist() == [
        {"number": 2**40, "page": "/a", "referrer": "b"},
        {"number": 7, "page": "/", "referrer": None},
        {"number": None, "page": "/c", "referrer": None},
    ]


def test_a_reader_renames_by_alias_and_leaves_fields_out() -> None:
    schema = click(PAGE, NUMBER)
    wanted = click({"name": "url", "type": "string", "aliases": ["page"]})
    decoded = decode_avro(rows(record(1, schema, {"page": "/a", "number": 1})), registry(schema), reader(wanted))
    assert decoded.batch.to_pylist() == [{"url": "/a"}]


def test_nested_fields_evolve_too() -> None:
    def nested(*fields: dict[str, Any]) -> dict[str, Any]:
        return click({"name": "place", "type": {"type": "record", "name": "Place", "fields": list(fields)}})

    old, new = nested(PAGE), nested(PAGE, {**NUMBER, "default": 3})
    decoded = decode_avro(rows(record(1, old, {"place": {"page": "/"}})), registry(old), reader(new))
    assert decoded.batch.to_pylist() == [{"place": {"page": "/", "number": 3}}]


def test_bad_records_are_named_and_all_others_decoded() -> None:
    schema = click(PAGE, NUMBER)
    good = [record(1, schema, {"page": f"/{n}", "number": n}) for n in range(100)]
    column = [*good]
    column[3] = b""
    column[17] = b'{"page": "/"}'
    column[41] = good[41][:-1]
    column[42] = wire_format.header(1) + b"\x02\xff\x02"  # no UTF-8
    column[43] = wire_format.header(1) + b"\x01"  # a string of -1 bytes
    column[99] = wire_format.header(9) + b"x"
    decoded = decode_avro(rows(*column), registry(schema))
    bad = {index: reason for index, reason in enumerate(decoded.reasons.to_pylist()) if reason}
    assert sorted(bad) == [3, 17, 41, 42, 43, 99]
    assert bad[99] == "schema 9 is not known to the registry"
    assert decoded.batch.column("number").to_pylist() == [None if n in bad else n for n in range(100)]


def test_a_null_that_the_reader_does_not_allow_is_a_bad_record() -> None:
    old, new = click({"name": "number", "type": ["null", "int"]}), click(NUMBER)
    column = rows(record(1, old, {"number": None}), record(1, old, {"number": 7}))
    decoded = decode_avro(column, registry(old), reader(new))
    assert decoded.batch.to_pylist() == [{"number": None}, {"number": 7}]
    assert [reason is not None for reason in decoded.reasons.to_pylist()] == [True, False]


def test_a_column_without_a_record_that_can_be_read() -> None:
    decoded = decode_avro(rows(None, b"x"), registry())
    assert decoded.batch.num_rows == 2
    assert decoded.reasons.null_count == 1
    assert decode_avro(rows(), registry(), reader(click(PAGE))).batch.schema.names == ["page"]


@pytest.mark.parametrize(
    "field",
    [
        {"name": "x", "type": {"type": "array", "items": "null"}},
        {"name": "x", "type": {"type": "array", "items": {"type": "record", "name": "Empty", "fields": []}}},
    ],
)
def test_arrays_of_what_takes_no_bytes_are_refused(field: dict[str, Any]) -> None:
    with pytest.raises(SerializationError):
        decode_avro(rows(), registry(), reader(click(field)))


def test_a_schema_that_refers_to_others() -> None:
    place = {"type": "record", "name": "Place", "namespace": "web", "fields": [PAGE]}
    visit = {"type": "record", "name": "Visit", "namespace": "web", "fields": [{"name": "at", "type": "Place"}]}
    references = [{"name": "web.Place", "subject": "place", "version": 1}]

    def answer(url: str, *_others: Any) -> tuple[int, bytes, Mapping[str, str]]:
        text = json.dumps(place if "/subjects/" in url else visit)
        return 200, json.dumps({"schema": text, "references": [] if "/subjects/" in url else references}).encode(), {}

    whole = {**visit, "fields": [{"name": "at", "type": place}]}
    decoded = decode_avro(
        rows(record(1, whole, {"at": {"page": "/"}})), SchemaRegistry("http://registry", transport=answer)
    )
    assert decoded.batch.to_pylist() == [{"at": {"page": "/"}}]


def test_fields_of_bytes_are_read_one_record_after_the_other() -> None:
    schema = click({"name": "raw", "type": "bytes"})
    decoded = decode_avro(rows(record(1, schema, {"raw": b"\xff"}), b"\0\0\0\0\1\x08"), registry(schema))
    assert decoded.batch.to_pylist() == [{"raw": b"\xff"}, {"raw": None}]
    assert decoded.reasons.null_count == 1


def test_unions_records_within_themselves_and_logical_types_become_the_columns_of_a_table() -> None:
    schema = click(
        {"name": "either", "type": ["int", "string"]},
        {"name": "next", "type": ["null", "Click"]},
        {"name": "at", "type": {"type": "long", "logicalType": "local-timestamp-nanos"}},
        {"name": "span", "type": {"type": "fixed", "name": "D", "size": 12, "logicalType": "duration"}},
    )
    value = {"either": "x", "next": None, "at": 1_000, "span": bytes(12)}
    decoded = decode_avro(rows(record(1, schema, value)), registry(schema))
    assert decoded.batch.schema.names == ["either", "at", "span"]
    assert decoded.batch.to_pylist() == [
        {
            "either": {"int": None, "string": "x"},
            "at": datetime.fromisoformat("1970-01-01T00:00:00.000001"),
            "span": bytes(12),
        }
    ]
    assert decoded.reasons.null_count == 1


def test_a_reader_with_a_union_takes_records_without_one_and_the_other_way_round() -> None:
    plain, union = click(NUMBER), click({"name": "number", "type": ["string", "int"]})
    for writer, value, wanted, found in (
        (plain, 7, union, {"string": None, "int": 7}),
        (union, 7, plain, 7),
        (union, "7", union, {"string": "7", "int": None}),
    ):
        decoded = decode_avro(rows(record(1, writer, {"number": value})), registry(writer), reader(wanted))
        assert decoded.batch.to_pylist() == [{"number": found}]


def test_values_that_are_no_records_have_a_column_named_after_their_type() -> None:
    column = rows(b"\0\0\0\0\1\x04hi", b"\0\0\0\0\2\x02\x02")
    answers = {1: '"string"', 2: json.dumps(["null", click(NUMBER)])}

    def answer(url: str, *_others: Any) -> tuple[int, bytes, Mapping[str, str]]:
        return 200, json.dumps({"schema": answers[int(url.rpartition("/")[2])]}).encode(), {}

    own = SchemaRegistry("http://registry", transport=answer)
    assert decode_avro(column[:1], own).batch.to_pylist() == [{"string": "hi"}]
    assert decode_avro(column[1:], own).batch.to_pylist() == [{"number": 1}]
