"""The input partitions of a query, and the read of one partition by a Spark task. Batch queries and streams share
them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
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
from barnabas.spark.error_summaries import hide_traceback
from barnabas.spark.offset_ranges import OffsetRange, combine_ranges, records_per_core, split_ranges
from barnabas.spark.options import SourceOptions
from barnabas.spark.range_reading import RangeConnections, read_range, read_remaining
from barnabas.spark.worker_gc import freeze_imports

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
    """The offset ranges that one Spark task reads, one after the other."""

    wanted: tuple[OffsetRange, ...]


def make_partitions(
    ranges: Iterable[OffsetRange], options: SourceOptions, cores: int | None, *, cuts: bool = False
) -> list[InputPartition]:
    """Split ranges into tasks according to the options. Without such options, small ranges share a task.

    :param cores: The number of tasks that run at a time; None if unknown.
    :param cuts: True to split ranges that are larger than the average number of records per core.
    """
    least, most = options.partitions_min, options.records_per_partition_max
    known = cores if least is most is None else None
    ranges = list(ranges)
    if cuts and known:
        most = records_per_core(ranges, known)
    pieces = split_ranges(ranges, partitions_min=least, records_max=most)
    return [RangePartition(task) for task in combine_ranges(pieces, known)]


def read_partition(
    partition: InputPartition, options: SourceOptions, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Yield the records of one task as Arrow batches of bounded size.

    :param columns: The columns to return, in this order.
    """
    freeze_imports()
    if not isinstance(partition, RangePartition):
        return  # Spark passes a dummy partition if a query has no partitions
    read = read_range if options.fail_on_data_loss else read_remaining
    with hide_traceback(), closing(RangeConnections()) as connections:
        for wanted in partition.wanted:
            for records in read(
                wanted,
                options.bootstrap,
                options.client_options,
                include_headers="headers" in columns,
                connections=connections,
            ):
                yield from select_columns(records, columns)


def make_schema(columns: Sequence[str]) -> StructType:
    """Return the Spark schema of the given columns. No session is necessary."""
    return StructType([StructField(name, _TYPES[SPARK_TYPES[name]]) for name in columns])


def check_columns(schema: StructType) -> list[str]:
    """Return the column names of a query's schema, which may be a subset of the columns in any order.

    :raises ConfigurationError: A column does not exist, or has another type.
    """
    names = [field.name for field in schema.fields]
    for field in schema.fields:
        if field.name not in SPARK_TYPES:
            raise ConfigurationError(f"there is no column {field.name!r}; the columns are {', '.join(SPARK_TYPES)}")
        given = field.dataType.simpleString()
        if given != SPARK_TYPES[field.name]:
            raise ConfigurationError(
                f"column {field.name!r} has the type {SPARK_TYPES[field.name]}, not {given}: cast it in the query"
            )
    return names
