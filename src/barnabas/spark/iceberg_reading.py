"""Reads Iceberg tables as Arrow batches.

pyiceberg plans the files, and does not read them where there is another way: from lists and maps of structs that are
null it makes empty ones, and fields that were renamed in structs further within are null (pyiceberg 0.12,
`ArrowProjectionVisitor`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import pyarrow as pa
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.expressions.parser import parse
from pyiceberg.expressions.visitors import bind, extract_field_ids
from pyiceberg.io.pyarrow import expression_to_pyarrow, schema_to_pyarrow
from pyiceberg.table import FileScanTask, Table
from pyiceberg.table.name_mapping import MappedField
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType
from pyparsing import ParseBaseException

from barnabas.errors import ConfigurationError
from barnabas.formats.field_aliases import Path
from barnabas.spark.library_errors import library_errors
from barnabas.spark.parquet_batches import rows_of_file
from barnabas.spark.projection import project
from barnabas.spark.table_store import StoredTable


def scan(stored: StoredTable, columns: Sequence[str] | None, where: str | None) -> Iterator[pa.RecordBatch]:
    """Yield the rows as Arrow batches.

    Files that did not come by their names, and rows that others deleted, are for pyiceberg to know about.

    :param where: a filter in pyiceberg's language.
    :raises ConfigurationError: it is none.
    :raises WarehouseError: they cannot be read.
    """
    row_filter = row_filter_of(where)
    with library_errors(f"table {stored.name}: its rows cannot be read"):
        yield from _scan(stored, columns, row_filter)


def row_filter_of(where: str | None) -> BooleanExpression:
    if not where:
        return AlwaysTrue()
    try:
        return parse(where)
    except ParseBaseException as error:
        raise ConfigurationError(
            f"where: {where!r} is no filter in pyiceberg's language, as of sign {error.loc + 1}"
        ) from error


def _scan(
    stored: StoredTable, columns: Sequence[str] | None, row_filter: BooleanExpression
) -> Iterator[pa.RecordBatch]:
    table: Table = stored.table
    scan = table.scan(row_filter=row_filter, selected_fields=tuple(columns or ("*",)))
    tasks = list(scan.plan_files())
    if table.name_mapping() is None or any(task.delete_files for task in tasks):
        yield from scan.to_arrow_batch_reader()
        return
    schema = table.schema()
    condition = bind(schema, scan.row_filter, case_sensitive=True)
    asked = {schema.find_column_name(each) for each in extract_field_ids(condition)}
    wanted = schema_to_pyarrow(scan.projection(), include_field_ids=False)
    whole = schema_to_pyarrow(schema, include_field_ids=False)
    beside = [each for each in whole if any(f"{name}.".startswith(f"{each.name}.") for name in asked)]
    if not beside:
        yield from read_files(table, tasks, wanted, stored.location().properties)
        return
    # What is asked for may be another part of a struct than what is wanted of it.
    read = pa.schema([*beside, *(each for each in whole if each.name in wanted.names and each not in beside)])
    rows_with = expression_to_pyarrow(condition, schema)
    for batch in read_files(table, tasks, read, stored.location().properties):
        for found in pa.Table.from_batches([batch]).filter(rows_with).to_batches():
            yield project(found, wanted)


def read_files(
    table: Table, tasks: Iterable[FileScanTask], schema: pa.Schema, properties: Mapping[str, str]
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of files of which none is deleted, one file after the other.

    :param schema: the columns that are wanted, or parts of them; files that lack them have nulls there.
    :param properties: how the files are reached, as pyiceberg names them.
    """
    former = former_names(table)
    for task in tasks:
        yield from rows_of_file(task.file.file_path, schema, properties, former)


def former_names(table: Table) -> dict[Path, list[str]]:
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
