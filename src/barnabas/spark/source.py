"""The Python data source `barnabas`: queries on topics, with the options and columns of Spark's Kafka source.

    from barnabas.spark import register
    register(spark)
    frame = (
        spark.read.format("barnabas")
        .option("kafka.bootstrap.servers", "localhost:9092")
        .option("subscribe", "clicks")
        .load()
    )

`readStream` in place of `read` makes a streaming query; `write` and `writeStream` send rows to topics. The driver asks
the brokers for offsets when it plans a query or a micro-batch. The executors fetch from the brokers and pass Arrow
batches to Spark. The source joins no consumer group.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from barnabas.errors import BarnabasError, ConfigurationError
from barnabas.spark.batch_reader import BarnabasReader, PushdownReader
from barnabas.spark.columns import column_names
from barnabas.spark.error_summaries import hide_traceback
from barnabas.spark.filter_pushdown import supports_filter_pushdown
from barnabas.spark.options import parse_any_options, parse_options, parse_stream_options
from barnabas.spark.range_partition import check_columns, make_schema
from barnabas.spark.range_reading import check_reachable
from barnabas.spark.refused_stream import RefusedStream
from barnabas.spark.sink_options import SinkOptions, parse_sink_options
from barnabas.spark.spark_version import FILTERS, STREAM_SINKS, STREAM_SOURCES, require_spark
from barnabas.spark.table_options import (
    given_options,
    is_for_table,
    options_of_insert,
    options_of_query,
    with_options,
)
from barnabas.spark.worker_packages import check_workers
from barnabas.spark.worker_python import cores_of, worker_python

if TYPE_CHECKING:
    from barnabas.spark.sink import BarnabasWriter
    from barnabas.spark.stream_reader import BarnabasStreamReader
    from barnabas.spark.stream_sink import BarnabasStreamWriter


class BarnabasDataSource(DataSource):
    """The data source behind `spark.read.format("barnabas")`.

    `register` registers it with a session; docs/how-to/pipeline.md lists the options.

        frame = spark.read.format("barnabas").option("kafka.bootstrap.servers", "localhost:9092").option(
            "subscribe", "clicks").load()
    """

    reader_class: type[BarnabasReader] = BarnabasReader
    cores: int | None = None
    """The number of tasks that the session runs at a time; None if unknown."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format, `barnabas`."""
        return "barnabas"

    def schema(self) -> StructType:
        """Return the columns of the records.

        :raises ConfigurationError: An option is invalid.
        """
        given = given_options(self.options)
        with hide_traceback():
            options = parse_any_options(given)
        columns = make_schema(
            column_names(include_headers=options.include_headers, include_raw_timestamp=options.include_raw_timestamp)
        )
        return with_options(columns, given) if is_for_table(self.options) else columns

    def reader(self, schema: StructType) -> BarnabasReader:
        """Return the reader that plans and runs one query.

        :raises ConfigurationError: An option or a column is invalid.
        """
        with hide_traceback():
            options = parse_options(options_of_query(self.options, schema))
            return self.reader_class(options, check_columns(schema), self.cores)

    def streamReader(self, schema: StructType) -> BarnabasStreamReader | RefusedStream:  # noqa: N802  Spark's name
        """Return the reader that plans and runs the micro-batches of a streaming query."""
        try:
            require_spark('readStream.format("barnabas")', STREAM_SOURCES)
            from barnabas.spark.stream_reader import BarnabasStreamReader  # noqa: PLC0415  # does not import before 4.2

            options = parse_stream_options(options_of_query(self.options, schema))
            return BarnabasStreamReader(options, check_columns(schema), self.cores)
        except BarnabasError as error:
            return RefusedStream(error)

    def writer(self, schema: StructType, overwrite: bool) -> BarnabasWriter:
        """Return the writer that sends the rows of a query to topics.

        :raises ConfigurationError: An option or a column is invalid, or `overwrite` is True.
        :raises TimedOutError: No broker answers at the bootstrap addresses.
        """
        from barnabas.spark.sink import BarnabasWriter  # noqa: PLC0415  # imports the producer: queries do not need it

        with hide_traceback():
            options = self._sink_options(schema, overwrite=overwrite)
            check_reachable(options.bootstrap, options.client_options)
            return BarnabasWriter(options)

    def streamWriter(self, schema: StructType, overwrite: bool) -> BarnabasStreamWriter:  # noqa: N802  Spark's name
        """Return the writer that sends the rows of a streaming query to topics.

        :raises ConfigurationError: An option or a column is invalid, `overwrite` is True, or Spark is older than 4.1.
        :raises TimedOutError: No broker answers at the bootstrap addresses.
        """
        with hide_traceback():
            require_spark('writeStream.format("barnabas")', STREAM_SINKS)
            from barnabas.spark.stream_sink import BarnabasStreamWriter  # noqa: PLC0415

            options = self._sink_options(schema, overwrite=overwrite)
            check_reachable(options.bootstrap, options.client_options)
            return BarnabasStreamWriter(options)

    def _sink_options(self, schema: StructType, *, overwrite: bool) -> SinkOptions:
        if overwrite:
            raise ConfigurationError(
                "records of a topic cannot be overwritten; append to the topic with mode('append')"
            )
        types = {field.name: field.dataType.simpleString() for field in schema.fields}
        return parse_sink_options(options_of_insert(self.options, schema), types)


class PushdownDataSource(BarnabasDataSource):
    """A `BarnabasDataSource` whose queries push filters down to the brokers."""

    reader_class = PushdownReader


def register(spark: SparkSession, *, pushdown: bool | None = None) -> None:
    """Register the format `barnabas` with a Spark session, for reading and writing.

        barnabas.spark.register(spark)
        spark.read.format("barnabas").option("kafka.bootstrap.servers", "localhost:9092").option(
            "subscribe", "clicks").load().show()

    :param spark: The Spark session.
    :param pushdown: True pushes filters on topic, partition, offset and timestamp down to the brokers, and sets
        `spark.sql.python.filterPushdown.enabled` in the session. None enables it if Spark keeps the queries on one
        frame apart. Spark 4.3 does not: two queries with different filters on the frame of one `load()` return wrong
        rows. With True, make a new frame for each query.
    :raises ConfigurationError: The Python of the session's workers lacks this package or one of its dependencies; or
        `pushdown` is True and Spark is older than 4.1.
    """
    if pushdown:
        require_spark("filter pushdown", FILTERS)
    narrows = supports_filter_pushdown(spark) if pushdown is None else pushdown
    if narrows:
        # Spark disables filter pushdown by default, and rejects a source with pushdown while it is disabled.
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    check_workers(spark)
    chosen = PushdownDataSource if narrows else BarnabasDataSource
    with worker_python(spark):
        # Spark pickles a class made here by value, so the process that plans queries gets this session's `cores`.
        spark.dataSource.register(type(chosen.__name__, (chosen,), {"cores": cores_of(spark)}))
