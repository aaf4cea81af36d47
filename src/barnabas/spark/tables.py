"""Reads loaded tables: with pyiceberg, or as a Spark DataFrame without a jar to match.

For Spark, the files of the table's current snapshot are planned by pyiceberg and read by Spark's own Parquet
reader. That is the whole truth only where no rows have been deleted, which loads never do; a table with delete
files is refused, and read with Iceberg's runtime for Spark or with `open_table(...).scan()`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.table import Table
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import coalesce
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from barnabas.spark.errors import WarehouseError
from barnabas.spark.warehouse import Warehouse


def open_table(warehouse: str | Path | None, name: str, *, catalog: str | None = None) -> Table:
    """Return a table of pyiceberg's, as it is now.

    :raises WarehouseError: there is none.
    """
    return Warehouse.open(warehouse, catalog=catalog).table(name)


def scan_table(
    warehouse: str | Path | None,
    name: str,
    *,
    columns: Sequence[str] | None = None,
    where: str | None = None,
    catalog: str | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a table as Arrow batches, without Spark.

    :param columns: only these; None for all.
    :param where: a filter in pyiceberg's language, as in `"partition = 0 and offset >= 120"`.
    :raises WarehouseError: there is no such table.
    """
    table = open_table(warehouse, name, catalog=catalog)
    scan = table.scan(row_filter=where or AlwaysTrue(), selected_fields=tuple(columns or ("*",)))
    yield from scan.to_arrow_batch_reader()


def read_table(
    spark: SparkSession,
    warehouse: str | Path | None,
    name: str,
    *,
    catalog: str | None = None,
    where: str | None = None,
) -> DataFrame:
    """Return a table as a DataFrame.

    :param where: a filter in pyiceberg's language; it leaves out files (by day, say), not single rows.
    :raises WarehouseError: there is no such table, or rows of it were deleted.
    """
    table = open_table(warehouse, name, catalog=catalog)
    tasks = list(table.scan(row_filter=where or AlwaysTrue()).plan_files())
    if any(task.delete_files for task in tasks):
        raise WarehouseError(f"table {name!r} has deleted rows: read it with Iceberg's runtime for Spark")
    schema = from_arrow_schema(schema_to_pyarrow(table.schema(), include_field_ids=False))
    paths = [task.file.file_path for task in tasks]
    former = _former_names(table)
    if not former:
        return spark.read.schema(schema).parquet(*paths)
    whole = StructType(list(schema))
    for column, names in former.items():
        for former_name in names:
            whole = whole.add(former_name, schema[column].dataType)
    rows = spark.read.schema(whole).parquet(*paths)
    # A file has a column under one of its names only, and the others are null.
    columns = {name: [rows[f"`{each}`"] for each in (name, *former.get(name, ()))] for name in schema.names}
    return rows.select(*(coalesce(*each).alias(name) for name, each in columns.items()))


def _former_names(table: Table) -> dict[str, list[str]]:
    """Return the names that columns have in files of before they were renamed; the table's name mapping has them."""
    mapping = table.name_mapping()
    now = {field.field_id: field.name for field in table.schema().fields}
    own = set(now.values())
    known = [(now.get(each.field_id or 0), each.names) for each in ([] if mapping is None else mapping.root)]
    found = {column: [name for name in names if name not in own] for column, names in known if column is not None}
    return {column: names for column, names in found.items() if names}
