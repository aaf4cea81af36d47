"""The columns of a loaded table: Kafka's, then, where values are decoded, one for each field. Partitioned by day.

    topic, partition, offset, timestamp    where and when
    key, value                             bytes; where values are decoded, null where the fields hold all of it
    headers                                a list of (key, value), null where there are none
    raw_timestamp_ms                       the record's timestamp where `timestamp` cannot hold it, else null
    value_form                             where values are decoded: how to get the value back
    event_time                             where it comes from elsewhere than the record: when it happened, or null

The table is partitioned by the day of `event_time` where it has that, else of `timestamp`.

Fields have the names that `barnabas.formats.column_names` gives them. The table's property `barnabas.fields` says which
columns are not called as their fields.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any

import pyarrow as pa
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import (
    DayTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    VoidTransform,
    YearTransform,
)
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
from barnabas.formats.value_format import RAW

KAFKA_COLUMNS = ("topic", "partition", "offset", "timestamp", "key", "value", "headers", "raw_timestamp_ms")
VALUE_FORM = "value_form"
EVENT_TIME = "event_time"
ADDED_LATER: Mapping[str, IcebergType] = {"raw_timestamp_ms": LongType(), VALUE_FORM: StringType()}
"""Columns that tables of earlier loads may lack; the next load adds them."""
FIELDS_MAX = 1_000
"""Fields that get a column; those beyond are in `value`. A producer may use names as data."""
EVENT_DAY = "event_day"
"""The partition field; Iceberg wants its name to be that of no column."""

DEAD_LETTERS, REASON, TOPIC_ID = "dead-letters", "reason", "topic_id"
"""The format of a table of bad records (dead_letter_table.py), and its columns beside Kafka's."""
WITHOUT_VALUE_FORM = frozenset({RAW, DEAD_LETTERS})
"""Formats of tables that have values as they came."""
OWN_COLUMNS = frozenset({*KAFKA_COLUMNS, VALUE_FORM, EVENT_TIME, EVENT_DAY})
"""What a column may be called that no field of a value is in."""

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
    """Return the fields of those columns that are not named like them, for the table's properties."""
    return {column: field for field, column in columns.items() if column != field}


def _field_of_earlier_table(column: str) -> str:
    """Return the JSON field of a column of a table that does not say so itself."""
    rest = column.removeprefix(CLASH_PREFIX)
    return rest if rest.lower() in RESERVED else column


def table_schema(
    fields: Mapping[str, ColumnType] | None,
    columns: Mapping[str, str],
    *,
    has_event_time: bool = False,
    has_value_form: bool = True,
) -> Schema:
    """Return the Iceberg schema of a table.

    :param fields: None where values are not decoded; `columns`: the column of each.
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
    """Return Iceberg's type of a column.

    :param ids: for the fields of structs and the elements of lists; a catalog gives others.
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
    """Return the type of a column, None for a type that no value is decoded to."""
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


def partition_spec(*, has_event_time: bool = False) -> PartitionSpec:
    """Return the partitioning by the UTC day of the event time."""
    source = _EVENT_TIME_ID if has_event_time else _TIMESTAMP_ID
    return PartitionSpec(PartitionField(source_id=source, field_id=1000, transform=DayTransform(), name=EVENT_DAY))


def obstacle_to_loads(schema: Schema, spec: PartitionSpec, *, has_event_time: bool) -> str | None:
    """Return why loads cannot write files of a table that another tool has changed, and what to do; None if they can.

    A file of a load has rows of one UTC day, and fills the columns that loads know.
    """
    time_column = EVENT_TIME if has_event_time else "timestamp"
    for part in spec.fields:
        column = schema.find_column_name(part.source_id)
        if not _is_one_value_in_a_file(part.transform, column, time_column):
            return (
                f"is partitioned by {part.transform}({column}), and loads write files by the day of {time_column}: "
                f"remove that partition field (table.update_spec().remove_field({part.name!r}))"
            )
    required = [field.name for field in schema.fields if field.required]
    if required:
        return f"has the required column {required[0]}, which may be null in rows of loads: make it optional"
    written = {field.name: field.field_type for field in table_schema(None, {}).fields}
    changed = [field for field in schema.fields if not _takes(field.field_type, written.get(field.name))]
    if changed:
        return f"has another column {changed[0].name} than loads write ({changed[0].field_type}): change it back"
    return None


def _is_one_value_in_a_file(transform: Transform[Any, Any], column: str | None, time_column: str) -> bool:
    """Whether all rows of a file of one day have one value of a partition field; of a topic they have as a rule."""
    if isinstance(transform, VoidTransform):
        return True
    if isinstance(transform, (DayTransform, MonthTransform, YearTransform)):
        return column == time_column
    return column == "topic" and isinstance(transform, (IdentityTransform, TruncateTransform))


def _takes(has: IcebergType, writes: IcebergType | None) -> bool:
    """Whether a column takes what loads write: that type, or one that Iceberg widens it to; headers are not compared,
    as catalogs number the fields in them."""
    widened = isinstance(writes, IntegerType) and isinstance(has, LongType)
    return writes is None or widened or has == writes or (isinstance(has, ListType) and isinstance(writes, ListType))


def decoded_columns(
    schema: Schema, renamed: Mapping[str, str] | None, *, has_event_time: bool = False
) -> dict[str, tuple[str, ColumnType]]:
    """Return the fields that a table has columns for, each with its column; columns of other types stay null.

    :param renamed: the fields of columns with another name; None for a table that does not say.
    """
    types = {column.name: column_type_of(column.field_type) for column in schema.fields}
    known = {name: column_type for name, column_type in types.items() if column_type is not None}
    return fields_of_columns(known, renamed, has_event_time=has_event_time)


def fields_of_columns(
    types: Mapping[str, ColumnType], renamed: Mapping[str, str] | None, *, has_event_time: bool
) -> dict[str, tuple[str, ColumnType]]:
    """Return the fields of a table's columns, each with its column, given the types of the columns."""
    own = {*KAFKA_COLUMNS, VALUE_FORM, *([EVENT_TIME] if has_event_time else [])}
    columns = {}
    for column, column_type in types.items():
        if column not in own:
            name = _field_of_earlier_table(column) if renamed is None else renamed.get(column, column)
            columns[name] = (column, column_type)
    return columns


def kafka_arrow_columns(batch: pa.RecordBatch) -> list[pa.Array]:
    """Return the columns of a batch of records that a table has, in its order."""
    return [batch.column(name) for name in KAFKA_COLUMNS]
