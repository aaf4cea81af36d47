"""The memory of deleted keys: a side table with the last change of each key that a load or a stream deleted.

An older change that arrives late must not restore a deleted row. With the order of the deletion, the load knows that
the change is older. The side table `NAME__deleted` has the key columns, the position and the order of each deletion,
the time at which the load wrote it, and the id of the table. It forgets deletions after the delete memory (7 days by
default). The same is true for the batches of a stream (`merge_into`), whose side table has no positions.

The side table has a commit of its own, before the commit of the load:

- A kill before the first commit leaves both tables unchanged.
- A kill between the two commits leaves deletions that the state table does not have yet. The next load reads the same
  changes again. A change that equals the remembered deletion is applied.
- Of two loads at once, one fails with a conflict, in either table.

A table that was dropped and created again has another id, so the deletions of the earlier table have no effect.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from barnabas.clock import SYSTEM_CLOCK, Clock
from barnabas.errors import ConfigurationError
from barnabas.formats.column_names import column_names
from barnabas.formats.column_types import without_large_types
from barnabas.formats.upsert_rules import CHANGE_ORDER, NEVER, NO_ENVELOPE
from barnabas.spark.batch_table import BatchFile, BatchTable
from barnabas.spark.change_files import DELETED, MergeColumns
from barnabas.spark.data_files import DataFile
from barnabas.spark.ledger import RECORDS
from barnabas.spark.library_errors import library_errors
from barnabas.spark.load_folder import claim_folder, remove_leftovers
from barnabas.spark.state_merge import ChangeRows, MergeBase, MergeTarget, StateMerge
from barnabas.spark.table_names import DELETED_KEYS, DELETED_KEYS_SUFFIX
from barnabas.spark.table_shape import TableShape
from barnabas.spark.table_store import Location, StoredFile, StoredTable, TableStore

DELETED_AT, TABLE_ID = "deleted_at", "table_id"
_TIME = pa.timestamp("us", tz="UTC")
_EARLIEST = datetime.min.replace(tzinfo=UTC)
_WIDENED = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)


class SideTable(MergeBase, Protocol):
    """One version of a side table."""

    @property
    def name(self) -> str: ...

    @property
    def exists(self) -> bool: ...

    def location(self) -> Location: ...


@dataclass(frozen=True, slots=True)
class SideColumns:
    """The columns of a side table.

    :param merged: all columns. Its keys are the key columns and the id of the table.
    :param deleted_at: the column with the time of the commit.
    :param table_id: the column with the id of the table whose keys were deleted.
    """

    merged: MergeColumns
    deleted_at: str
    table_id: str


@dataclass(frozen=True, slots=True)
class _Remembered:
    """The deletions of one table: the rows of a side table that have its id."""

    table: SideTable
    column: str
    table_id: str

    def data_files(self, columns: Collection[str]) -> list[StoredFile]:
        return self.table.data_files(columns)

    def rows_of_file(self, file: StoredFile, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        for batch in self.table.rows_of_file(file, schema.append(pa.field(self.column, pa.string()))):
            yield batch.filter(pc.equal(batch.column(self.column), self.table_id)).select(schema.names)


class DeletionMerge:
    """Merges the deletions of one load or batch into a side table.

    :param columns: the columns of the side table.
    :param table_id: the id of the table whose keys are deleted.
    :param memory: the age at which deletions are forgotten.
    """

    def __init__(self, table: SideTable, columns: SideColumns, table_id: str, memory: timedelta, clock: Clock) -> None:
        self._table = table
        self._columns = columns
        self._table_id = table_id
        self._now = datetime.fromtimestamp(clock.time_s(), UTC)
        self._forgotten = _EARLIEST if memory >= self._now - _EARLIEST else self._now - memory

    @property
    def remembered(self) -> MergeBase | None:
        """The deletions of earlier loads; None if there are none."""
        return _Remembered(self._table, self._columns.table_id, self._table_id) if self._table.exists else None

    def run(
        self,
        deletions: pa.Table,
        load_id: str,
        commit: Callable[[Sequence[DataFile], Sequence[StoredFile]], object],
    ) -> None:
        """Remember deletions, and forget old ones.

        :param deletions: all columns of the side table without the time and the id.
        :param load_id: the id of the load, or of the attempt to merge a batch.
        :param commit: commits new files and removes others. It is not called if there is nothing to change.
        :raises LoadConflictError: another writer has committed meanwhile.
        :raises WarehouseError: the commit failed, and the side table is unchanged.
        """
        expired = self._expired_files()
        if not deletions.num_rows and not expired:
            return
        rows = deletions
        for name, value in (
            (self._columns.deleted_at, pa.scalar(self._now, _TIME)),
            (self._columns.table_id, pa.scalar(self._table_id)),
            (DELETED, pa.scalar(False)),
        ):
            rows = rows.append_column(name, pa.repeat(value, rows.num_rows))
        location = self._table.location()
        uri = f"{location.uri}/data/{load_id}"
        folder = claim_folder(location, load_id, self._table.name)
        try:
            kept = pc.field(self._columns.deleted_at) >= pa.scalar(self._forgotten, _TIME)
            target = MergeTarget(self._table, self._columns.merged, uri, dict(location.properties), kept=kept)
            with library_errors(f"table {self._table.name} is unchanged: cannot merge the deleted keys"):
                merged = StateMerge(target, ChangeRows(rows)).run()
            folder.keep_only(file.path for file in merged.files)
        except BaseException:
            folder.discard()
            raise
        replaced = {file.path: file for file in (*merged.replaced, *expired)}
        try:
            commit(merged.files, list(replaced.values()))
        except BaseException as error:
            folder.give_up_after(error)
            raise
        folder.release()

    def _expired_files(self) -> list[StoredFile]:
        """Return the files that have only forgotten deletions."""
        column = self._columns.deleted_at
        files = self._table.data_files([column]) if self._table.exists else []
        return [file for file in files if column in file.bounds and _time_of(file.bounds[column][1]) < self._forgotten]


class DeletedKeys:
    """The side table of a state table during one load.

    :param base: the state table.
    :param shape: the shape of the state table's rows.
    :param memory: the age at which deletions are forgotten.
    :raises ConfigurationError: the side table is another table, or has keys of other types.
    :raises WarehouseError: the side table cannot be read.
    """

    def __init__(
        self,
        store: TableStore,
        table_name: str,
        base: StoredTable,
        shape: TableShape,
        memory: timedelta,
        load_id: str,
        clock: Clock,
    ) -> None:
        self._name = table_name + DELETED_KEYS_SUFFIX
        self._table = store.begin(self._name)
        if self._table.exists and self._table.format != DELETED_KEYS:
            raise _another_table(self._table.name, base.name, "load into another table, or use --delete-memory 0")
        self._load_id = load_id
        self._memory = memory
        self._clock = clock
        known = self._table.shape()
        if known is not None:
            widens = self._table.widens_types
            _check_types(self._table.name, known.state_schema(), _shape_of(shape, known).state_schema(), widens=widens)
        self.remembered = self._merge(shape).remembered
        folder = self._table.location().local_folder
        if folder is not None:
            remove_leftovers(folder, partial(store.committed_loads, self._name))

    def _merge(self, shape: TableShape) -> DeletionMerge:
        own = _shape_of(shape, self._table.shape())
        deleted_at, table_id = _further_columns(shape)
        columns = SideColumns(MergeColumns.of(own), deleted_at, table_id)
        return DeletionMerge(self._table, columns, shape.table_id, self._memory, self._clock)

    def commit(self, deletions: pa.Table, shape: TableShape, properties: Mapping[str, str]) -> None:
        """Remember deletions, and forget old ones.

        :param deletions: key columns, position and order of the deletions.
        :param shape: the shape of the state table's rows after the load.
        :param properties: the properties of the load's commit.
        :raises LoadConflictError: another writer has committed meanwhile.
        :raises WarehouseError: the commit failed, and the side table is unchanged.
        """
        own = _shape_of(shape, self._table.shape())

        def commit(files: Sequence[DataFile], replaced: Sequence[StoredFile]) -> object:
            return self._table.commit(files, {**properties, RECORDS: str(deletions.num_rows)}, own, replaced)

        self._merge(shape).run(deletions, self._load_id, commit)


class BatchDeletedKeys:
    """The side table of a table that `merge_into` changes, during one batch.

    :param open_table: opens a table for batches of the given columns.
    :param base: the table whose keys are deleted; it exists.
    :param name: its name, as the caller of `merge_into` wrote it.
    :param columns: its columns.
    :param memory: the age at which deletions are forgotten; None to remember and forget none in this batch.
    :raises ConfigurationError: the side table is another table, or has other keys.
    :raises WarehouseError: the side table cannot be read.
    """

    def __init__(
        self,
        store: TableStore,
        open_table: Callable[[str, pa.Schema], BatchTable],
        base: BatchTable,
        name: str,
        columns: MergeColumns,
        memory: timedelta | None,
    ) -> None:
        own = columns.narrow
        names = column_names([DELETED_AT, TABLE_ID], own.names)
        deleted_at, table_id = names[DELETED_AT], names[TABLE_ID]
        schema = own.append(pa.field(deleted_at, _TIME)).append(pa.field(table_id, pa.string()))
        self._table = open_table(name + DELETED_KEYS_SUFFIX, schema)
        self._remembers = memory is not None
        if self._table.exists:
            known = self._table.known_columns
            if {deleted_at, table_id} - set(known):
                raise _another_table(self._table.name, base.name, "merge into another table, or use delete_memory=0")
            if set(known) != set(schema.names):
                raise ConfigurationError(
                    f"table {self._table.name} has the columns {', '.join(known)}, but the deleted keys of this stream "
                    f"need {', '.join(schema.names)}, because the keys or the order are others: drop it to forget the "
                    "earlier deleted keys"
                )
            whole = self._table.whole_schema()
            _check_types(self._table.name, whole, schema, widens=False)
            schema = whole
            folder = self._table.location().local_folder
            if folder is not None and self._remembers:
                remove_leftovers(folder, partial(store.committed_loads, name + DELETED_KEYS_SUFFIX))
        merged = replace(columns, schema=schema, keys=(*columns.keys, table_id))
        self._columns = SideColumns(merged, deleted_at, table_id)
        self._merge = DeletionMerge(self._table, self._columns, base.table_id, memory or timedelta.max, SYSTEM_CLOCK)

    @property
    def remembered(self) -> MergeBase | None:
        """The deletions of earlier batches; None if there are none."""
        return self._merge.remembered

    def remember(self, deletions: pa.Table, load_id: str, query_id: str, batch_id: int) -> None:
        """Commit the deletions of a batch, and forget old ones.

        :param deletions: key columns and order of the deletions.
        :raises LoadConflictError: another writer has committed meanwhile.
        :raises WarehouseError: the commit failed, and the side table is unchanged.
        """

        def commit(files: Sequence[DataFile], replaced: Sequence[StoredFile]) -> object:
            made = [BatchFile(file.path, file.size_bytes, file.records) for file in files]
            bounded = (*self._columns.merged.keys, self._columns.deleted_at)
            return self._table.append(made, load_id, query_id, batch_id, replaced, bounded)

        if self._remembers:
            self._merge.run(deletions, load_id, commit)


def _another_table(name: str, of: str, remedy: str) -> ConfigurationError:
    return ConfigurationError(f"table {name} is not the memory of deleted keys of {of}: rename it, {remedy}")


def _check_types(table: str, known: pa.Schema, wanted: pa.Schema, *, widens: bool) -> None:
    """Check that the columns of a side table can have the values of deletions.

    :param widens: whether the commit may widen the columns of the side table.
    :raises ConfigurationError: a column has another type.
    """
    for name in known.names:
        if name in wanted.names:
            there, own = (without_large_types(pa.nulls(0, each.field(name).type)).type for each in (known, wanted))
            is_widened = widens and any(is_kind(there) and is_kind(own) for is_kind in _WIDENED)
            if there != own and not is_widened:
                raise ConfigurationError(
                    f"table {table} has {there} in the column {name}, but the deleted keys need {own}, perhaps because "
                    "their table was dropped and created again: drop it to forget the earlier deleted keys"
                )


def _time_of(bound: object) -> datetime:
    """Return a bound as a time: Iceberg has microseconds."""
    return bound if isinstance(bound, datetime) else pa.scalar(bound, _TIME).as_py()


def _columns_of(state: TableShape) -> dict[str, str]:
    """Return the column of each field that the side table shares with the state table."""
    assert state.upsert is not None, "the table is a state table"
    names = [*state.upsert.keys, *([CHANGE_ORDER] if state.upsert.has_order_column else [])]
    return {name: state.columns[name] for name in names}


def _further_columns(state: TableShape) -> tuple[str, str]:
    """Return the columns with the time of the load and the id of the table.

    They are `deleted_at` and `table_id`, or have other names beside key columns of these names.
    """
    names = column_names([DELETED_AT, TABLE_ID], _columns_of(state).values())
    return names[DELETED_AT], names[TABLE_ID]


def _shape_of(state: TableShape, known: TableShape | None) -> TableShape:
    """Return the shape of the side table, from the shape of the state table."""
    rules, fields = state.upsert, state.fields
    assert rules is not None, "the table is a state table"
    assert fields is not None, "the values are decoded"
    columns, (deleted_at, table_id) = _columns_of(state), _further_columns(state)
    return TableShape(
        DELETED_KEYS,
        {**{name: fields[name] for name in columns}, deleted_at: "timestamp", table_id: "string"},
        {**columns, deleted_at: deleted_at, table_id: table_id},
        takes_new_fields=False,
        widens_types=state.widens_types if known is None else known.widens_types,
        layout=state.layout,
        upsert=replace(rules, keys=(*rules.keys, table_id), op=None, deletes=(NEVER,), envelope=NO_ENVELOPE),
    )
