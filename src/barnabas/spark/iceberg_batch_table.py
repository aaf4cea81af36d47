"""An Iceberg table that `append_batch` writes to, with one commit per micro-batch.

A commit adds the files of a batch, and the query id and batch id as snapshot properties. Their names,
`spark.sql.streaming.queryId` and `spark.sql.streaming.epochId`, are those of Iceberg's own streaming sink. Snapshots
expire, so the table property `barnabas.batches` also has the last batch of each query, with the sequence number of its
snapshot. After a rollback to an earlier snapshot, that entry is ignored.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import ResolveError, ValidationError
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.table import Transaction
from pyiceberg.table.snapshots import ancestors_of

from barnabas.spark.batch_table import EPOCH_ID, QUERY_ID, BatchFile, check_fields_fit, check_names, nullable
from barnabas.spark.errors import WarehouseError
from barnabas.spark.iceberg_files import add_files
from barnabas.spark.iceberg_snapshot_expiry import BOUNDS, summary_of
from barnabas.spark.ledger import LOAD_ID
from barnabas.spark.library_errors import library_errors
from barnabas.spark.table_shape import TableShape
from barnabas.spark.table_store import StoredFile
from barnabas.spark.warehouse import RETRIES, TableBase, Warehouse, set_what_commits_need

BATCHES = "barnabas.batches"
QUERIES_KEPT_MAX = 100


class IcebergBatchTable(TableBase):
    """The current version of a table. `append` succeeds only if the table still has this version."""

    def __init__(self, warehouse: Warehouse, name: str, columns: pa.Schema) -> None:
        table = warehouse.find_table(name)
        if table is not None and not table.spec().is_unpartitioned():
            raise WarehouseError(f"table {name} is partitioned; streams need an unpartitioned table")
        if table is not None:
            set_what_commits_need(table, name, is_own=False)
        super().__init__(warehouse.catalog, warehouse.identifier(name), table)
        self.columns = columns

    @property
    def table_id(self) -> str:
        """The UUID of the table."""
        return str(self.table.metadata.table_uuid)

    @property
    def known_columns(self) -> tuple[str, ...]:
        """The columns of the table before the batch."""
        return tuple(field.name for field in self.table.schema().fields)

    def arrow_schema(self) -> pa.Schema:
        """Return the columns of the batches, with the types of the table's files.

        :raises WarehouseError: Iceberg lacks the type, or a column name differs from a table column only in case.
        """
        target = self.whole_schema()
        written = pa.schema([target.field(name) for name in self.columns.names])
        return check_fields_fit(self.name, self.columns, written)

    def whole_schema(self) -> pa.Schema:
        """Return all columns of the table after the batch.

        :raises WarehouseError: Iceberg lacks the type, or a column name differs from a table column only in case.
        """
        if self._table is None:
            with self._creating():
                made = self._create_transaction()
        else:
            check_names(self.name, self.columns.names, [field.name for field in self._table.schema().fields])
            lacking = [each.name for each in self._table.schema().fields if each.required]
            lacking = [name for name in lacking if name not in self.columns.names]
            if lacking:
                raise WarehouseError(f"table {self.name} has the required column {lacking[0]}: select it in the query")
            made = self._table.transaction()
            self._add_columns(made)
        return schema_to_pyarrow(made.table_metadata.schema(), include_field_ids=False)

    def _add_columns(self, transaction: Transaction) -> None:
        """Add missing columns to the table, and widen types, as loads do. Other columns do not change.

        :raises WarehouseError: Iceberg lacks the type.
        """
        before = transaction.table_metadata.schema()
        known = {field.name for field in before.fields}
        new = [field for field in self.columns if field.name not in known]
        if new:
            with self._no_such_column():
                transaction.update_schema().union_by_name(pa.schema(new)).commit()
        own = schema_to_pyarrow(before, include_field_ids=False)
        for field in self.columns:
            if field.name in known and own.field(field.name).type != field.type:
                fitted = pa.schema([nullable(field, own.field(field.name))])
                with suppress(
                    ValueError, ResolveError, ValidationError
                ):  # Iceberg cannot widen this type, so the column keeps it
                    transaction.update_schema().union_by_name(fitted).commit()

    def _no_such_column(self) -> AbstractContextManager[None]:
        return library_errors(f"table {self.name}: Iceberg has no such column")

    def has_batch(self, query_id: str, batch_id: int) -> bool:
        """Return whether the table has this batch of a query, or a later one."""
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

    def append(
        self,
        files: Sequence[BatchFile],
        load_id: str,
        query_id: str,
        batch_id: int,
        replaced: Sequence[StoredFile] = (),
        bounded: Collection[str] = (),
    ) -> int:
        """Add the files of a batch in one snapshot, and return the id of the snapshot.

        :param replaced: Files that the same snapshot removes.
        :param bounded: Ignored: Iceberg has the bounds of all columns.
        :raises LoadConflictError: Another writer has changed the table.
        :raises WarehouseError: The commit failed, and the table is unchanged.
        """
        properties = {LOAD_ID: load_id, QUERY_ID: query_id, EPOCH_ID: str(batch_id)}

        def change(transaction: Transaction) -> None:
            if self._table is not None:
                self._add_columns(transaction)
            with library_errors(f"table {self.name} cannot have these rows"):
                removed = [file.handle for file in replaced]
                add_files(transaction, [file.path for file in files], properties, replaced=removed)
            added = transaction.table_metadata.current_snapshot()
            assert added is not None, "files are added with a snapshot"
            kept = _kept(transaction.table_metadata.properties)
            kept.pop(query_id, None)
            last = dict(list(kept.items())[-QUERIES_KEPT_MAX + 1 :])
            last[query_id] = {"batch": batch_id, "sequence": added.sequence_number}
            transaction.set_properties({BATCHES: json.dumps(last)})

        return self._commit(change, properties, None)

    def _create_transaction(self, shape: TableShape | None = None) -> Transaction:
        self._create_namespaces()
        with self._no_such_column():
            schema = Catalog._convert_schema_if_needed(self.columns)
        return self._catalog.create_table_transaction(
            self._name, schema, self._new_location, properties={RETRIES: "0", **BOUNDS}
        )


def _kept(properties: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    kept: dict[str, dict[str, Any]] = json.loads(properties.get(BATCHES, "{}"))
    return kept
