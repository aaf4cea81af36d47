"""The memory of deleted keys: a side table with the last change of each key that a load or a stream deleted.

An older change that arrives late must not restore a deleted row. With the order of the deletion, the load knows that
the change is older. The side table `NAME__deleted` has the key columns, the position and the order of each deletion,
and the time at which the load wrote it. It forgets deletions after the delete memory (7 days by default). The same is
true for the batches of a stream (`merge_into`), whose side table has no positions.

The side table has a commit of its own, before the commit of the load:

- A kill before the first commit leaves both tables unchanged.
- A kill between the two commits leaves deletions that the state table does not have yet. The next load reads the same
  changes again. A change that equals the remembered deletion is applied.
- Of two loads at once, one fails with a conflict, in either table.

A side table that an earlier state table of this name has left is emptied by the first load.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from barnabas.clock import SYSTEM_CLOCK, Clock
from barnabas.errors import ConfigurationError
from barnabas.formats.column_names import column_names
from barnabas.formats.upsert_rules import CHANGE_ORDER, NEVER, NO_ENVELOPE
from barnabas.spark.batch_table import BatchFile, BatchTable
from barnabas.spark.change_files import DELETED, MergeColumns
from barnabas.spark.data_files import DataFile
from barnabas.spark.ledger import RECORDS
from barnabas.spark.load_folder import claim_folder, remove_leftovers
from barnabas.spark.state_merge import ChangeRows, MergeBase, MergeTarget, StateMerge
from barnabas.spark.table_names import DELETED_KEYS, DELETED_KEYS_SUFFIX
from barnabas.spark.table_shape import TableShape
from barnabas.spark.table_store import Location, StoredFile, StoredTable, TableStore

DELETED_AT = "deleted_at"
_TIME = pa.timestamp("us", tz="UTC")


class SideTable(MergeBase, Protocol):
    """One version of a side table."""

    @property
    def name(self) -> str: ...

    @property
    def exists(self) -> bool: ...

    def location(self) -> Location: ...


class DeletionMerge:
    """Merges the deletions of one load or batch into a side table.

    :param memory: the age at which deletions are forgotten.
    :param is_left_over: whether the side table has the deletions of an earlier table of the same name.
    """

    def __init__(self, table: SideTable, memory: timedelta, clock: Clock, *, is_left_over: bool) -> None:
        self._table = table
        self._now = datetime.fromtimestamp(clock.time_s(), UTC)
        self._forgotten = self._now - memory
        self._is_left_over = is_left_over

    @property
    def remembered(self) -> SideTable | None:
        """The deletions of earlier loads; None if there are none, or if they belong to an earlier table."""
        return self._table if self._table.exists and not self._is_left_over else None

    def run(
        self,
        deletions: pa.Table,
        columns: MergeColumns,
        deleted_at: str,
        load_id: str,
        commit: Callable[[Sequence[DataFile], Sequence[StoredFile]], object],
    ) -> None:
        """Remember deletions, and forget old ones.

        :param deletions: all columns of the side table without the time.
        :param columns: the columns of the side table.
        :param deleted_at: the column with the time.
        :param load_id: the id of the load, or of the attempt to merge a batch.
        :param commit: commits new files and removes others. It is not called if there is nothing to change.
        :raises LoadConflictError: another writer has committed meanwhile.
        :raises WarehouseError: the commit failed, and the side table is unchanged.
        """
        expired = self._expired_files(deleted_at)
        if not deletions.num_rows and not expired:
            return
        rows = deletions.append_column(
            deleted_at, pa.repeat(pa.scalar(self._now, _TIME), deletions.num_rows)
        ).append_column(DELETED, pa.repeat(pa.scalar(False), deletions.num_rows))
        location = self._table.location()
        uri = f"{location.uri}/data/{load_id}"
        folder = claim_folder(location, load_id, self._table.name)
        try:
            target = MergeTarget(
                None if self._is_left_over else self._table,
                columns,
                uri,
                dict(location.properties),
                kept=pc.field(deleted_at) >= pa.scalar(self._forgotten, _TIME),
            )
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

    def _expired_files(self, deleted_at: str) -> list[StoredFile]:
        """Return the files that have only forgotten deletions, or those of an earlier table."""
        if not self._table.exists:
            return []
        files = self._table.data_files([deleted_at])
        if self._is_left_over:
            return files
        return [
            file
            for file in files
            if deleted_at in file.bounds and _time_of(file.bounds[deleted_at][1]) < self._forgotten
        ]


class DeletedKeys:
    """The side table of a state table during one load.

    :param base: the state table.
    :param shape: the shape of the state table's rows.
    :param memory: the age at which deletions are forgotten.
    :raises ConfigurationError: the side table is another table.
    :raises WarehouseError: the side table cannot be read.
    """

    def __init__(
        self, store: TableStore, table_name: str, base: StoredTable, memory: timedelta, load_id: str, clock: Clock
    ) -> None:
        self._name = table_name + DELETED_KEYS_SUFFIX
        self._table = store.begin(self._name)
        if self._table.exists and self._table.format != DELETED_KEYS:
            raise ConfigurationError(
                f"table {self._table.name} is not the memory of deleted keys of {base.name}: rename it, or load into "
                "another table"
            )
        self._merge = DeletionMerge(self._table, memory, clock, is_left_over=not base.exists)
        self._load_id = load_id
        folder = self._table.location().local_folder
        if folder is not None:
            remove_leftovers(folder, partial(store.committed_loads, self._name))

    @property
    def remembered(self) -> SideTable | None:
        """The deletions of earlier loads; None if there are none, or if they belong to an earlier table."""
        return self._merge.remembered

    def commit(self, deletions: pa.Table, shape: TableShape, properties: Mapping[str, str]) -> None:
        """Remember deletions, and forget old ones.

        :param deletions: key columns, position and order of the deletions.
        :param properties: the properties of the load's commit.
        :raises LoadConflictError: another writer has committed meanwhile.
        :raises WarehouseError: the commit failed, and the side table is unchanged.
        """
        own = _shape_of(shape, self._table.shape())

        def commit(files: Sequence[DataFile], replaced: Sequence[StoredFile]) -> object:
            return self._table.commit(files, {**properties, RECORDS: str(deletions.num_rows)}, own, replaced)

        self._merge.run(deletions, MergeColumns.of(own), _time_column(shape), self._load_id, commit)


class BatchDeletedKeys:
    """The side table of a table that `merge_into` changes, during one batch.

    :param open_table: opens a table for batches of the given columns.
    :param name: the name of the table whose keys are deleted.
    :param columns: its columns.
    :param is_new: whether that table does not exist yet.
    :raises ConfigurationError: the side table is another table.
    :raises WarehouseError: the side table cannot be read.
    """

    def __init__(
        self,
        store: TableStore,
        open_table: Callable[[str, pa.Schema], BatchTable],
        name: str,
        columns: MergeColumns,
        memory: timedelta,
        *,
        is_new: bool,
    ) -> None:
        own = columns.narrow
        self._deleted_at = column_names([DELETED_AT], own.names)[DELETED_AT]
        schema = own.append(pa.field(self._deleted_at, _TIME))
        self._table = open_table(name + DELETED_KEYS_SUFFIX, schema)
        whole = self._table.whole_schema()
        if set(whole.names) != set(schema.names):
            raise ConfigurationError(
                f"table {self._table.name} is not the memory of deleted keys of {name}: rename it, or merge into "
                "another table"
            )
        self._columns = replace(columns, schema=whole)
        self._merge = DeletionMerge(self._table, memory, SYSTEM_CLOCK, is_left_over=is_new)
        folder = self._table.location().local_folder
        if folder is not None:
            remove_leftovers(folder, partial(store.committed_loads, name + DELETED_KEYS_SUFFIX))

    @property
    def remembered(self) -> SideTable | None:
        """The deletions of earlier batches; None if there are none, or if they belong to an earlier table."""
        return self._merge.remembered

    def commit(self, deletions: pa.Table, load_id: str, query_id: str, batch_id: int) -> None:
        """Remember the deletions of a batch, and forget old ones.

        :param deletions: key columns and order of the deletions.
        :raises LoadConflictError: another writer has committed meanwhile.
        :raises WarehouseError: the commit failed, and the side table is unchanged.
        """

        def commit(files: Sequence[DataFile], replaced: Sequence[StoredFile]) -> object:
            made = [BatchFile(file.path, file.size_bytes, file.records) for file in files]
            bounded = (*self._columns.keys, self._deleted_at)
            return self._table.append(made, load_id, query_id, batch_id, replaced, bounded)

        self._merge.run(deletions, self._columns, self._deleted_at, load_id, commit)


def _time_of(bound: object) -> datetime:
    """Return a bound as a time: Iceberg has microseconds."""
    return bound if isinstance(bound, datetime) else pa.scalar(bound, _TIME).as_py()


def _columns_of(state: TableShape) -> dict[str, str]:
    """Return the column of each field that the side table shares with the state table."""
    assert state.upsert is not None, "the table is a state table"
    names = [*state.upsert.keys, *([CHANGE_ORDER] if state.upsert.has_order_column else [])]
    return {name: state.columns[name] for name in names}


def _time_column(state: TableShape) -> str:
    """Return the column with the time of the load: `deleted_at`, or another name beside a key column of this name."""
    return column_names([DELETED_AT], _columns_of(state).values())[DELETED_AT]


def _shape_of(state: TableShape, known: TableShape | None) -> TableShape:
    """Return the shape of the side table, from the shape of the state table."""
    rules, fields = state.upsert, state.fields
    assert rules is not None, "the table is a state table"
    assert fields is not None, "the values are decoded"
    columns, deleted_at = _columns_of(state), _time_column(state)
    return TableShape(
        DELETED_KEYS,
        {**{name: fields[name] for name in columns}, deleted_at: "timestamp"},
        {**columns, deleted_at: deleted_at},
        takes_new_fields=False,
        widens_types=state.widens_types if known is None else known.widens_types,
        layout=state.layout,
        upsert=replace(rules, op=None, deletes=(NEVER,), envelope=NO_ENVELOPE),
    )
