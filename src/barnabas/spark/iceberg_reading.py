"""Reads Iceberg tables: with pyiceberg, or as a Spark DataFrame without a jar to match.

For Spark, pyiceberg plans the files of the table's current snapshot. That is the whole truth only where no rows have
been deleted, which loads never do; a table with delete files is refused, and read with Iceberg's runtime for Spark or
with `open_table(...).scan()`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.table import Table
from pyspark.sql import DataFrame, SparkSession

from barnabas.spark.errors import WarehouseError
from barnabas.spark.parquet_frame import frame_of_files
from barnabas.spark.table_store import StoredTable


def scan(stored: StoredTable, columns: Sequence[str] | None, where: str | None) -> Iterator[pa.RecordBatch]:
    """Yield the rows as Arrow batches.

    :param where: a filter in pyiceberg's language.
    """
    scan = stored.table.scan(row_filter=where or AlwaysTrue(), selected_fields=tuple(columns or ("*",)))
    yield from scan.to_arrow_batch_reader()


def frame(spark: SparkSession, stored: StoredTable, where: str | None) -> DataFrame:
    """Return the rows as a DataFrame.

    :param where: a filter in pyiceberg's language; it leaves out files.
    :raises WarehouseError: rows were deleted.
    """
    tasks = list(stored.table.scan(row_filter=where or AlwaysTrue()).plan_files())
    if any(task.delete_files for task in tasks):
        raise WarehouseError(f"table {stored.name!r} has deleted rows: read it with Iceberg's runtime for Spark")
    schema = schema_to_pyarrow(stored.table.schema(), include_field_ids=False)
    paths = [task.file.file_path for task in tasks]
    return frame_of_files(spark, paths, schema, stored.location().properties, _former_names(stored.table))


def _former_names(table: Table) -> dict[str, list[str]]:
    """Return the names that columns have in files of before they were renamed; the table's name mapping has them."""
    mapping = table.name_mapping()
    now = {field.field_id: field.name for field in table.schema().fields}
    own = set(now.values())
    known = [(now.get(each.field_id or 0), each.names) for each in ([] if mapping is None else mapping.root)]
    found = {column: [name for name in names if name not in own] for column, names in known if column is not None}
    return {column: names for column, names in found.items() if names}
