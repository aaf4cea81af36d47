"""SQL statements on topics in Spark: each topic is a view, and rows stream to the driver.

Executors convert the rows to Arrow batches. So the types and times of rows do not change, and the driver holds only one
batch at a time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import MapType, StringType

from barnabas.errors import BarnabasError
from barnabas.spark.source import register
from barnabas.spark.spark_version import ARROW_FUNCTIONS, arrow_schema_of, require_spark

MakeColumn = Callable[[pa.Array], pa.Array]
Decode = Callable[[pa.Array], list[pa.Array]]
"""Decodes values into columns. The function is pickled for the executors."""

UNKNOWN_TABLE = "TABLE_OR_VIEW_NOT_FOUND"
_FIELDS = "__fields"
_PACKED = "packed binary"
_SETTINGS = {
    # With these settings, the same statement names the same columns in Spark and in DuckDB.
    "spark.sql.ansi.enabled": "true",
    "spark.sql.ansi.doubleQuotedIdentifiers": "true",
    # Statements may read topics, but no files.
    "spark.sql.runSQLOnFiles": "false",
}


class QueryRefusedError(BarnabasError):
    """Spark rejected a statement, or the query failed.

    `unknown_table`: The table that does not exist, as the statement spells it; None for other errors.
    """

    def __init__(self, message: str, unknown_table: str | None = None) -> None:
        super().__init__(message)
        self.unknown_table = unknown_table


def prepare(spark: SparkSession) -> None:
    """Configure a session for statements on topics. Statements can no longer read files.

    :raises ConfigurationError: Spark is older than 4.1.
    """
    require_spark("SQL on topics with --engine spark", ARROW_FUNCTIONS)
    register(spark)
    for name, value in _SETTINGS.items():
        spark.conf.set(name, value)
    # Spark would log the error in addition to the one-line message for the user.
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)


def make_topic_view(
    spark: SparkSession,
    settings: Mapping[str, Any],
    topic: str,
    schema: pa.Schema,
    decode: Decode,
    as_text: MakeColumn,
    headers_as_map: MakeColumn,
) -> None:
    """Create a temporary view named like a topic, with the columns of the records and of their values.

    Use the view for one statement only: Spark may reuse the plan of a view, with its pushed-down filters, in later
    statements. Filters on `partition`, `offset` and `timestamp` are pushed down to the brokers, because Spark moves
    them past the computed columns.

    :param settings: The client settings by Kafka's names.
    :param schema: The columns that `decode` returns.
    :param as_text: Converts keys and values to text.
    :param headers_as_map: Converts headers to maps of text.
    """
    from pyspark.sql.pandas.functions import arrow_udf  # noqa: PLC0415  # Spark 4.0 does not have it

    of_client = {f"kafka.{name}": str(value) for name, value in settings.items()}
    options = {**of_client, "subscribe": topic, "includeHeaders": "true"}
    records = spark.read.format("barnabas").options(**options).load()
    text: Any = arrow_udf(_function(as_text), StringType())  # type: ignore[call-overload]  # typed by its annotations
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
    """Drop a view of `make_topic_view`."""
    spark.sql(f"DROP VIEW IF EXISTS {_quoted(topic)}")  # spark.catalog.dropTempView accepts no quoted names


def has_table(spark: SparkSession, name: str) -> bool:
    """Return whether the session has a table or view of this name."""
    return bool(spark.catalog.tableExists(_quoted(name)))


def begin_query(spark: SparkSession, statement: str) -> DataFrame:
    """Return the DataFrame of a statement. Its rows are not computed yet.

    :raises QueryRefusedError: The statement is invalid, or names a table or column that does not exist.
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
    """Return the columns of a query's rows as an Arrow schema."""
    return arrow_schema_of(frame.schema)


def rows_of(frame: DataFrame) -> Generator[pa.RecordBatch]:
    """Yield the rows of a query.

    :raises QueryRefusedError: The query failed.
    """
    schema = columns_of(frame)
    if not schema.names:
        return
    numbered = frame.toDF(*(f"c{number}" for number in range(len(schema))))  # column names may be duplicates
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
    """Wrap a callable in a plain function with annotations, from which Spark infers the kind of UDF."""

    def made(values: pa.Array) -> pa.Array:
        return make(values)

    return made


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _sql_message(error: PySparkException) -> str:
    """Return the message of a Spark error in one line, without the statement."""
    text = str(error).strip().partition("\n")[0]
    return text.partition("] ")[2].partition(" SQLSTATE:")[0].rstrip(". ") or text
