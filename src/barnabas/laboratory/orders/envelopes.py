"""Converts changes to records: keys and values as Debezium, Maxwell and writers of plain rows send them, in JSON.

The key of a record names the order, so all changes of an order are in one partition:

    debezium         {"id":17}    {"before":null,"after":{"id":17,...},"source":{...,"lsn":170},"op":"c",...}
    debezium-schema  the same, each as the `payload` beside a `schema`, as Kafka Connect's JSON converter sends them
    maxwell          {"database":"shop","table":"orders","pk.id":17}    {"type":"insert","xid":17,"data":{...},...}
    plain            {"id":17}    {"id":17,...}; a delete is a record with a null value (a tombstone)
"""

from __future__ import annotations

import json
from typing import Any, Literal, get_args

from barnabas.laboratory.orders.order_table import COLUMNS, LATER_COLUMNS, Change

Envelope = Literal["debezium", "debezium-schema", "maxwell", "plain"]
ENVELOPES: tuple[Envelope, ...] = get_args(Envelope)
TextRecord = tuple[str, str | None]
"""The key and the value of a record."""

_NAME = "shop.public.orders"
_BYTES_PER_CHANGE = 10
"""The distance between the log positions (`lsn`, `position`) of two changes."""
_OPERATIONS = {"read": "r", "insert": "c", "update": "u", "delete": "d"}
_MAXWELL_TYPES = {"read": "bootstrap-insert"}
_TYPES = {"status": "string", "amount": "double", "note": "string", "channel": "string", "priority": "int32"}
_REQUIRED = ("id", "customer", "status", "amount", "created_at", "updated_at")


def records_of(change: Change, envelope: Envelope, *, tombstones: bool) -> list[TextRecord]:
    """Return the records of a change.

    :param tombstones: True if a tombstone follows each delete. Plain deletes are always tombstones.
    """
    key, value = _ENCODERS[envelope](change)
    records: list[TextRecord] = [(key, value)]
    if tombstones and change.operation == "delete" and value is not None:
        records.append((key, None))
    return records


def _debezium(change: Change) -> TextRecord:
    return _text({"id": change.order_id}), _text(_debezium_value(change))


def _debezium_value(change: Change) -> dict[str, Any]:
    source = {
        "version": "3.0.0.Final",
        "connector": "postgresql",
        "name": "shop",
        "ts_ms": change.time_ms,
        "snapshot": "true" if change.operation == "read" else "false",
        "db": "shop",
        "schema": "public",
        "table": "orders",
        "txId": change.number,
        "lsn": change.number * _BYTES_PER_CHANGE,
    }
    return {
        "before": change.before,
        "after": change.after,
        "source": source,
        "op": _OPERATIONS[change.operation],
        "ts_ms": change.time_ms + 1,
        "transaction": None,
    }


def _debezium_with_schema(change: Change) -> TextRecord:
    row = change.after or change.before or {}
    schema = _ENVELOPE_TEXTS[LATER_COLUMNS[0] in row]
    key = f'{{"schema":{_KEY_TEXT},"payload":{_text({"id": change.order_id})}}}'
    return key, f'{{"schema":{schema},"payload":{_text(_debezium_value(change))}}}'


def _maxwell(change: Change) -> TextRecord:
    value: dict[str, Any] = {
        "database": "shop",
        "table": "orders",
        "type": _MAXWELL_TYPES.get(change.operation, change.operation),
        "ts": change.time_ms // 1000,
        "xid": change.number,
        "commit": True,
        "position": f"binlog.000001:{change.number * _BYTES_PER_CHANGE}",
        "data": change.after or change.before,
    }
    if change.before is not None and change.after is not None:
        before = change.before
        value["old"] = {name: before.get(name) for name, new in change.after.items() if before.get(name) != new}
    return _text({"database": "shop", "table": "orders", "pk.id": change.order_id}), _text(value)


def _plain(change: Change) -> TextRecord:
    return _text({"id": change.order_id}), None if change.after is None else _text(change.after)


def _text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _field(column: str, kind: str = "int64", *, optional: bool = True, **more: object) -> dict[str, object]:
    return {"type": kind, "optional": optional, **more, "field": column}


def _row_schema(field: str, columns: tuple[str, ...]) -> dict[str, object]:
    fields = [_field(name, _TYPES.get(name, "int64"), optional=name not in _REQUIRED) for name in columns]
    return _field(field, "struct", fields=fields, name=f"{_NAME}.Value")


def _envelope_schema(columns: tuple[str, ...]) -> dict[str, object]:
    source = [_field("ts_ms"), _field("txId"), _field("lsn")]
    source += [_field(name, "string") for name in ("version", "connector", "name", "snapshot", "db", "schema", "table")]
    fields = [
        _row_schema("before", columns),
        _row_schema("after", columns),
        _field("source", "struct", optional=False, fields=source, name="io.debezium.connector.postgresql.Source"),
        _field("op", "string", optional=False),
        _field("ts_ms"),
        _field("transaction", "struct", fields=[_field("id", "string")], name="event.block"),
    ]
    return {"type": "struct", "fields": fields, "optional": False, "name": f"{_NAME}.Envelope"}


_KEY_TEXT = _text(
    {"type": "struct", "fields": [_field("id", optional=False)], "optional": False, "name": f"{_NAME}.Key"}
)

_ENVELOPE_TEXTS = {
    False: _text(_envelope_schema(COLUMNS)),
    True: _text(_envelope_schema((*COLUMNS, *LATER_COLUMNS))),
}
_ENCODERS = {
    "debezium": _debezium,
    "debezium-schema": _debezium_with_schema,
    "maxwell": _maxwell,
    "plain": _plain,
}
