"""The Python Data Source `barnabas`: batch queries on topics, with the options and columns of Spark's Kafka source.

    from barnabas.spark import register
    register(spark)
    frame = (
        spark.read.format("barnabas")
        .option("kafka.bootstrap.servers", "localhost:9092")
        .option("subscribe", "clicks")
        .load()
    )

The driver asks the brokers for the offsets once, when the query is planned; the executors read the brokers
directly and hand Arrow batches to Spark. No group is joined and no offset committed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from barnabas.spark.columns import SPARK_HEADERS, SPARK_RAW_TIMESTAMP, SPARK_SCHEMA, to_record_batches
from barnabas.spark.offsets import resolve_ranges, select_partitions
from barnabas.spark.options import SourceOptions, parse_options
from barnabas.spark.planning import OffsetRange, split_ranges
from barnabas.spark.reading import open_admin, read_range
from barnabas.spark.worker_python import worker_python


class BarnabasDataSource(DataSource):
    """`spark.read.format("barnabas")`; see the options in docs/pipeline.md."""

    @classmethod
    def name(cls) -> str:
        """Return the name that `format` takes."""
        return "barnabas"

    def schema(self) -> str:
        """Return the columns, in Spark's notation.

        :raises ConfigurationError: an option is wrong.
        """
        options = parse_options(self.options)
        columns = [SPARK_SCHEMA]
        columns += [SPARK_HEADERS] if options.include_headers else []
        columns += [SPARK_RAW_TIMESTAMP] if options.include_raw_timestamp else []
        return ", ".join(columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return what plans and reads one query."""
        return BarnabasReader(parse_options(self.options))


@dataclass
class RangePartition(InputPartition):
    """What one Spark task reads."""

    wanted: OffsetRange


class BarnabasReader(DataSourceReader):
    """Plans one query on the driver and reads its parts on the executors, where a copy of it is sent."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        """Ask the brokers for the offsets and split them into tasks."""
        options = self._options
        with open_admin(options.bootstrap, options.client_options) as admin:
            counts = {topic.name: len(topic.partitions) for topic in admin.describe_topics()}
            ranges = resolve_ranges(options, select_partitions(options.selection, counts), admin)
        pieces = split_ranges(
            ranges, partitions_min=options.partitions_min, records_max=options.records_per_partition_max
        )
        return [RangePartition(piece) for piece in pieces]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of one task as Arrow batches of bounded size."""
        if not isinstance(partition, RangePartition):
            return  # for a query without any partition, Spark makes one of its own
        wanted, options = partition.wanted, self._options
        include_headers = options.include_headers
        for records in read_range(wanted, options.bootstrap, options.client_options, include_headers=include_headers):
            yield from to_record_batches(
                records, include_headers=include_headers, include_raw_timestamp=options.include_raw_timestamp
            )


def register(spark: SparkSession) -> None:
    """Make `spark.read.format("barnabas")` known to a session.

    :raises ConfigurationError: the session's workers run a Python without this package.
    """
    with worker_python(spark):
        spark.dataSource.register(BarnabasDataSource)
