"""A Delta table that takes the batches of streams: which it has, and one version for each.

A version adds the files of a batch and a transaction (`txn`) of the stream with the batch's number: what Delta has for
this, and what checkpoints of its log keep for ever. `RESTORE` takes rows back and leaves transactions as they are: a
batch that was taken back so does not come again.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from urllib.parse import quote

import pyarrow as pa
from deltalake import CommitProperties, Schema
from deltalake.transaction import AddAction, Transaction, create_table_with_add_actions

from barnabas.clock import SYSTEM_CLOCK
from barnabas.spark.delta_storage import storage_options
from barnabas.spark.delta_warehouse import FAILURES, DeltaBase, DeltaWarehouse, path_of, told_short
from barnabas.spark.errors import WarehouseError
from barnabas.spark.ledger import LOAD_ID
from barnabas.spark.streamed_batches import EPOCH_ID, QUERY_ID, BatchFile

MADE_BY_A_STREAM = "made by barnabas.spark.append_batch, which keeps at least its newest 100 versions"
"""The description of a table that is Barnabas' own: its log is bounded (delta_history.py)."""


class StreamedDeltaTable(DeltaBase):
    """A table as it is now; `append` succeeds only while it still is like that."""

    def __init__(self, warehouse: DeltaWarehouse, name: str, columns: pa.Schema) -> None:
        base = warehouse.look(name)
        super().__init__(base.name, base.location(), base.find())
        self.columns = columns
        if self._table is not None and self._table.metadata().partition_columns:
            raise WarehouseError(f"table {self.name} is partitioned, and a stream goes into one that is not")

    def arrow_schema(self) -> pa.Schema:
        """Return the columns of the batches, with the types that the table's files have.

        :raises WarehouseError: the table lacks one of them, or Delta has no such type.
        """
        try:
            schema = Schema.from_arrow(self.columns) if self._table is None else self._table.schema()
        except FAILURES as error:
            raise WarehouseError(f"table {self.name}: Delta has no such column: {told_short(error)}") from error
        target = pa.schema(schema.to_arrow())
        lacking = [name for name in self.columns.names if name not in target.names]
        if lacking:
            raise WarehouseError(f"table {self.name} has no column {', '.join(lacking)}: select those that it has")
        return pa.schema([_plain(target.field(name)) for name in self.columns.names])

    def has_batch(self, query_id: str, batch_id: int) -> bool:
        """Return whether the table has had this batch, or a later one, of a query."""
        last = None if self._table is None else self._table.transaction_version(_application(query_id))
        return last is not None and last >= batch_id

    def append(self, files: Sequence[BatchFile], load_id: str, query_id: str, batch_id: int) -> int:
        """Add the files of a batch in one version, and return its number.

        :raises LoadConflictError: the table is no longer as it was.
        :raises WarehouseError: it could not be done, and the table is as before.
        """
        committing = CommitProperties(
            custom_metadata={LOAD_ID: load_id, QUERY_ID: query_id, EPOCH_ID: str(batch_id)},
            max_commit_retries=0,
            app_transactions=[Transaction(_application(query_id), batch_id)],
        )
        adds = [self._added(file) for file in files]
        try:
            if self._table is None:
                self._make(adds, committing)
                return 0
            self._table.create_write_transaction(adds, "append", self._table.schema(), [], commit_properties=committing)
        except FAILURES as error:
            return self._find_out(load_id, error)
        version = int(self._table.version()) + 1
        if self._table.metadata().description == MADE_BY_A_STREAM:
            self._delete_old_versions(version, None)
        return version

    def _make(self, adds: list[AddAction], committing: CommitProperties) -> None:
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

    def _added(self, file: BatchFile) -> AddAction:
        return AddAction(
            path=quote(file.path.removeprefix(f"{self._location.uri}/"), safe="/=-_.~"),
            size=file.size_bytes,
            partition_values={},
            modification_time=SYSTEM_CLOCK.time_ms(),
            data_change=True,
            stats=json.dumps({"numRecords": file.records}),
        )


def _application(query_id: str) -> str:
    """Return the application whose transaction has the number of a stream's last batch."""
    return f"barnabas/stream/{query_id}"


def _plain(field: pa.Field) -> pa.Field:
    return pa.field(field.name, field.type, nullable=True)
