"""All that there is to do with Iceberg tables, as `table_store.TableFormat` wants it. Loaded when it is first used.

Maintenance and Spark are imported by the calls that need them: a command that looks at a table is to answer at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, cast

from barnabas.clock import Clock
from barnabas.spark.table_store import Maintainer, StoredTable, TableFormat, TableStore
from barnabas.spark.warehouse import Warehouse

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


def _scan(stored: StoredTable, columns: Sequence[str] | None, where: str | None) -> Iterator[pa.RecordBatch]:
    from barnabas.spark.iceberg_reading import scan

    return scan(stored, columns, where)


def _frame(spark: SparkSession, stored: StoredTable, where: str | None) -> DataFrame:
    from barnabas.spark.iceberg_frame import frame

    return frame(spark, stored, where)


def _maintainer(store: TableStore, name: str, clock: Clock) -> Maintainer:
    from barnabas.spark.iceberg_maintenance import IcebergMaintainer

    return IcebergMaintainer(cast("Warehouse", store), name, clock)


FORMAT = TableFormat(open=Warehouse.open, maintainer=_maintainer, scan=_scan, frame=_frame)
