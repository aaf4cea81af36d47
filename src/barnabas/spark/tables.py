"""Reading of loaded tables: with pyiceberg or deltalake, as Arrow batches, or as a Spark DataFrame without a jar."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from barnabas.spark.spark_catalogs import place_of
from barnabas.spark.table_formats import format_of, open_place
from barnabas.spark.table_place import ICEBERG


def open_table(
    warehouse: str | Path | None,
    name: str,
    *,
    catalog: str | None = None,
    catalog_properties: Mapping[str, str] | None = None,
    table_format: str = ICEBERG,
) -> Any:
    """Return the current version of a table: pyiceberg's `Table`, or deltalake's `DeltaTable`.

        table = barnabas.spark.open_table("./warehouse", "clicks")
        print(table.schema())

    :param warehouse: The directory of the embedded warehouse; None with `catalog` or a name of three parts.
    :param name: `"table"`, `"namespace.table"` or `"catalog.namespace.table"`.
    :param catalog: The name of a catalog in pyiceberg's configuration.
    :param catalog_properties: Properties of the catalog; they override pyiceberg's configuration.
    :param table_format: `iceberg` or `delta`.
    :raises WarehouseError: The table does not exist.
    """
    place = place_of(name, None, warehouse, catalog, catalog_properties, table_format)
    return open_place(place).current_table(name).table


def scan_table(
    warehouse: str | Path | None,
    name: str,
    *,
    columns: Sequence[str] | None = None,
    where: str | None = None,
    catalog: str | None = None,
    catalog_properties: Mapping[str, str] | None = None,
    table_format: str = ICEBERG,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a table as Arrow batches, without Spark.

        for batch in barnabas.spark.scan_table("./warehouse", "clicks", columns=["offset"], where="offset >= 120"):
            print(batch.num_rows)

    :param warehouse: The directory of the embedded warehouse; None with `catalog` or a name of three parts.
    :param name: `"table"`, `"namespace.table"` or `"catalog.namespace.table"`.
    :param columns: The names of the columns to read; None reads all.
    :param where: A filter. Iceberg tables take pyiceberg's syntax, `"partition = 0 and offset >= 120"`; Delta tables
        take SQL conditions.
    :param catalog: The name of a catalog in pyiceberg's configuration.
    :param catalog_properties: Properties of the catalog; they override pyiceberg's configuration.
    :param table_format: `iceberg` or `delta`.
    :raises WarehouseError: The table does not exist.
    """
    place = place_of(name, None, warehouse, catalog, catalog_properties, table_format)
    yield from format_of(place).scan(open_place(place).current_table(name), columns, where)


def read_table(
    spark: SparkSession,
    warehouse: str | Path | None,
    name: str,
    *,
    catalog: str | None = None,
    catalog_properties: Mapping[str, str] | None = None,
    table_format: str = ICEBERG,
    where: str | None = None,
) -> DataFrame:
    """Return a table as a DataFrame.

        barnabas.spark.read_table(spark, "./warehouse", "clicks").groupBy("partition").count().show()

    :param spark: The Spark session.
    :param warehouse: The directory of the embedded warehouse; None with `catalog` or a name of three parts.
    :param name: `"table"`, `"namespace.table"` or `"catalog.namespace.table"`.
    :param catalog: The name of a catalog in pyiceberg's or Spark's configuration.
    :param catalog_properties: Properties of the catalog; they override pyiceberg's configuration.
    :param table_format: `iceberg` or `delta`.
    :param where: A filter as for `scan_table`. It skips whole files (days, for example), not single rows.
    :raises WarehouseError: The table does not exist, or Iceberg's delete files remove rows of it.
    """
    place = place_of(name, spark, warehouse, catalog, catalog_properties, table_format)
    return format_of(place).frame(spark, open_place(place).current_table(name), where)
