"""A Delta table that `append_batch` writes to, with one version per micro-batch.

A version adds the files of a batch, and an application transaction (`txn`) of the stream with the batch id. Checkpoints
of the log keep these transactions. RESTORE removes rows but not transactions, so a batch that was rolled back is not
appended again.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from typing import Any
from urllib.parse import quote

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema
from deltalake.transaction import AddAction, Transaction, create_table_with_add_actions

from barnabas.clock import SYSTEM_CLOCK
from barnabas.spark.batch_table import EPOCH_ID, QUERY_ID, BatchFile, check_fields_fit, check_names
from barnabas.spark.delta_schema import obstacle_to_rows
from barnabas.spark.delta_state_files import remove_actions, statistics_of
from barnabas.spark.delta_storage_options import storage_options
from barnabas.spark.delta_warehouse import DeltaBase, DeltaWarehouse, path_of
from barnabas.spark.errors import WarehouseError
from barnabas.spark.ledger import LOAD_ID
from barnabas.spark.library_errors import library_errors
from barnabas.spark.table_store import StoredFile

COLUMNS_OF = "barnabas.columns-of"
"""The commit property of a version that adds columns. Its value is the id of the append that needs the columns."""
MADE_BY_A_STREAM = "made by barnabas.spark.append_batch, which keeps at least its newest 100 versions"
"""The description of a table that `append_batch` created. Only the logs of such tables are cleaned up."""


class DeltaBatchTable(DeltaBase):
    """The current version of a table. `append` succeeds only if the table still has this version."""

    def __init__(self, warehouse: DeltaWarehouse, name: str, columns: pa.Schema) -> None:
        base = warehouse.current_table(name)
        super().__init__(base.name, base.location(), base.find())
        self.columns = columns
        if self._table is not None and self._table.metadata().partition_columns:
            raise WarehouseError(f"table {self.name} is partitioned; streams need an unpartitioned table")

    @property
    def table_id(self) -> str:
        """The id in the table's metadata."""
        return str(self.table.metadata().id)

    @property
    def known_columns(self) -> tuple[str, ...]:
        """The columns of the table before the batch."""
        return tuple(field.name for field in self.table.schema().fields)

    def arrow_schema(self) -> pa.Schema:
        """Return the columns of the batches, with the types of the table's files.

        :raises WarehouseError: Delta lacks the type, or a column name differs from a table column only in case.
        """
        with library_errors(f"table {self.name}: Delta has no such column"):
            own = pa.schema(Schema.from_arrow(self.columns).to_arrow())
        if self._table is None:
            return pa.schema([field.with_nullable(True) for field in own])
        target = pa.schema(self._table.schema().to_arrow())
        check_names(self.name, self.columns.names, target.names)
        obstacle = obstacle_to_rows(self._schema, self._table.metadata().configuration, self.columns.names)
        if obstacle is not None:
            raise WarehouseError(f"table {self.name} {obstacle}")
        written = pa.schema([grown_field(target, field).remove_metadata() for field in own])
        return check_fields_fit(self.name, own, written)

    def whole_schema(self) -> pa.Schema:
        """Return all columns of the table after the batch.

        :raises WarehouseError: Delta lacks the type, or a column name differs from a table column only in case.
        """
        written = self.arrow_schema()
        if self._table is None:
            return written
        target = pa.schema(self._table.schema().to_arrow())
        kept = [written.field(field.name) if field.name in written.names else field for field in target]
        new = [field for field in written if field.name not in target.names]
        return pa.schema([*kept, *new]).remove_metadata()

    def has_batch(self, query_id: str, batch_id: int) -> bool:
        """Return whether the table has this batch of a query, or a later one."""
        last = None if self._table is None else self._table.transaction_version(_application(query_id))
        return last is not None and last >= batch_id

    def append(
        self,
        files: Sequence[BatchFile],
        load_id: str,
        query_id: str,
        batch_id: int,
        replaced: Sequence[StoredFile] = (),
        bounded: Collection[str] = (),
    ) -> int:
        """Add the files of a batch in one version, and return the number of the version.

        :param replaced: Files that the same version removes.
        :param bounded: The columns whose bounds the version has.
        :raises LoadConflictError: Another writer has changed the table.
        :raises WarehouseError: The commit failed, and the table is unchanged.
        """
        committing = CommitProperties(
            custom_metadata={LOAD_ID: load_id, QUERY_ID: query_id, EPOCH_ID: str(batch_id)},
            max_commit_retries=0,
            app_transactions=[Transaction(_application(query_id), batch_id)],
        )
        adds = [self._added(file, bounded) for file in files]
        table = self._table
        if table is None:
            return self._written(partial(self._make, adds, committing), load_id)
        self._add_columns(table, load_id)
        actions = [*adds, *remove_actions(replaced, SYSTEM_CLOCK.time_ms())]
        version = self._written(partial(self._append_to, table, actions, committing), load_id)
        if table.metadata().description == MADE_BY_A_STREAM:
            self._delete_old_versions(version, None)
        return version

    def _add_columns(self, table: DeltaTable, load_id: str) -> None:
        """Add the columns to the table that only the batch has.

        They are added in a version before the rows: delta-rs cannot add both at once to an unpartitioned table. After a
        kill between the two versions, the new columns are null in all rows.

        :raises LoadConflictError: Another writer has changed the table.
        """
        before = pa.schema(table.schema().to_arrow())
        after = self.arrow_schema()
        new = [each for each in after if each.name not in before.names or before.field(each.name).type != each.type]
        if not new:
            return
        committing = CommitProperties(custom_metadata={COLUMNS_OF: load_id}, max_commit_retries=0)
        failing = library_errors(f"table {self.name}: cannot add {', '.join(field.name for field in new)}")
        with failing, self._no_other_writer():
            table.alter.add_columns(list(Schema.from_arrow(pa.schema(new)).fields), commit_properties=committing)

    def _append_to(self, table: DeltaTable, actions: list[Any], committing: CommitProperties) -> int:
        version = int(table.version()) + 1
        table.create_write_transaction(actions, "append", table.schema(), [], commit_properties=committing)
        return version

    def _make(self, adds: list[AddAction], committing: CommitProperties) -> int:
        folder = self._location.local_folder
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
        create_table_with_add_actions(
            path_of(self._location),
            Schema.from_arrow(self.columns),
            adds,
            mode="error",
            partition_by=[],
            name=self.name,
            description=MADE_BY_A_STREAM,
            storage_options=storage_options(self._location.properties),
            commit_properties=committing,
        )
        return 0

    def _added(self, file: BatchFile, bounded: Collection[str]) -> AddAction:
        return AddAction(
            path=quote(file.path.removeprefix(f"{self._location.uri}/"), safe="/=-_.~"),
            size=file.size_bytes,
            partition_values={},
            modification_time=SYSTEM_CLOCK.time_ms(),
            data_change=True,
            stats=statistics_of(file.path, file.records, bounded, self._location.properties),
        )


def _application(query_id: str) -> str:
    """Return the application id under which a transaction stores the last batch id of a stream."""
    return f"barnabas/stream/{query_id}"


def grown_field(target: pa.Schema, field: pa.Field) -> pa.Field:
    """Return a table column after a batch was added: a new column, or a struct with new fields.

    Other types do not change, as in tables of loads: Delta tables widen no types, and delta-rs cannot read older files
    of a map whose structs have new fields.
    """
    if field.name not in target.names:
        return field.with_nullable(True)
    known = target.field(field.name)
    return known.with_type(_grown(known.type, field.type))


def _grown(known: pa.DataType, batch: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(known) and pa.types.is_struct(batch):
        names = {each.name for each in known}
        kept = [each.with_type(_grown(each.type, _type_in(batch, each.name) or each.type)) for each in known]
        return pa.struct([*kept, *(each for each in batch if each.name not in names)])
    if pa.types.is_list(known) and pa.types.is_list(batch):
        return pa.list_(known.value_field.with_type(_grown(known.value_type, batch.value_type)))
    return known


def _type_in(struct: pa.StructType, name: str) -> pa.DataType | None:
    index = struct.get_field_index(name)
    return None if index < 0 else struct.field(index).type
