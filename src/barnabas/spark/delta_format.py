"""All that there is to do with Delta tables, as `table_store.TableFormat` wants it. Loaded when it is first used."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

import pyarrow as pa
from deltalake import QueryBuilder
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from barnabas.clock import Clock
from barnabas.spark.delta_maintenance import DeltaMaintainer
from barnabas.spark.delta_schema import arrow_schema
from barnabas.spark.delta_warehouse import DeltaWarehouse
from barnabas.spark.parquet_frame import frame_of_files
from barnabas.spark.projection import project
from barnabas.spark.table_schema import EVENT_DAY
from barnabas.spark.table_store import Maintainer, StoredTable, TableFormat, TableStore

_DAY_MICROSECONDS = 86_400_000_000


def _scan(stored: StoredTable, columns: Sequence[str] | None, where: str | None) -> Iterator[pa.RecordBatch]:
    """Yield the rows as Arrow batches.

    :param where: a condition of SQL.
    """
    schema = arrow_schema(stored.table.schema().to_json())
    wanted = schema if columns is None else pa.schema([schema.field(name) for name in columns])
    names = ", ".join(_quoted(name) for name in wanted.names)
    query = f"SELECT {names} FROM rows" + (f" WHERE {where}" if where else "")
    found = QueryBuilder().register("rows", stored.table).execute(query)
    for batch in pa.RecordBatchReader.from_stream(found):
        yield project(batch, wanted)


def _frame(spark: SparkSession, stored: StoredTable, where: str | None) -> DataFrame:
    """Return the rows as a DataFrame.

    :param where: a condition of SQL; it leaves out files.
    """
    schema = arrow_schema(stored.table.schema().to_json())
    files = stored.table.file_uris(file_pruning_predicate=where)
    in_files = pa.schema([field for field in schema if field.name != EVENT_DAY])
    frame = frame_of_files(spark, files, in_files, stored.location().properties)
    if EVENT_DAY not in schema.names:
        return frame
    shape = stored.shape()
    assert shape is not None, "the table exists"
    # The day is in the log, not in the files; it is that of the time, in UTC, whatever the session's time zone is.
    days = sql.floor(sql.unix_micros(shape.time_column) / sql.lit(_DAY_MICROSECONDS)).cast("int")
    return frame.withColumn(EVENT_DAY, sql.date_add(sql.lit("1970-01-01").cast("date"), days))


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _maintainer(store: TableStore, name: str, clock: Clock) -> Maintainer:
    return DeltaMaintainer(cast("DeltaWarehouse", store), name, clock)


FORMAT = TableFormat(open=DeltaWarehouse.open, maintainer=_maintainer, scan=_scan, frame=_frame)
