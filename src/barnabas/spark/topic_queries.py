"""Statements of SQL on topics by Spark: each topic a view, rows that come to the driver as they are made.

Rows travel as Arrow, packed by the executors, so that types and times arrive as they are in Spark and the driver never
holds more than a batch of them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import MapType, StringType

from barnabas.errors import BarnabasError
from barnabas.spark.source import register

MakeColumn = Callable[[pa.Array], pa.Array]
Decode = Callable[[pa.Array], list[pa.Array]]
"""Makes the columns of values. It is sent to executors."""

UNKNOWN_TABLE = "TABLE_OR_VIEW_NOT_FOUND"
_FIELDS = "__fields"
_PACKED = "packed binary"
_SETTINGS = {
    # So that the same text names the same columns here and in DuckDB.
    "spark.sql.ansi.enabled": "true",
    "spark.sql.ansi.doubleQuotedIdentifiers": "true",
    # A statement reads topics, and no files.
    "spark.sql.runSQLOnFiles": "false",
}


class QueryRefusedError(BarnabasError):
    """Spark does not carry out a statement.

    `unknown_table`: the table that it names and that does not exist, as the statement has it.
    """

    def __init__(self, message: str, unknown_table: str | None = None) -> None:
        super().__init__(message)
        self.unknown_table = unknown_table


def prepare(spark: SparkSession) -> None:
    """Let a session read topics, and files no more."""
    register(spark)
    for name, value in _SETTINGS.items():
        spark.conf.set(name, value)
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)  # whoever asked is told in one line


def make_topic_view(
    spark: SparkSession,
    bootstrap: str,
    topic: str,
    schema: pa.Schema,
    decode: Decode,
    as_text: MakeColumn,
    headers_as_map: MakeColumn,
) -> None:
    """Make a temporary view called like a topic: its records' own columns, and those of their values.

    It is for one statement: what a view has read once, and by which conditions, it may read for all that come after.
    Conditions on `partition`, `offset` and `timestamp` reach the brokers where they do in any query on the data source:
    Spark carries them past the columns that are made here.

    :param schema: the columns that `decode` makes.
    :param as_text: makes text of keys and values.
    :param headers_as_map: makes maps of text of headers.
    """
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "includeHeaders": "true"}
    records = spark.read.format("barnabas").options(**options).load()
    text: Any = arrow_udf(_function(as_text), StringType())  # type: ignore[call-overload]  # it is told by the hints
    columns = [col(name) for name in ("topic", "partition", "offset", "timestamp")]
    columns += [text(col(name)).alias(name) for name in ("key", "value")]
    pairs: Any = arrow_udf(_function(headers_as_map), MapType(StringType(), StringType()))  # type: ignore[call-overload]
    columns.append(pairs(col("headers")).alias("headers"))
    if len(schema):
        struct = _function(_struct_of(decode, schema.names))
        fields: Any = arrow_udf(struct, from_arrow_schema(schema))  # type: ignore[call-overload]
        records = records.withColumn(_FIELDS, fields(col("value")))
        columns += [col(_FIELDS).getField(name).alias(name) for name in schema.names]
    records.select(*columns).createOrReplaceTempView(_quoted(topic))


def drop_topic_view(spark: SparkSession, topic: str) -> None:
    """Forget a view that `make_topic_view` has made."""
    spark.sql(f"DROP VIEW IF EXISTS {_quoted(topic)}")  # the catalog's own call takes no quoted names


def has_table(spark: SparkSession, name: str) -> bool:
    """Return whether a session has a table or view of a name, which `make_topic_view` has not made."""
    return bool(spark.catalog.tableExists(_quoted(name)))


def begin_query(spark: SparkSession, statement: str) -> DataFrame:
    """Return what a statement gives, which is not computed yet.

    :raises QueryRefusedError: it is no SQL, or names what does not exist.
    """
    try:
        return spark.sql(statement)
    except (AnalysisException, ParseException) as error:
        raise QueryRefusedError(_sql_message(error), _unknown_table(error)) from None


def _unknown_table(error: PySparkException) -> str | None:
    if error.getCondition() != UNKNOWN_TABLE:
        return None
    name = (error.getMessageParameters() or {}).get("relationName", "")
    return name.replace("`.`", ".").strip("`").replace("``", "`")


def columns_of(frame: DataFrame) -> pa.Schema:
    """Return the columns of a query's rows."""
    return to_arrow_schema(frame.schema, timezone="UTC")


def rows_of(frame: DataFrame) -> Generator[pa.RecordBatch]:
    """Yield a query's rows.

    :raises QueryRefusedError: it failed.
    """
    schema = columns_of(frame)
    if not schema.names:
        return
    numbered = frame.toDF(*(f"c{number}" for number in range(len(schema))))  # names may be there twice
    try:
        for row in numbered.mapInArrow(_pack, _PACKED).toLocalIterator():
            with pa.ipc.open_stream(row[0]) as packed:
                for batch in packed:
                    yield batch.rename_columns(schema.names)
    except PySparkException as error:
        raise QueryRefusedError(_sql_message(error)) from None


def _pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as stream:
            stream.write_batch(batch)
        yield pa.RecordBatch.from_arrays([pa.array([sink.getvalue().to_pybytes()], pa.binary())], names=["packed"])


def _struct_of(decode: Decode, names: Sequence[str]) -> MakeColumn:
    return lambda values: pa.StructArray.from_arrays(decode(values), names=names)


def _function(make: MakeColumn) -> MakeColumn:
    """Return what makes a column as a plain function with types, by which Spark tells what it is given."""

    def made(values: pa.Array) -> pa.Array:
        return make(values)

    return made


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _sql_message(error: PySparkException) -> str:
    """Return what Spark says, in one line, without the statement."""
    text = str(error).strip().partition("\n")[0]
    return text.partition("] ")[2].partition(" SQLSTATE:")[0].rstrip(". ") or text
