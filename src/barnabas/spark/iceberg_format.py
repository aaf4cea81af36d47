"""The functions for Iceberg tables, as `table_store.TableFormat` declares them. Imported on first use.

The functions import maintenance and Spark on demand, so that a command such as `table status` starts quickly.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, cast

from barnabas.clock import Clock
from barnabas.spark.table_store import Maintainer, StoredTable, TableDefinition, TableFormat, TableStore
from barnabas.spark.warehouse import Warehouse

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from barnabas.spark.table_snapshots import FilePage, SnapshotPage


def _scan(stored: StoredTable, columns: Sequence[str] | None, where: str | None) -> Iterator[pa.RecordBatch]:
    from barnabas.spark.iceberg_reading import scan

    return scan(stored, columns, where)


def _frame(spark: SparkSession, stored: StoredTable, where: str | None) -> DataFrame:
    from barnabas.spark.iceberg_frame import frame

    return frame(spark, stored, where)


def _maintainer(store: TableStore, name: str, clock: Clock) -> Maintainer:
    from barnabas.spark.iceberg_maintenance import IcebergMaintainer

    return IcebergMaintainer(cast("Warehouse", store), name, clock)


def _snapshots(stored: StoredTable, start: int, count: int) -> SnapshotPage:
    from barnabas.spark.iceberg_snapshots import snapshots

    return snapshots(stored, start, count)


def _files_of(stored: StoredTable, snapshot_id: int, start: int, count: int) -> FilePage:
    from barnabas.spark.iceberg_snapshots import files

    return files(stored, snapshot_id, start, count)


def _definition(stored: StoredTable) -> TableDefinition:
    from barnabas.spark.iceberg_snapshots import definition

    return definition(stored)


FORMAT = TableFormat(
    open=Warehouse.open,
    maintainer=_maintainer,
    scan=_scan,
    frame=_frame,
    snapshots=_snapshots,
    files=_files_of,
    definition=_definition,
)
