"""The columns of a loaded table: the columns of Kafka records, then one for each decoded field.

    topic, partition, offset, timestamp    the position and the timestamp of the record
    key, value                             binary; `value` of decoded values is null if the columns can reproduce it
    headers                                a list of (key, value); null without headers
    raw_timestamp_ms                       the record's timestamp if `timestamp` cannot represent it, else null
    value_form                             for decoded values: the way to restore the original value
    event_time                             the event time, if its source is not the record's timestamp; may be null

By default, the table is partitioned by the day of `event_time`, or of `timestamp` if there is no such column.

`barnabas.formats.column_names` defines the column names of fields. The table property `barnabas.fields` lists the
columns with another name than their field.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import count

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)

from barnabas.formats.column_names import CLASH_PREFIX, RESERVED
from barnabas.formats.column_types import ColumnType, decimal_parts, stored_type
from barnabas.formats.upsert_rules import POSITION
from barnabas.formats.value_format import RAW

KAFKA_COLUMNS = ("topic", "partition", "offset", "timestamp", "key", "value", "headers", "raw_timestamp_ms")
KAFKA_TYPES: Mapping[str, ColumnType] = {
    "topic": "string",
    "partition": "int",
    "offset": "long",
    "timestamp": "timestamp",
    "key": "binary",
    "value": "binary",
    "raw_timestamp_ms": "long",
}
"""The types of Kafka's columns; `headers` is a list of structs."""
VALUE_FORM = "value_form"
EVENT_TIME = "event_time"
ADDED_LATER: Mapping[str, IcebergType] = {"raw_timestamp_ms": LongType(), VALUE_FORM: StringType()}
"""Columns that tables of older releases may lack; the next load adds them."""
FIELDS_MAX = 1_000
"""The maximum number of fields with a column; other fields stay in `value`. A producer may use data as field names."""
EVENT_DAY = "event_day"
"""The partition field of the default layout. Iceberg requires a name that no column has."""

DEAD_LETTERS, REASON, TOPIC_ID = "dead-letters", "reason", "topic_id"
"""The format of a dead-letter table (dead_letter_table.py), and its additional columns."""
WITHOUT_VALUE_FORM = frozenset({RAW, DEAD_LETTERS})
"""The formats of tables that keep all values unchanged."""
OWN_COLUMNS = frozenset({*KAFKA_COLUMNS, VALUE_FORM, EVENT_TIME, EVENT_DAY})
"""The names of columns that belong to no field of a value."""

_ICEBERG_TYPES: Mapping[str, IcebergType] = {
    "boolean": BooleanType(),
    "int": IntegerType(),
    "long": LongType(),
    "float": FloatType(),
    "double": DoubleType(),
    "string": StringType(),
    "timestamp": TimestamptzType(),
    "timestamp_ntz": TimestampType(),
    "date": DateType(),
    "binary": BinaryType(),
}
_COLUMN_TYPES = {iceberg: column_type for column_type, iceberg in _ICEBERG_TYPES.items()}
_TIMESTAMP_ID, _VALUE_FORM_ID, _EVENT_TIME_ID = 4, 12, 13
_FIRST_FREE_ID = 14


def renamed_fields(columns: Mapping[str, str]) -> dict[str, str]:
    """Return the field of each column whose name differs from its field, for the table's properties."""
    return {column: field for field, column in columns.items() if column != field}


def _field_of_earlier_table(column: str) -> str:
    """Return the JSON field of a column in a table of an older release, which has no property `barnabas.fields`."""
    rest = column.removeprefix(CLASH_PREFIX)
    return rest if rest.lower() in RESERVED else column


def table_schema(
    fields: Mapping[str, ColumnType] | None,
    columns: Mapping[str, str],
    *,
    has_event_time: bool = False,
    has_value_form: bool = True,
    is_state: bool = False,
) -> Schema:
    """Return the Iceberg schema of a table.

    :param is_state: True for a state table, which has only the position of a record, and its fields.

    :param fields: The types of the fields; None for raw values.
    :param columns: The column name of each field.
    """
    header = StructType(NestedField(9, "key", StringType()), NestedField(10, "value", BinaryType()))
    kafka = [
        NestedField(1, "topic", StringType()),
        NestedField(2, "partition", IntegerType()),
        NestedField(3, "offset", LongType()),
        NestedField(_TIMESTAMP_ID, "timestamp", TimestamptzType()),
        NestedField(5, "key", BinaryType()),
        NestedField(6, "value", BinaryType()),
        NestedField(7, "headers", ListType(8, header, element_required=False)),
        NestedField(11, "raw_timestamp_ms", LongType()),
    ]
    if has_event_time:
        kafka.append(NestedField(_EVENT_TIME_ID, EVENT_TIME, TimestamptzType()))
    if is_state:
        kafka = [field for field in kafka if field.name in POSITION]
    if fields is None:
        return Schema(*kafka)
    ids = count(_FIRST_FREE_ID)
    decoded = [
        NestedField(next(ids), columns[name], iceberg_type(stored_type(column_type), ids))
        for name, column_type in fields.items()
    ]
    if has_value_form:
        kafka.append(NestedField(_VALUE_FORM_ID, VALUE_FORM, StringType()))
    return Schema(*kafka, *decoded)


