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
from pyiceberg.table.name_mapping import MappedField
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType
from pyspark.sql import DataFrame, SparkSession

from barnabas.formats.field_aliases import Path
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


def _former_names(table: Table) -> dict[Path, list[str]]:
    """Return the names that fields have in files of before they were renamed; the table's name mapping has them."""
    mapping = table.name_mapping()
    return {} if mapping is None else dict(_former_names_in(mapping.root, table.schema().as_struct(), ()))


def _former_names_in(mapped: Sequence[MappedField], kind: IcebergType, path: Path) -> Iterator[tuple[Path, list[str]]]:
    known = {each.field_id: each for each in mapped}
    inner = _fields_in(kind)
    own = {field.name for field in inner}
    for field in inner:
        each = known.get(field.field_id)
        if each is None:
            continue
        names = [name for name in each.names if name not in own]
        if names:
            yield (*path, field.name), names
        yield from _former_names_in(each.fields, field.field_type, (*path, field.name))


def _fields_in(kind: IcebergType) -> tuple[NestedField, ...]:
    """Return the fields of a struct, and what a list or a map has as one; a map's key has no other names."""
    if isinstance(kind, StructType):
        return kind.fields
    if isinstance(kind, ListType):
        return (kind.element_field,)
    return (kind.value_field,) if isinstance(kind, MapType) else ()
