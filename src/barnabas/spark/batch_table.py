"""The interface between `append_batch` and the table formats. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from barnabas.formats.column_names import sql_key
from barnabas.spark.errors import WarehouseError
from barnabas.spark.table_store import Location, StoredFile

QUERY_ID, EPOCH_ID = "spark.sql.streaming.queryId", "spark.sql.streaming.epochId"
"""The commit properties with the query id and the batch id. Iceberg's own streaming sink uses the same names."""


@dataclass(frozen=True, slots=True)
class BatchFile:
    """A file of rows that a task has written; `path` is the path that the table references."""

    path: str
    size_bytes: int
    records: int


class BatchTable(Protocol):
    """One version of a table. `append` succeeds only if the table still has this version."""

    columns: pa.Schema

    @property
    def name(self) -> str: ...

    @property
    def exists(self) -> bool: ...

    @property
    def table_id(self) -> str: ...

    @property
    def known_columns(self) -> tuple[str, ...]: ...

    def location(self) -> Location: ...

    def arrow_schema(self) -> pa.Schema: ...

    def whole_schema(self) -> pa.Schema: ...

    def data_files(self, columns: Collection[str], /) -> list[StoredFile]: ...

    def rows_of_file(self, file: StoredFile, schema: pa.Schema, /) -> Iterator[pa.RecordBatch]: ...

    def has_batch(self, query_id: str, batch_id: int, /) -> bool: ...

    def append(
        self,
        files: Sequence[BatchFile],
        load_id: str,
        query_id: str,
        batch_id: int,
        replaced: Sequence[StoredFile] = (),
        bounded: Collection[str] = (),
        /,
    ) -> int: ...


def check_names(table: str, columns: Iterable[str], known: Iterable[str]) -> None:
    """Check that SQL, which ignores case, can distinguish new columns of a batch from the columns of the table.

    :raises WarehouseError: A new column differs from a column of the table only in case.
    """
    by_key = {sql_key(name): name for name in known}
    names = set(by_key.values())
    for name in columns:
        other = by_key.get(sql_key(name))
        if name not in names and other is not None:
            raise WarehouseError(
                f"table {table} has the column {other}, which SQL cannot distinguish from {name}: select it as "
                f"{other}, or under a new name"
            )


def check_fields_fit(table: str, columns: pa.Schema, target: pa.Schema) -> pa.Schema:
    """Return the schema to write a batch with, in which each field of a struct has a column.

    :raises WarehouseError: A field has none: the struct's column has another type, or is the value of a map.
    """
    for field in columns:
        lost = _without_place(field.type, target.field(field.name).type, field.name)
        if lost is not None:
            raise WarehouseError(
                f"table {table} cannot store the field {lost}, because the column {field.name} has another type: "
                "select it under another name"
            )
    return target


def _without_place(kind: pa.DataType, target: pa.DataType, path: str) -> str | None:
    """Return the path of a field that `kind` has and `target` lacks; None if there is none."""
    if isinstance(kind, pa.StructType):
        inner = {each.name: each.type for each in target} if isinstance(target, pa.StructType) else {}
        parts = [
            _without_place(each.type, inner[each.name], f"{path}.{each.name}")
            if each.name in inner
            else f"{path}.{each.name}"
            for each in kind
        ]
        return next((part for part in parts if part is not None), None)
    if isinstance(kind, (pa.ListType, pa.LargeListType)) and isinstance(target, (pa.ListType, pa.LargeListType)):
        return _without_place(kind.value_type, target.value_type, f"{path}.element")
    if isinstance(kind, pa.MapType) and isinstance(target, pa.MapType):
        return _without_place(kind.item_type, target.item_type, f"{path}.value")
    return None


def nullable(field: pa.Field, known: pa.Field | None = None) -> pa.Field:
    """Return a column in which all fields may be null, except fields that the table requires.

    Spark declares most struct fields as never null. A table with such columns could not accept a batch without these
    fields.

    :param known: The column of the table; None for a new column.
    """
    return field.with_type(_nullable(field.type, None if known is None else known.type)).with_nullable(
        known is None or known.nullable
    )


def _nullable(kind: pa.DataType, known: pa.DataType | None) -> pa.DataType:
    if isinstance(kind, pa.StructType):
        inner = {each.name: each for each in known} if isinstance(known, pa.StructType) else {}
        return pa.struct([nullable(each, inner.get(each.name)) for each in kind])
    if isinstance(kind, (pa.ListType, pa.LargeListType)):
        is_list = isinstance(known, (pa.ListType, pa.LargeListType))
        make = pa.large_list if isinstance(kind, pa.LargeListType) else pa.list_
        return make(nullable(kind.value_field, known.value_field if known is not None and is_list else None))
    if isinstance(kind, pa.MapType):
        item = nullable(kind.item_field, known.item_field if isinstance(known, pa.MapType) else None)
        return pa.map_(kind.key_field, item)
    return kind
