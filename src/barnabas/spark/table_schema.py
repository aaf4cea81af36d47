"""The columns of a loaded table: Kafka's, then, where values are decoded, one for each field. Partitioned by day.

    topic, partition, offset, timestamp    where and when
    key, value                             bytes; with format json, `value` is null where the fields hold all of it
    headers                                a list of (key, value), null where there are none
    raw_timestamp_ms                       the record's timestamp where `timestamp` cannot hold it, else null
    value_form                             with format json: how to get the value back (json_text.py)

A JSON field has a column of its own name, unless SQL could not tell that from another column (case does not
count); then it is found in `value_<name>`. The table's property `barnabas.fields` says which fields these are.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import pyarrow as pa
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import DayTransform
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DoubleType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
)

from barnabas.spark.json_fields import ColumnType

KAFKA_COLUMNS = ("topic", "partition", "offset", "timestamp", "key", "value", "headers", "raw_timestamp_ms")
VALUE_FORM = "value_form"
ADDED_LATER: Mapping[str, IcebergType] = {"raw_timestamp_ms": LongType(), VALUE_FORM: StringType()}
"""Columns that tables of earlier loads may lack; the next load adds them."""
FIELDS_MAX = 1_000
"""Fields that get a column; those beyond are in `value`. A producer may use names as data."""
EVENT_DAY = "event_day"
"""The partition field; Iceberg wants its name to be that of no column."""

_RESERVED = frozenset((*KAFKA_COLUMNS, VALUE_FORM, EVENT_DAY))
_CLASH_PREFIX = "value_"
_NOT_IN_NAMES = re.compile(r"[\x00-\x1f.`]")
"""The dot stands for a field of a struct, and the backquote quotes names."""
_ICEBERG_TYPES: Mapping[ColumnType, IcebergType] = {
    "boolean": BooleanType(),
    "long": LongType(),
    "double": DoubleType(),
    "string": StringType(),
}
_COLUMN_TYPES = {iceberg: column_type for column_type, iceberg in _ICEBERG_TYPES.items()}
_TIMESTAMP_ID = 4


def column_names(fields: Iterable[str]) -> dict[str, str]:
    """Return the column of each JSON field; no two are the same, whatever the case of their letters.

    >>> column_names(["origin", "timestamp", "userId", "userid"])
    {'origin': 'origin', 'userId': 'userId', 'timestamp': 'value_timestamp', 'userid': 'value_userid'}
    """
    taken = set(_RESERVED)
    columns, clashing = {}, []
    for field in fields:
        if field and sql_key(field) not in taken and not _NOT_IN_NAMES.search(field):
            columns[field] = field
            taken.add(sql_key(field))
        else:
            clashing.append(field)
    for field in clashing:
        name = wanted = _CLASH_PREFIX + _NOT_IN_NAMES.sub("_", field)
        number = 2
        while sql_key(name) in taken:
            name, number = f"{wanted}_{number}", number + 1
        columns[field] = name
        taken.add(sql_key(name))
    return columns


def sql_key(name: str) -> str:
    """Return what names have in common that SQL takes for the same.

    Java compares the letters' upper cases too, so that the long s (U+017F) is an s.
    """
    return name.upper().lower()


def renamed_fields(fields: Iterable[str]) -> dict[str, str]:
    """Return the fields of those columns that are not named like them, for the table's properties."""
    return {column: field for field, column in column_names(fields).items() if column != field}


def _field_of_earlier_table(column: str) -> str:
    """Return the JSON field of a column of a table that does not say so itself."""
    rest = column.removeprefix(_CLASH_PREFIX)
    return rest if rest.lower() in _RESERVED else column


def table_schema(fields: Mapping[str, ColumnType] | None) -> Schema:
    """Return the Iceberg schema of a new table; `fields` is None where values are not decoded."""
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
    if fields is None:
        return Schema(*kafka)
    columns = column_names(fields)
    decoded = [
        NestedField(number, columns[name], _ICEBERG_TYPES[column_type])
        for number, (name, column_type) in enumerate(fields.items(), 13)
    ]
    return Schema(*kafka, NestedField(12, VALUE_FORM, StringType()), *decoded)


def partition_spec() -> PartitionSpec:
    """Return the partitioning by the UTC day of the timestamp."""
    return PartitionSpec(
        PartitionField(source_id=_TIMESTAMP_ID, field_id=1000, transform=DayTransform(), name=EVENT_DAY)
    )


def decoded_columns(schema: Schema, renamed: Mapping[str, str] | None) -> dict[str, tuple[str, ColumnType]]:
    """Return the JSON fields that a table has columns for, each with its column; columns of other types stay null.

    :param renamed: the fields of columns with another name; None for a table that does not say.
    """
    columns = {}
    for column in schema.fields:
        if column.name not in (*KAFKA_COLUMNS, VALUE_FORM) and column.field_type in _COLUMN_TYPES:
            name = _field_of_earlier_table(column.name) if renamed is None else renamed.get(column.name, column.name)
            columns[name] = (column.name, _COLUMN_TYPES[column.field_type])
    return columns


def kafka_arrow_columns(batch: pa.RecordBatch) -> list[pa.Array]:
    """Return the columns of a batch of records that a table has, in its order."""
    return [batch.column(name) for name in KAFKA_COLUMNS]
