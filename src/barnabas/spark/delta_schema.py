"""The columns of a loaded Delta table: those of table_schema.py, and partition columns such as `event_day`. Pure.

Delta has no hidden partitioning: the day is a column (`date`, in UTC) in the log, not in the files (delta_layout.py).
delta-rs accepts no custom table properties. So the table's shape (table_shape.py), and the loaded topics with their
ids, are in the metadata of the column `topic`. They are part of the table's state, which checkpoints keep.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pyarrow as pa

from barnabas.formats.column_types import ColumnType, decimal_parts, stored_type
from barnabas.formats.upsert_rules import POSITION
from barnabas.formats.value_format import RAW
from barnabas.spark.delta_layout import PARTITION_BY, layout_of_delta, stored_layout, time_columns
from barnabas.spark.ledger import Ledger
from barnabas.spark.table_layout import TableLayout
from barnabas.spark.table_schema import EVENT_DAY, EVENT_TIME, KAFKA_COLUMNS, KAFKA_TYPES, VALUE_FORM, fields_of_columns
from barnabas.spark.table_shape import EVENT_TIME_SOURCE, FORMAT, RENAMED_FIELDS, TableShape

TOPICS = "barnabas.topics"
_DELTA_TYPES: Mapping[str, str] = {
    "boolean": "boolean",
    "int": "integer",
    "long": "long",
    "float": "float",
    "double": "double",
    "string": "string",
    "timestamp": "timestamp",
    "timestamp_ntz": "timestamp_ntz",
    "binary": "binary",
    "date": "date",
}
_COLUMN_TYPES = {delta: name for name, delta in _DELTA_TYPES.items()}
_RULES = ("delta.invariants", "delta.generationExpression", "delta.identity.")
"""Prefixes of column metadata keys that require a writer to check or generate the values of the column."""


def delta_schema(shape: TableShape, topics: Mapping[str, str], before: str | None = None) -> str:
    """Return the schema of a table as Delta's JSON.

    :param topics: The ids of the topics loaded into the table, by name.
    :param before: The current schema; columns that other tools have added are kept. None for a new table.
    """
    own_columns = KAFKA_COLUMNS if shape.upsert is None else POSITION
    fields = [_field(name, _headers_type() if name == "headers" else _type(KAFKA_TYPES[name])) for name in own_columns]
    layout = shape.table_layout
    fields[0]["metadata"] = {**shape.properties(), TOPICS: json.dumps(topics, sort_keys=True)}
    if shape.upsert is None and shape.layout is not None and layout != TableLayout.by_day(shape.time_column):
        fields[0]["metadata"][PARTITION_BY] = stored_layout(layout)
    if shape.has_event_time:
        fields.append(_field(EVENT_TIME, "timestamp"))
    if shape.has_value_form:
        fields.append(_field(VALUE_FORM, "string"))
    if shape.fields is not None:
        fields += [
            _field(shape.columns[name], _type(stored_type(column_type))) for name, column_type in shape.fields.items()
        ]
    fields += [_field(name, _type(column_type)) for name, column_type in time_columns(layout).items()]
    own = {each["name"].lower() for each in fields}
    others = [] if before is None else [each for name, each in _fields(before).items() if name.lower() not in own]
    return _dump([*fields, *others])


def shape_of_schema(text: str, value_format: str = RAW, partition_columns: Sequence[str] = (EVENT_DAY,)) -> TableShape:
    """Return the shape of a table's rows.

    :param value_format: The value format of a table that was not created by a load.
    :param partition_columns: The partition columns of the table.
    """
    fields = _fields(text)
    properties = {FORMAT: value_format, **remembered(text)}
    time_column = EVENT_TIME if EVENT_TIME_SOURCE in properties else "timestamp"
    layout = layout_of_delta(partition_columns, properties.get(PARTITION_BY), time_column)
    not_decoded = {EVENT_DAY, *time_columns(layout)}
    types = {name: _column_type(each["type"]) for name, each in fields.items() if name not in not_decoded}
    renamed = properties.get(RENAMED_FIELDS)
    known = {name: column_type for name, column_type in types.items() if column_type is not None}
    decoded = fields_of_columns(
        known, None if renamed is None else json.loads(renamed), has_event_time=EVENT_TIME_SOURCE in properties
    )
    return TableShape.parse(properties, decoded, names=fields, widens_types=False, layout=layout)


def obstacle_to_loads(text: str, configuration: Mapping[str, str | None]) -> str | None:
    """Return the reason why loads cannot write to a table that another tool has changed, with the remedy; else None.

    delta-rs adds files without a check of their rows.
    """
    obstacle = obstacle_to_rows(text, configuration, ())
    if obstacle is not None:
        return obstacle
    for name, field in _fields(text).items():
        if name in KAFKA_TYPES and field["type"] != _type(KAFKA_TYPES[name]):
            return f"has column {name} with type {field['type']}, unlike loads: change the type back"
    return None


def obstacle_to_rows(text: str, configuration: Mapping[str, str | None], filled: Collection[str]) -> str | None:
    """Return the reason why rows cannot be added without a check, with the remedy; else None.

    :param filled: The columns with a value in all rows.
    """
    constraint = next((name for name in configuration if name.startswith("delta.constraints.")), None)
    if constraint is not None:
        return f"has the constraint {constraint.removeprefix('delta.constraints.')}, which loads do not check: drop it"
    for name, field in _fields(text).items():
        if not field.get("nullable", True) and name not in filled:
            return f"has the column {name}, which must not be null: make it nullable"
        if any(key.startswith(_RULES) for key in field.get("metadata") or {}):
            return f"has a Delta rule for the values of column {name}: drop the rule"
    return None


def remembered(text: str) -> Mapping[str, str]:
    """Return the properties stored in the metadata of the column `topic`."""
    metadata: Mapping[str, str] = _fields(text).get("topic", {}).get("metadata", {})
    return metadata


def remembered_topics(text: str) -> dict[str, str]:
    """Return the ids of the loaded topics, by name."""
    topics: dict[str, str] = json.loads(remembered(text).get(TOPICS, "{}"))
    return topics


def topics_of(ledger: Ledger) -> dict[str, str]:
    """Return the ids of the topics in a ledger, by name."""
    return {topic: loaded.topic_id for topic, loaded in ledger.topics.items()}


def column_names_of(text: str) -> list[str]:
    """Return the column names of a schema."""
    return list(_fields(text))


def column_texts(text: str) -> dict[str, str]:
    """Return the type of each column of a schema, nested types as JSON."""
    types = {name: each["type"] for name, each in _fields(text).items()}
    return {name: each if isinstance(each, str) else json.dumps(each) for name, each in types.items()}


def arrow_schema(text: str) -> pa.Schema:
    """Return a schema as an Arrow schema."""
    return pa.schema([pa.field(name, _arrow_type(each["type"])) for name, each in _fields(text).items()])


def same_schema(one: str, other: str) -> bool:
    """Return whether two schemas in JSON are equal."""
    return bool(json.loads(one) == json.loads(other))


def _fields(text: str) -> dict[str, dict[str, Any]]:
    return {each["name"]: each for each in json.loads(text)["fields"]}


def _dump(fields: list[dict[str, Any]]) -> str:
    return json.dumps({"type": "struct", "fields": fields})


def _field(name: str, delta_type: object) -> dict[str, Any]:
    return {"name": name, "type": delta_type, "nullable": True, "metadata": {}}


def _headers_type() -> dict[str, Any]:
    pair = [_field("key", "string"), _field("value", "binary")]
    return {"type": "array", "elementType": {"type": "struct", "fields": pair}, "containsNull": True}


def _type(column_type: ColumnType) -> object:
    if isinstance(column_type, dict):
        return {"type": "struct", "fields": [_field(name, _type(each)) for name, each in column_type.items()]}
    if isinstance(column_type, list) and len(column_type) == 2:
        key, value = map(_type, column_type)
        return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}
    if isinstance(column_type, list):
        return {"type": "array", "elementType": _type(column_type[0]), "containsNull": True}
    return column_type if decimal_parts(column_type) else _DELTA_TYPES[column_type]


def _column_type(delta: Any) -> ColumnType | None:
    """Return the column type of a Delta type; None for a type that no value is decoded to."""
    if isinstance(delta, str):
        return delta if decimal_parts(delta) else _COLUMN_TYPES.get(delta)
    if delta["type"] == "array":
        element = _column_type(delta["elementType"])
        return None if element is None else [element]
    if delta["type"] == "map":
        key, value = _column_type(delta["keyType"]), _column_type(delta["valueType"])
        return None if key is None or value is None else [key, value]
    types = {each["name"]: _column_type(each["type"]) for each in delta["fields"]}
    known = {name: each for name, each in types.items() if each is not None}
    return known if len(known) == len(types) else None


_ARROW_TYPES: Mapping[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}


def _arrow_type(delta: Any) -> pa.DataType:
    if isinstance(delta, str):
        decimal = decimal_parts(delta)
        return pa.decimal128(*decimal) if decimal else _ARROW_TYPES[delta]
    if delta["type"] == "array":
        return pa.list_(pa.field("element", _arrow_type(delta["elementType"])))
    if delta["type"] == "map":
        return pa.map_(_arrow_type(delta["keyType"]), _arrow_type(delta["valueType"]))
    return pa.struct([pa.field(each["name"], _arrow_type(each["type"])) for each in delta["fields"]])
