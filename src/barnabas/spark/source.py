"""The Python Data Source `barnabas`: queries on topics, with the options and columns of Spark's Kafka source.

    from barnabas.spark import register
    register(spark)
    frame = (
        spark.read.format("barnabas")
        .option("kafka.bootstrap.servers", "localhost:9092")
        .option("subscribe", "clicks")
        .load()
    )

With `readStream` in the place of `read`, it is a stream; `write` and `writeStream` send rows to topics. The driver
asks the brokers for the offsets when a query, or a batch of a stream, is planned; the executors read the brokers
directly and hand Arrow batches to Spark. No group is joined.
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
from barnabas.spark.sink_options import SinkOptions, parse_sink_options
from barnabas.spark.stream_reader import BarnabasStreamReader, RefusedStream
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
    from barnabas.spark.sink import BarnabasStreamWriter, BarnabasWriter


class BarnabasDataSource(DataSource):
    """`spark.read.format("barnabas")`; see the options in docs/how-to/pipeline.md."""

    reader_class: type[BarnabasReader] = BarnabasReader
    cores: int | None = None
    """How many tasks run at a time, None where nobody knows."""

    @classmethod
    def name(cls) -> str:
        """Return the name that `format` takes."""
        return "barnabas"

    def schema(self) -> StructType:
        """Return the columns.

        :raises ConfigurationError: an option is wrong.
        """
        given = given_options(self.options)
        with hide_traceback():
            options = parse_any_options(given)
        columns = make_schema(
            column_names(include_headers=options.include_headers, include_raw_timestamp=options.include_raw_timestamp)
        )
        return with_options(columns, given) if is_for_table(self.options) else columns

    def reader(self, schema: StructType) -> BarnabasReader:
        """Return what plans and reads one query."""
        with hide_traceback():
            options = parse_options(options_of_query(self.options, schema))
            return self.reader_class(options, check_columns(schema), self.cores)

    def streamReader(self, schema: StructType) -> BarnabasStreamReader | RefusedStream:  # noqa: N802  Spark's name
        """Return what plans and reads the batches of a streaming query."""
        try:
            options = parse_stream_options(options_of_query(self.options, schema))
            return BarnabasStreamReader(options, check_columns(schema), self.cores)
        except BarnabasError as error:
            return RefusedStream(error)

    def writer(self, schema: StructType, overwrite: bool) -> BarnabasWriter:
        """Return what writes the rows of a query.

        :raises ConfigurationError: an option or a column is wrong.
        :raises TimedOutError: nobody listens at the brokers' addresses.
        """
        from barnabas.spark.sink import BarnabasWriter  # noqa: PLC0415  # a producer: who reads need not load it

        with hide_traceback():
            options = self._sink_options(schema, overwrite=overwrite)
            check_reachable(options.bootstrap, options.client_options)
            return BarnabasWriter(options)

    def streamWriter(self, schema: StructType, overwrite: bool) -> BarnabasStreamWriter:  # noqa: N802  Spark's name
        """Return what writes the rows of one batch of a stream.

        :raises ConfigurationError: an option or a column is wrong.
        :raises TimedOutError: nobody listens at the brokers' addresses.
        """
        from barnabas.spark.sink import BarnabasStreamWriter  # noqa: PLC0415

        with hide_traceback():
            options = self._sink_options(schema, overwrite=overwrite)
            check_reachable(options.bootstrap, options.client_options)
            return BarnabasStreamWriter(options)

    def _sink_options(self, schema: StructType, *, overwrite: bool) -> SinkOptions:
        if overwrite:
            raise ConfigurationError("records of a topic cannot be overwritten: append to it, with mode('append')")
        types = {field.name: field.dataType.simpleString() for field in schema.fields}
        return parse_sink_options(options_of_insert(self.options, schema), types)


class PushdownDataSource(BarnabasDataSource):
    """The same, with queries whose conditions leave records unread."""

    reader_class = PushdownReader


def register(spark: SparkSession, *, pushdown: bool | None = None) -> None:
    """Make the format `barnabas` known to a session, to read from and to write to.

    :param pushdown: whether conditions on topic, partition, offset and timestamp leave records unread; None: where
        Spark keeps the queries on one frame apart. Spark 4.3 does not: two queries with other conditions on the frame
        of one `load()` get wrong rows. Whoever says True makes a frame for each query. It sets
        `spark.sql.python.filterPushdown.enabled` in the session.
    :raises ConfigurationError: the session's workers run a Python without this package, or without one that it needs.
    """
    narrows = supports_filter_pushdown(spark) if pushdown is None else pushdown
    if narrows:
        # Off by default; Spark refuses a source that can make use of conditions while it is off.
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    check_workers(spark)
    chosen = PushdownDataSource if narrows else BarnabasDataSource
    with worker_python(spark):
        # A class of its own for this session is sent whole to what plans its queries.
        spark.dataSource.register(type(chosen.__name__, (chosen,), {"cores": cores_of(spark)}))
