"""Change events in Avro, as Debezium writes them with a schema registry."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from barnabas.formats.change_events import ChangeDecoder, change_decoder
from barnabas.formats.column_types import ColumnType, settled
from barnabas.formats.decoding import GuardedDecoder
from barnabas.formats.json_fields import JsonRules
from barnabas.formats.upsert_rules import CHANGE_ORDER, KEY_OF_RECORD, UpsertRules
from barnabas.serialization.avro_values import AvroFormat
from barnabas.serialization.record_values import RecordDecoder
from tests.support.fake_registry import avro_record, registry_of


def envelope(*more: dict[str, Any], id_type: str = "int") -> dict[str, Any]:
    """Return the schema of Debezium's events of a table with the columns `id` and `name`, and further ones."""
    row = {
        "type": "record",
        "name": "Value",
        "fields": [
            {"name": "id", "type": id_type},
            {"name": "name", "type": ["null", "string"], "default": None},
            *more,
        ],
    }
    source = {"type": "record", "name": "Source", "fields": [{"name": "lsn", "type": ["null", "long"]}]}
    fields = [
        {"name": "before", "type": ["null", row], "default": None},
        {"name": "after", "type": ["null", "Value"], "default": None},
        {"name": "source", "type": source},
        {"name": "op", "type": "string"},
        {"name": "ts_ms", "type": ["null", "long"], "default": None},
    ]
    return {"type": "record", "name": "Envelope", "namespace": "shop.orders", "fields": fields}


KEY = {"type": "record", "name": "Key", "namespace": "shop.orders", "fields": [{"name": "id", "type": "int"}]}
MORE = {"name": "city", "type": ["null", "string"], "default": None}


def event(op: str, before: Any, after: Any, lsn: int) -> dict[str, Any]:
    return {"before": before, "after": after, "source": {"lsn": lsn}, "op": op, "ts_ms": 5}


def decoder(rules: UpsertRules, *schemas: dict[str, Any]) -> ChangeDecoder:
    registry = registry_of(*schemas)
    values, keys = (
        GuardedDecoder(RecordDecoder(AvroFormat(), registry, with_forms=False, may_rename=False)) for _ in range(2)
    )
    return change_decoder(rules, JsonRules(), values, keys)


def fields_of(own: ChangeDecoder, values: pa.Array, keys: pa.Array) -> dict[str, ColumnType]:
    found = own.infer(values, keys)
    return {name: settled(kind) for name, kind in found.items() if not name.startswith(KEY_OF_RECORD)}


def binary(*values: bytes | None) -> pa.Array:
    return pa.array(values, pa.binary())


ROW, RENAMED = {"id": 1, "name": "a"}, {"id": 1, "name": "b"}


@pytest.mark.parametrize("order_by", ["offset", "source.lsn"])
def test_events_and_tombstones_with_keys_of_a_schema(order_by: str) -> None:
    schemas = (envelope(), KEY)
    values = binary(
        avro_record(1, schemas[0], event("c", None, ROW, 7)),
        avro_record(1, schemas[0], event("u", ROW, RENAMED, 8)),
        avro_record(1, schemas[0], event("d", RENAMED, None, 9)),
        None,
    )
    keys = binary(*[avro_record(2, KEY, {"id": 1})] * 4)
    own = decoder(UpsertRules.of("id", envelope="debezium", order_by=order_by), *schemas)
    fields = fields_of(own, values, keys)
    decoded = own.decode(values, keys, fields)
    columns = dict(zip(fields, (column.to_pylist() for column in decoded.columns), strict=True))
    assert decoded.reasons.null_count == 4
    assert decoded.found == {}
    assert decoded.deletes.to_pylist() == [False, False, True, True]
    assert columns["id"] == [1, 1, 1, 1]
    assert columns["name"][:2] == ["a", "b"]
    assert columns.get(CHANGE_ORDER, [7, 8, 9, None]) == [7, 8, 9, None]


