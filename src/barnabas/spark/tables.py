"""Reads loaded tables: with their format's own library, as Arrow batches, or as a Spark DataFrame without a jar."""

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
    """Return a table as it is now: pyiceberg's `Table`, or deltalake's `DeltaTable`.

    Tables are where `load` has put them, under the same arguments.

    :raises WarehouseError: there is none.
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

    :param columns: only these; None for all.
    :param where: a filter in the language of the format's library: pyiceberg's for Iceberg, as in
        `"partition = 0 and offset >= 120"`, SQL's conditions for Delta.
    :raises WarehouseError: there is no such table.
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

    :param warehouse: None where a catalog is named, also by a name of three parts: one of Spark's settings will do.
    :param where: a filter as for `scan_table`; it leaves out files (by day, say), not single rows.
    :raises WarehouseError: there is no such table, or rows of it were deleted.
    """
    place = place_of(name, spark, warehouse, catalog, catalog_properties, table_format)
    return format_of(place).frame(spark, open_place(place).current_table(name), where)
