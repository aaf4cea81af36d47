"""What one Spark task of a query reads, and how: the same for a batch query and for a batch of a stream."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from barnabas.errors import ConfigurationError
from barnabas.spark.columns import SPARK_TYPES, select_columns
from barnabas.spark.options import SourceOptions
from barnabas.spark.planning import OffsetRange
from barnabas.spark.reading import read_range, read_what_is_left
from barnabas.spark.telling import told_in_one_line
from barnabas.spark.worker_memory import spare_collections

_TYPES: dict[str, DataType] = {
    "binary": BinaryType(),
    "string": StringType(),
    "int": IntegerType(),
    "bigint": LongType(),
    "timestamp": TimestampType(),
    SPARK_TYPES["headers"]: ArrayType(
        StructType([StructField("key", StringType()), StructField("value", BinaryType())])
    ),
}


@dataclass
class RangePartition(InputPartition):
    """What one Spark task reads."""

    wanted: OffsetRange


def read_partition(
    partition: InputPartition, options: SourceOptions, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Yield the records of one task as Arrow batches of bounded size.

    :param columns: those that are made, in this order.
    """
    spare_collections()
    if not isinstance(partition, RangePartition):
        return  # for a query without any partition, Spark makes one of its own
    read = read_range if options.fail_on_data_loss else read_what_is_left
    with told_in_one_line():
        for records in read(
            partition.wanted, options.bootstrap, options.client_options, include_headers="headers" in columns
        ):
            yield from select_columns(records, columns)


def make_schema(columns: Sequence[str]) -> StructType:
    """Return columns as Spark has them; no session is needed for it."""
    return StructType([StructField(name, _TYPES[SPARK_TYPES[name]]) for name in columns])


def check_columns(schema: StructType) -> list[str]:
    """Return the columns of a query, which may be some of those that there are, in any order.

    :raises ConfigurationError: one does not exist or has another type.
    """
    names = [field.name for field in schema.fields]
    for field in schema.fields:
        if field.name not in SPARK_TYPES:
            raise ConfigurationError(f"there is no column {field.name!r}; there are {', '.join(SPARK_TYPES)}")
        given = field.dataType.simpleString()
        if given != SPARK_TYPES[field.name]:
            raise ConfigurationError(
                f"column {field.name!r} has the type {SPARK_TYPES[field.name]}, not {given}: cast it in the query"
            )
    return names
