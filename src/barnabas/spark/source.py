"""The Python Data Source `barnabas`: queries on topics, with the options and columns of Spark's Kafka source.

    from barnabas.spark import register
    register(spark)
    frame = (
        spark.read.format("barnabas")
        .option("kafka.bootstrap.servers", "localhost:9092")
        .option("subscribe", "clicks")
        .load()
    )

With `readStream` in the place of `read`, it is a stream. The driver
asks the brokers for the offsets when a query, or a batch of a stream, is planned; the executors read the brokers
directly and hand Arrow batches to Spark. No group is joined.
"""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from barnabas.errors import BarnabasError
from barnabas.spark.batch_reader import BarnabasReader
from barnabas.spark.columns import column_names
from barnabas.spark.options import parse_any_options, parse_options, parse_stream_options
from barnabas.spark.range_partition import check_columns, make_schema
from barnabas.spark.stream_reader import BarnabasStreamReader, RefusedStream
from barnabas.spark.telling import told_in_one_line
from barnabas.spark.worker_python import worker_python


class BarnabasDataSource(DataSource):
    """`spark.read.format("barnabas")`; see the options in docs/pipeline.md."""

    @classmethod
    def name(cls) -> str:
        """Return the name that `format` takes."""
        return "barnabas"

    def schema(self) -> StructType:
        """Return the columns.

        :raises ConfigurationError: an option is wrong.
        """
        with told_in_one_line():
            options = parse_any_options(self.options)
        return make_schema(
            column_names(include_headers=options.include_headers, include_raw_timestamp=options.include_raw_timestamp)
        )

    def reader(self, schema: StructType) -> BarnabasReader:
        """Return what plans and reads one query."""
        with told_in_one_line():
            return BarnabasReader(parse_options(self.options), check_columns(schema))

    def streamReader(self, schema: StructType) -> BarnabasStreamReader | RefusedStream:  # noqa: N802  Spark's name
        """Return what plans and reads the batches of a streaming query."""
        try:
            return BarnabasStreamReader(parse_stream_options(self.options), check_columns(schema))
        except BarnabasError as error:
            return RefusedStream(error)


def register(spark: SparkSession) -> None:
    """Make the format `barnabas` known to a session.

    Conditions of queries reach data sources in Python from then on (`spark.sql.python.filterPushdown.enabled`).

    :raises ConfigurationError: the session's workers run a Python without this package.
    """
    # Off by default; Spark refuses a source that can make use of conditions while it is off.
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    with worker_python(spark):
        spark.dataSource.register(BarnabasDataSource)
