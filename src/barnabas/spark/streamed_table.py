"""An Iceberg table that takes the batches of streams: which it has, and one commit for each.

A commit adds the files of a batch and says whose they are, in one snapshot: the names `spark.sql.streaming.queryId` and
`spark.sql.streaming.epochId` are those that Iceberg's own sink for streams writes. Snapshots expire, so the table's
property `barnabas.batches` has the last batch of each query too, with the sequence number of its snapshot: after a
rollback to before that snapshot it no longer counts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyiceberg.exceptions import ValidationError
from pyiceberg.io.pyarrow import UnsupportedPyArrowTypeException, schema_to_pyarrow
from pyiceberg.table import Transaction
from pyiceberg.table.snapshots import ancestors_of

from barnabas.spark.errors import WarehouseError
from barnabas.spark.iceberg_files import add_files
from barnabas.spark.iceberg_history import BOUNDS, summary_of
from barnabas.spark.ledger import LOAD_ID
from barnabas.spark.streamed_batches import EPOCH_ID, QUERY_ID, BatchFile
from barnabas.spark.table_shape import TableShape
from barnabas.spark.warehouse import RETRIES, TableBase, Warehouse, set_what_commits_need

BATCHES = "barnabas.batches"
QUERIES_KEPT_MAX = 100


class StreamedTable(TableBase):
    """A table as it is now; `append` succeeds only while it still is like that."""

    def __init__(self, warehouse: Warehouse, name: str, columns: pa.Schema) -> None:
        table = warehouse.find_table(name)
        if table is not None:
            set_what_commits_need(table, is_own=False)
        super().__init__(warehouse.catalog, warehouse.identifier(name), table)
        self.columns = columns

    def arrow_schema(self) -> pa.Schema:
        """Return the columns of the batches, with the types that the table's files have.

        :raises WarehouseError: the table lacks one of them, or Iceberg has no such type.
        """
        made = self._create_transaction() if self._table is None else None
        schema = self.table.schema() if made is None else made.table_metadata.schema()
        target = schema_to_pyarrow(schema, include_field_ids=False)
        lacking = [name for name in self.columns.names if name not in target.names]
        if lacking:
            raise WarehouseError(f"table {self.name} has no column {', '.join(lacking)}: select those that it has")
        return pa.schema([target.field(name) for name in self.columns.names])

    def has_batch(self, query_id: str, batch_id: int) -> bool:
        """Return whether the table has this batch, or a later one, of a query."""
        snapshot = None if self._table is None else self._table.current_snapshot()
        if self._table is None or snapshot is None:
            return False
        oldest = snapshot
        for oldest in ancestors_of(snapshot, self._table.metadata):
            properties = summary_of(oldest)
            if properties.get(QUERY_ID) == query_id:
                return int(properties[EPOCH_ID]) >= batch_id
        kept = _kept(self._table.properties).get(query_id)
        if kept is None or oldest.sequence_number is None or kept["sequence"] >= oldest.sequence_number:
            return False
        return bool(kept["batch"] >= batch_id)

    def append(self, files: Sequence[BatchFile], load_id: str, query_id: str, batch_id: int) -> int:
        """Add the files of a batch in one snapshot, and return its id.

        :raises LoadConflictError: the table is no longer as it was.
        :raises WarehouseError: it could not be done, and the table is as before.
        """
        properties = {LOAD_ID: load_id, QUERY_ID: query_id, EPOCH_ID: str(batch_id)}

        def change(transaction: Transaction) -> None:
            try:
                add_files(transaction, [file.path for file in files], properties)
            except (ValueError, ValidationError) as error:
                raise WarehouseError(f"table {self.name} cannot have these rows: {error}") from error
            added = transaction.table_metadata.current_snapshot()
            assert added is not None, "files are added with a snapshot"
            kept = _kept(transaction.table_metadata.properties)
            kept.pop(query_id, None)
            last = dict(list(kept.items())[-QUERIES_KEPT_MAX + 1 :])
            last[query_id] = {"batch": batch_id, "sequence": added.sequence_number}
            transaction.set_properties({BATCHES: json.dumps(last)})

        return self._commit(change, properties, None)

    def _create_transaction(self, shape: TableShape | None = None) -> Transaction:  # that of loads
        self._catalog.create_namespace_if_not_exists(self._name[0])
        try:
            return self._catalog.create_table_transaction(
                self._name, self.columns, self._new_location, properties={RETRIES: "0", **BOUNDS}
            )
        except UnsupportedPyArrowTypeException as error:
            raise WarehouseError(f"table {self.name}: Iceberg has no such column: {error}") from error


def _kept(properties: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    kept: dict[str, dict[str, Any]] = json.loads(properties.get(BATCHES, "{}"))
    return kept
