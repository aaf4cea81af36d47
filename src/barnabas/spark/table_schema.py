"""The columns of a loaded table: Kafka's, then, where values are decoded, one for each field. Partitioned by day.

    topic, partition, offset, timestamp    where and when
    key, value                             bytes; with format json, `value` is null where the fields hold all of it
    headers                                a list of (key, value), null where there are none

A JSON field that is named like one of these columns is found in the column `value_<name>`.
"""

from __future__ import annotations

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

from barnabas.spark.columns import RECORD_SCHEMA
from barnabas.spark.json_fields import ColumnType

KAFKA_COLUMNS = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
EVENT_DAY = "event_day"
"""The partition field; Iceberg wants its name to be that of no column."""

_RESERVED = frozenset((*KAFKA_COLUMNS, EVENT_DAY))
_CLASH_PREFIX = "value_"
_ICEBERG_TYPES: Mapping[ColumnType, IcebergType] = {
    "boolean": BooleanType(),
    "long": LongType(),
    "double": DoubleType(),
    "string": StringType(),
}
_COLUMN_TYPES = {iceberg: column_type for column_type, iceberg in _ICEBERG_TYPES.items()}
_TIMESTAMP_ID = 4


def column_name(field: str) -> str:
    """Return the column of a JSON field.

    >>> column_name("origin"), column_name("timestamp")
    ('origin', 'value_timestamp')
    """
    return f"{_CLASH_PREFIX}{field}" if field.lower() in _RESERVED else field


def field_name(column: str) -> str:
    """Return the JSON field that a column holds.

    >>> field_name("origin"), field_name("value_timestamp")
    ('origin', 'timestamp')
    """
    rest = column.removeprefix(_CLASH_PREFIX)
    return rest if rest.lower() in _RESERVED else column


def table_schema(fields: Mapping[str, ColumnType]) -> Schema:
    """Return the Iceberg schema of a new table."""
    header = StructType(NestedField(9, "key", StringType()), NestedField(10, "value", BinaryType()))
    kafka = [
        NestedField(1, "topic", StringType()),
        NestedField(2, "partition", IntegerType()),
        NestedField(3, "offset", LongType()),
        NestedField(_TIMESTAMP_ID, "timestamp", TimestamptzType()),
        NestedField(5, "key", BinaryType()),
        NestedField(6, "value", BinaryType()),
        NestedField(7, "headers", ListType(8, header, element_required=False)),
    ]
    decoded = [
        NestedField(number, column_name(name), _ICEBERG_TYPES[column_type])
        for number, (name, column_type) in enumerate(_one_per_column(fields), 11)
    ]
    return Schema(*kafka, *decoded)


def _one_per_column(fields: Mapping[str, ColumnType]) -> Iterable[tuple[str, ColumnType]]:
    """Leave out a field whose column another one has taken; its values are kept whole in `value`."""
    return {column_name(name): (name, column_type) for name, column_type in reversed(list(fields.items()))}.values()


def partition_spec() -> PartitionSpec:
    """Return the partitioning by the UTC day of the timestamp."""
    return PartitionSpec(
        PartitionField(source_id=_TIMESTAMP_ID, field_id=1000, transform=DayTransform(), name=EVENT_DAY)
    )


def decoded_fields(schema: Schema) -> dict[str, ColumnType]:
    """Return the JSON fields that a table has columns for; columns of other types stay null."""
    return {
        field_name(column.name): _COLUMN_TYPES[column.field_type]
        for column in schema.fields
        if column.name not in KAFKA_COLUMNS and column.field_type in _COLUMN_TYPES
    }


def kafka_arrow_columns(batch: pa.RecordBatch) -> list[pa.Array]:
    """Return the columns of a batch of records that a table has, in its order."""
    return [batch.column(RECORD_SCHEMA.get_field_index(name)) for name in KAFKA_COLUMNS]
