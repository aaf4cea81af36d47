"""The versions of a Delta table, and the files of one version."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from barnabas.spark.delta_schema import column_texts, remembered
from barnabas.spark.delta_state_files import ADDED_FILES, ADDED_ROWS, DELETED_ROWS, REMOVED_FILES
from barnabas.spark.delta_storage_options import storage_options
from barnabas.spark.delta_warehouse import path_of
from barnabas.spark.errors import WarehouseError
from barnabas.spark.library_errors import library_errors
from barnabas.spark.table_snapshots import (
    FilePage,
    SnapshotPage,
    TableFile,
    TableSnapshot,
    added_by_load,
    loaded_offsets,
    number_of,
)
from barnabas.spark.table_store import StoredTable, TableDefinition

_PARTITION = "partition."
"""The prefix of the columns with the values of a partition."""


def snapshots(stored: StoredTable, start: int, count: int) -> SnapshotPage:
    """Return a part of the table's versions, the newest first.

    :raises WarehouseError: The table does not exist, or its versions cannot be read.
    """
    table: DeltaTable = stored.table
    with library_errors(f"table {stored.name}: its versions cannot be read"):
        entries = table.history()
        current = table.version()
        return SnapshotPage([_version(each, current) for each in entries[start : start + count]], len(entries))


def _version(entry: Mapping[str, Any], current: int) -> TableSnapshot:
    metrics = {**entry, **(entry.get("operationMetrics") or {})}
    added = number_of(metrics, "num_added_rows", "numOutputRows", ADDED_ROWS)
    return TableSnapshot(
        int(entry["version"]),
        int(entry.get("timestamp") or 0),
        str(entry.get("operation", "")).lower(),
        int(entry["version"]) == current,
        number_of(metrics, "num_added_files", "numFilesAdded", "numAddedFiles", "numFiles", ADDED_FILES),
        number_of(metrics, "num_removed_files", "numFilesRemoved", "numRemovedFiles", REMOVED_FILES),
        added_by_load(entry) if added is None else added,
        number_of(metrics, "num_deleted_rows", "numDeletedRows", DELETED_ROWS),
        loaded_offsets(entry),
    )


def definition(stored: StoredTable) -> TableDefinition:
    """Return the definition of a table.

    :raises WarehouseError: The table does not exist.
    """
    table: DeltaTable = stored.table
    schema = str(table.schema().to_json())
    columns = tuple(table.metadata().partition_columns)
    shape = stored.shape()
    assert shape is not None, "the table exists"
    protocol = table.protocol()
    return TableDefinition(
        table_format=f"delta {protocol.min_reader_version}.{protocol.min_writer_version}",
        columns=column_texts(schema),
        partition_by=str(shape.table_layout) if columns else "",
        partition_names=columns,
        earlier=(),
        sort_by="",
        snapshot_id=int(table.version()),
        properties={**table.metadata().configuration, **remembered(schema)},
    )


def files(stored: StoredTable, snapshot_id: int, start: int, count: int) -> FilePage:
    """Return a part of the files of a version.

    :raises WarehouseError: The table or the version does not exist, or its files cannot be read.
    """
    location = stored.location()
    if snapshot_id > stored.table.version():  # delta-rs would look for all versions up to it
        raise WarehouseError(f"table {stored.name} has no version {snapshot_id}")
    with library_errors(f"table {stored.name}: the files of version {snapshot_id} cannot be read"):
        options = storage_options(location.properties)
        table = DeltaTable(path_of(location), version=snapshot_id, storage_options=options)
        found = pa.table(table.get_add_actions(flatten=True))
        names = [name for name in found.column_names if name.startswith(_PARTITION)]
        rows = found.slice(start, count).to_pylist()
    return FilePage(
        [
            TableFile(
                str(row["path"]),
                "data",
                row.get("num_records"),
                int(row["size_bytes"]),
                "/".join(f"{name.removeprefix(_PARTITION)}={row[name]}" for name in names),
            )
            for row in rows
        ],
        found.num_rows,
    )
