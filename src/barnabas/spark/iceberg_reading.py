"""Reading of Iceberg tables as Arrow batches.

pyiceberg plans the files but does not read them if this module can. pyiceberg 0.12 (`ArrowProjectionVisitor`) returns
empty lists and maps in place of null ones, and nulls for renamed fields of structs in nested types.
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

    pyiceberg reads tables without a name mapping, and tables with delete files.

    :param where: A filter in pyiceberg's syntax.
    :raises ConfigurationError: The filter is invalid.
    :raises WarehouseError: The rows cannot be read.
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
            f"where: {where!r} is not a filter in pyiceberg's syntax: error at character {error.loc + 1}"
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
    # The filter may need other fields of a struct than the result, so the whole column is read.
    read = pa.schema([*beside, *(each for each in whole if each.name in wanted.names and each not in beside)])
    rows_with = expression_to_pyarrow(condition, schema)
    for batch in read_files(table, tasks, read, stored.location().properties):
        for found in pa.Table.from_batches([batch]).filter(rows_with).to_batches():
            yield project(found, wanted)


def read_files(
    table: Table, tasks: Iterable[FileScanTask], schema: pa.Schema, properties: Mapping[str, str]
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of files without delete files, one file after the other.

    :param schema: The columns to read, or parts of them. Columns that a file lacks are null.
    :param properties: The storage properties, as pyiceberg names them.
    """
    former = former_names(table)
    for task in tasks:
        yield from rows_of_file(task.file.file_path, schema, properties, former)


def former_names(table: Table) -> dict[Path, list[str]]:
    """Return the earlier names of renamed fields, from the table's name mapping. Older files still use these names."""
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
    """Return the fields of a struct, or the element of a list or the value of a map. Map keys are never renamed."""
    if isinstance(kind, StructType):
        return kind.fields
    if isinstance(kind, ListType):
        return (kind.element_field,)
    return (kind.value_field,) if isinstance(kind, MapType) else ()
