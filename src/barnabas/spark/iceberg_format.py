"""All that there is to do with Iceberg tables, as `table_store.TableFormat` wants it. Loaded when it is first used."""

from __future__ import annotations

from typing import cast

from barnabas.clock import Clock
from barnabas.spark.iceberg_maintenance import IcebergMaintainer
from barnabas.spark.iceberg_reading import frame, scan
from barnabas.spark.table_store import Maintainer, TableFormat, TableStore
from barnabas.spark.warehouse import Warehouse


def _maintainer(store: TableStore, name: str, clock: Clock) -> Maintainer:
    return IcebergMaintainer(cast("Warehouse", store), name, clock)


FORMAT = TableFormat(open=Warehouse.open, maintainer=_maintainer, scan=scan, frame=frame)