def iceberg_type(column_type: ColumnType, ids: Iterator[int]) -> IcebergType:
    """Return the Iceberg type of a column.

    :param ids: Ids for struct fields, list elements, map keys and values. A catalog assigns other ids.
    """
    if isinstance(column_type, dict):
        return StructType(
            *(NestedField(next(ids), name, iceberg_type(each, ids)) for name, each in column_type.items())
        )
    if isinstance(column_type, list) and len(column_type) == 2:
        key_id, value_id = next(ids), next(ids)
        key, value = (iceberg_type(each, ids) for each in column_type)
        return MapType(key_id, key, value_id, value, value_required=False)
    if isinstance(column_type, list):
        return ListType(next(ids), iceberg_type(column_type[0], ids), element_required=False)
    decimal = decimal_parts(column_type)
    return DecimalType(*decimal) if decimal else _ICEBERG_TYPES[column_type]


def column_type_of(iceberg: IcebergType) -> ColumnType | None:
    """Return the column type of an Iceberg type; None for a type that no value is decoded to."""
    if isinstance(iceberg, StructType):
        types = {each.name: column_type_of(each.field_type) for each in iceberg.fields}
        known = {name: each for name, each in types.items() if each is not None}
        return known if len(known) == len(types) else None
    if isinstance(iceberg, ListType):
        element = column_type_of(iceberg.element_type)
        return None if element is None else [element]
    if isinstance(iceberg, MapType):
        key, value = column_type_of(iceberg.key_type), column_type_of(iceberg.value_type)
        return None if key is None or value is None else [key, value]
    if isinstance(iceberg, DecimalType):
        return f"decimal({iceberg.precision},{iceberg.scale})"
    return _COLUMN_TYPES.get(iceberg)


def obstacle_to_loads(schema: Schema) -> str | None:
    """Return the reason why loads cannot write to a table that another tool has changed, with the remedy; else None.

    Loads fill only the columns of a loaded table.
    """
    required = [field.name for field in schema.fields if field.required]
    if required:
        return f"has the required column {required[0]}, which may be null in loaded rows: make it optional"
    written = {field.name: field.field_type for field in table_schema(None, {}).fields}
    changed = [field for field in schema.fields if not _takes(field.field_type, written.get(field.name))]
    if changed:
        return f"has column {changed[0].name} with type {changed[0].field_type}, unlike loads: change the type back"
    return None


def _takes(has: IcebergType, writes: IcebergType | None) -> bool:
    """Return whether a column accepts the values that loads write: the same type, or one that Iceberg widens it to.

    List types are not compared, because catalogs assign their own ids to the fields of the headers.
    """
    widened = isinstance(writes, IntegerType) and isinstance(has, LongType)
    return writes is None or widened or has == writes or (isinstance(has, ListType) and isinstance(writes, ListType))


def decoded_columns(
    schema: Schema, renamed: Mapping[str, str] | None, *, has_event_time: bool = False
) -> dict[str, tuple[str, ColumnType]]:
    """Return the fields that have a column in the table, each with its column and type. Other columns stay null.

    :param renamed: The field of each column with another name; None for a table without the property.
    """
    types = {column.name: column_type_of(column.field_type) for column in schema.fields}
    known = {name: column_type for name, column_type in types.items() if column_type is not None}
    return fields_of_columns(known, renamed, has_event_time=has_event_time)


def fields_of_columns(
    types: Mapping[str, ColumnType], renamed: Mapping[str, str] | None, *, has_event_time: bool
) -> dict[str, tuple[str, ColumnType]]:
    """Return the fields of a table's columns, each with its column, from the types of the columns."""
    own = {*KAFKA_COLUMNS, VALUE_FORM, *([EVENT_TIME] if has_event_time else [])}
    columns = {}
    for column, column_type in types.items():
        if column not in own:
            name = _field_of_earlier_table(column) if renamed is None else renamed.get(column, column)
            columns[name] = (column, column_type)
    return columns


def kafka_arrow_columns(batch: pa.RecordBatch) -> list[pa.Array]:
    """Return the columns of a record batch in the order of the table's columns."""
    return [batch.column(name) for name in KAFKA_COLUMNS]
