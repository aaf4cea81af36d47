"""The rows of an Iceberg table as a Spark DataFrame, without Iceberg's jar.

pyiceberg plans the files of the current snapshot for Spark. The files contain exactly the table's rows unless rows were
deleted, which loads never do. A table with delete files is rejected; read it with Iceberg's runtime for Spark, or with
`open_table(...).scan()`.
"""

from __future__ import annotations

from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.table import Table
from pyspark.sql import DataFrame, SparkSession

from barnabas.spark.errors import WarehouseError
from barnabas.spark.iceberg_reading import former_names, row_filter_of
from barnabas.spark.library_errors import library_errors
from barnabas.spark.parquet_frame import frame_of_files
from barnabas.spark.table_store import StoredTable


def frame(spark: SparkSession, stored: StoredTable, where: str | None) -> DataFrame:
    """Return the rows as a DataFrame.

    :param where: A filter in pyiceberg's syntax, which skips files.
    :raises ConfigurationError: The filter is invalid.
    :raises WarehouseError: The table has delete files, or its files cannot be listed.
    """
    table: Table = stored.table
    row_filter = row_filter_of(where)
    with library_errors(f"table {stored.name}: its list of files cannot be read"):
        tasks = list(table.scan(row_filter=row_filter).plan_files())
    if any(task.delete_files for task in tasks):
        raise WarehouseError(f"table {stored.name!r} has deleted rows: read it with Iceberg's runtime for Spark")
    schema = schema_to_pyarrow(stored.table.schema(), include_field_ids=False)
    paths = [task.file.file_path for task in tasks]
    return frame_of_files(spark, paths, schema, stored.location().properties, former_names(stored.table))
