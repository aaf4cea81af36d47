"""The interface of tables for `append_batch`: the batches of streams in a table of any format. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from barnabas.formats.column_names import sql_key
from barnabas.spark.errors import WarehouseError
from barnabas.spark.table_store import Location

QUERY_ID, EPOCH_ID = "spark.sql.streaming.queryId", "spark.sql.streaming.epochId"
"""In a commit: whose batch it is, and its number. The names are those that Iceberg's own sink for streams writes."""


@dataclass(frozen=True, slots=True)
class BatchFile:
    """A file of rows that a task has written; `path` as the table names it."""

    path: str
    size_bytes: int
    records: int


class BatchTable(Protocol):
    """A table as it was when it was looked at; `append` succeeds only while it still is like that."""

    columns: pa.Schema

    @property
    def name(self) -> str: ...

    def location(self) -> Location: ...

    def arrow_schema(self) -> pa.Schema: ...

    def has_batch(self, query_id: str, batch_id: int, /) -> bool: ...

    def append(self, files: Sequence[BatchFile], load_id: str, query_id: str, batch_id: int, /) -> int: ...


def check_names(table: str, columns: Iterable[str], known: Iterable[str]) -> None:
    """Check that new columns of a batch have names that SQL can tell from those of the table.

    :raises WarehouseError: one differs by the case of its letters alone.
    """
    by_key = {sql_key(name): name for name in known}
    names = set(by_key.values())
    for name in columns:
        other = by_key.get(sql_key(name))
        if name not in names and other is not None:
            raise WarehouseError(
                f"table {table} has the column {other}, which SQL cannot tell from {name}: select it under the name "
                f"{other}, or under one that no column has"
            )


def check_fields_fit(table: str, columns: pa.Schema, target: pa.Schema) -> pa.Schema:
    """Return the columns that a batch is written as, where each field of a struct has one there.

    :raises WarehouseError: one has none, as another field of the struct keeps its type or maps get no fields.
    """
    for field in columns:
        lost = _without_place(field.type, target.field(field.name).type, field.name)
        if lost is not None:
            raise WarehouseError(
                f"table {table} cannot have the field {lost}, as the column {field.name} has another type there: "
                "select it under another name"
            )
    return target


def _without_place(kind: pa.DataType, target: pa.DataType, path: str) -> str | None:
    """Return the path of a field that a type has and the target has not."""
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
    """Return a column, and all parts of it, as one that may be null; what is known to be strict stays so.

    Spark says of most parts of structs that they are never null. A table could then take no batch that lacks them.

    :param known: the column of the table, where it has one.
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
