"""The rows of a Delta table as a Spark DataFrame, without Delta's jar."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable
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
    columns = table.metadata().partition_columns
    if columns != [EVENT_DAY]:
        values = _partition_values(table, files, columns) if columns else {}
        return frame_of_files(spark, files, schema, stored.location().properties, constants=values)
    in_files = pa.schema([field for field in schema if field.name != EVENT_DAY])
    frame = frame_of_files(spark, files, in_files, stored.location().properties)
    shape = stored.shape()
    assert shape is not None, "the table exists"
    # The files lack the partition column. It is computed in UTC, which does not depend on the session's time zone.
    days = sql.floor(sql.unix_micros(shape.time_column) / sql.lit(_DAY_MICROSECONDS)).cast("int")
    return frame.withColumn(EVENT_DAY, sql.date_add(sql.lit("1970-01-01").cast("date"), days)).select(schema.names)


def _partition_values(table: DeltaTable, files: Sequence[str], columns: Sequence[str]) -> dict[str, dict[str, object]]:
    """Return the values of the partition columns of each file."""
    actions = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    by_path = {unquote(action["path"]): {name: action[f"partition.{name}"] for name in columns} for action in actions}
    return {file: next(by_path[path] for path in _endings(file) if path in by_path) for file in files}


def _endings(file: str) -> Iterator[str]:
    """Yield the paths that the log may have for a file, which is usually relative to the table."""
    parts = file.split("/")
    yield from ("/".join(parts[first:]) for first in range(len(parts)))
