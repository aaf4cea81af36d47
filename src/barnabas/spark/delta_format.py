"""The functions for Delta tables, as `table_store.TableFormat` declares them. Imported on first use.

The functions import maintenance and Spark on demand, so that a command such as `table status` starts quickly.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, cast

import pyarrow as pa
from deltalake import QueryBuilder

from barnabas.clock import Clock
from barnabas.spark.delta_schema import arrow_schema
from barnabas.spark.delta_warehouse import DeltaWarehouse
from barnabas.spark.library_errors import library_errors
from barnabas.spark.projection import project
from barnabas.spark.table_store import Maintainer, StoredTable, TableDefinition, TableFormat, TableStore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from barnabas.spark.table_snapshots import FilePage, SnapshotPage


def _scan(stored: StoredTable, columns: Sequence[str] | None, where: str | None) -> Iterator[pa.RecordBatch]:
    """Yield the rows as Arrow batches.

    :param where: A SQL condition.
    :raises WarehouseError: The rows cannot be read.
    """
    with library_errors(f"table {stored.name}: its rows cannot be read"):
        yield from _found(stored, columns, where)


def _found(stored: StoredTable, columns: Sequence[str] | None, where: str | None) -> Iterator[pa.RecordBatch]:
    schema = arrow_schema(stored.table.schema().to_json())
    wanted = schema if columns is None else pa.schema([schema.field(name) for name in columns])
    names = ", ".join(_quoted(name) for name in wanted.names)
    query = f"SELECT {names} FROM rows" + (f" WHERE {where}" if where else "")
    found = QueryBuilder().register("rows", stored.table).execute(query)
    for batch in pa.RecordBatchReader.from_stream(found):
        yield project(batch, wanted)


def _frame(spark: SparkSession, stored: StoredTable, where: str | None) -> DataFrame:
    from barnabas.spark.delta_frame import frame

    return frame(spark, stored, where)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _maintainer(store: TableStore, name: str, clock: Clock) -> Maintainer:
    from barnabas.spark.delta_maintenance import DeltaMaintainer

    return DeltaMaintainer(cast("DeltaWarehouse", store), name, clock)


def _snapshots(stored: StoredTable, start: int, count: int) -> SnapshotPage:
    from barnabas.spark.delta_snapshots import snapshots

    return snapshots(stored, start, count)


def _files_of(stored: StoredTable, snapshot_id: int, start: int, count: int) -> FilePage:
    from barnabas.spark.delta_snapshots import files

    return files(stored, snapshot_id, start, count)


def _definition(stored: StoredTable) -> TableDefinition:
    from barnabas.spark.delta_snapshots import definition

    return definition(stored)


FORMAT = TableFormat(
    open=DeltaWarehouse.open,
    maintainer=_maintainer,
    scan=_scan,
    frame=_frame,
    snapshots=_snapshots,
    files=_files_of,
    definition=_definition,
)
