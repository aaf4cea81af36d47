"""The rows of a Delta table as a Spark DataFrame, without Delta's jar."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from barnabas.spark.delta_schema import arrow_schema
from barnabas.spark.library_errors import library_errors
from barnabas.spark.parquet_frame import frame_of_files
from barnabas.spark.table_schema import EVENT_DAY
from barnabas.spark.table_store import StoredTable

_DAY_MICROSECONDS = 86_400_000_000


def frame(spark: SparkSession, stored: StoredTable, where: str | None) -> DataFrame:
    """Return the rows as a DataFrame.

    :param where: A SQL condition that skips files.
    :raises WarehouseError: The files cannot be listed.
    """
    table = stored.table
    with library_errors(f"table {stored.name}: its list of files cannot be read"):
        schema = arrow_schema(table.schema().to_json())
        files = table.file_uris(file_pruning_predicate=where)
    in_files = pa.schema([field for field in schema if field.name != EVENT_DAY])
    frame = frame_of_files(spark, files, in_files, stored.location().properties)
    if EVENT_DAY not in schema.names:
        return frame
    shape = stored.shape()
    assert shape is not None, "the table exists"
    # The files lack the partition column. It is computed in UTC, which does not depend on the session's time zone.
    days = sql.floor(sql.unix_micros(shape.time_column) / sql.lit(_DAY_MICROSECONDS)).cast("int")
    return frame.withColumn(EVENT_DAY, sql.date_add(sql.lit("1970-01-01").cast("date"), days))