def test_new_columns_and_wider_types_of_the_schema_are_found() -> None:
    schemas = (envelope(), envelope(MORE, id_type="long"))
    old = binary(avro_record(1, schemas[0], event("c", None, ROW, 7)))
    new = binary(avro_record(2, schemas[1], event("c", None, {"id": 2**40, "name": None, "city": "x"}, 8)))
    keys = binary(None)
    own = decoder(UpsertRules.of("id", envelope="debezium"), *schemas)
    fields = fields_of(own, old, keys)
    assert fields == {"id": "int", "name": "string"}
    found = own.decode(new, keys, fields).found
    assert found["id"] == "long"
    assert found["city"] == "string"
    grown: dict[str, ColumnType] = {"id": "long", "name": "string", "city": "string"}
    for values, row in ((old, [1, "a", None]), (new, [2**40, None, "x"])):
        decoded = own.decode(values, keys, grown)
        assert [column.to_pylist() for column in decoded.columns] == [[cell] for cell in row]
        assert decoded.found == {}


def test_plain_key_of_a_tombstone_beside_a_schema() -> None:
    schemas = (envelope(), {"type": "int"})
    values = binary(avro_record(1, schemas[0], event("c", None, ROW, 7)), None, None)
    keys = binary(None, avro_record(2, schemas[1], 4), b"5")
    own = decoder(UpsertRules.of("id", envelope="debezium"), *schemas)
    decoded = own.decode(values, keys, fields_of(own, values, keys))
    assert decoded.reasons.null_count == 3
    assert decoded.columns[0].to_pylist() == [1, 4, 5]


@pytest.mark.parametrize(("kind", "bad"), [("long", 2**40), ("string", "x")])
def test_plain_key_that_does_not_fit_leaves_the_other_keys_of_the_batch(kind: str, bad: object) -> None:
    schemas = (envelope(), {"type": kind})
    values = binary(avro_record(1, schemas[0], event("c", None, ROW, 7)), None, None, None)
    good = [avro_record(2, schemas[1], 4 if kind == "long" else "4") for _ in range(2)]
    keys = binary(None, good[0], avro_record(2, schemas[1], bad), good[1])
    own = decoder(UpsertRules.of("id", envelope="debezium"), *schemas)
    decoded = own.decode(values, keys, {"id": "int", "name": "string"})
    assert decoded.columns[0].to_pylist() == [1, 4, 4]
    assert [reason is None for reason in decoded.reasons.to_pylist()] == [True, True, False, True]


def test_damaged_event_is_bad() -> None:
    own = decoder(UpsertRules.of("id", envelope="debezium"), envelope())
    values = binary(b"\0\0\0\0\1damaged", b"\0\0\0\0\7", b"text", avro_record(1, envelope(), event("t", None, None, 1)))
    decoded = own.decode(values, binary(None, None, None, None), {"id": "int", "name": "string"})
    assert decoded.reasons.null_count == 0
    assert len(decoded.rows) == 0


@pytest.mark.parametrize("envelope_of", ["none", "debezium"])
def test_fields_that_no_column_takes_are_counted(envelope_of: str) -> None:
    whole = envelope(MORE)
    row = whole["fields"][0]["type"][1]
    schema = row if envelope_of == "none" else whole
    rows = [{**ROW, "city": None}, {**ROW, "city": "Ulm"}]
    values = binary(
        *(avro_record(1, schema, each if envelope_of == "none" else event("u", None, each, 1)) for each in rows),
        *([avro_record(1, schema, event("d", rows[1], None, 1))] if envelope_of == "debezium" else []),
    )
    own = decoder(UpsertRules.of("id", envelope=envelope_of), schema)
    keys = pa.nulls(len(values), pa.binary())
    assert own.decode(values, keys, {"id": "int", "name": "string"}).lost_values == 1
    assert own.decode(values, keys, {"id": "int", "name": "string", "city": "string"}).lost_values == 0
