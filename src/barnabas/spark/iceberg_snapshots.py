"""The snapshots of an Iceberg table, and the files of one snapshot. Only the manifests of the asked files are read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyiceberg.manifest import DataFileContent, ManifestContent, ManifestFile
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.sorting import NullOrder, SortDirection, SortOrder

from barnabas.spark.errors import WarehouseError
from barnabas.spark.iceberg_layout import sort_order_of_table, spec_text, transform_of
from barnabas.spark.iceberg_snapshot_expiry import summary_of
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

_CONTENTS = {
    DataFileContent.DATA: "data",
    DataFileContent.POSITION_DELETES: "position deletes",
    DataFileContent.EQUALITY_DELETES: "equality deletes",
}


def snapshots(stored: StoredTable, start: int, count: int) -> SnapshotPage:
    """Return a part of the table's snapshots, the newest first.

    :raises WarehouseError: The table does not exist.
    """
    table: Table = stored.table
    ordered = sorted(table.metadata.snapshots, key=lambda each: (each.timestamp_ms, each.sequence_number or 0))
    ordered.reverse()
    with library_errors(f"table {stored.name}: its snapshots cannot be read"):
        return SnapshotPage([_snapshot(table, each) for each in ordered[start : start + count]], len(ordered))


def _snapshot(table: Table, snapshot: Snapshot) -> TableSnapshot:
    properties = summary_of(snapshot)
    return TableSnapshot(
        snapshot.snapshot_id,
        snapshot.timestamp_ms,
        "" if snapshot.summary is None else str(snapshot.summary.operation.value),
        snapshot.snapshot_id == table.metadata.current_snapshot_id,
        number_of(properties, "added-data-files") or 0,
        number_of(properties, "deleted-data-files") or 0,
        number_of(properties, "added-records") or added_by_load(properties) or 0,
        number_of(properties, "deleted-records") or 0,
        loaded_offsets(properties),
    )


def definition(stored: StoredTable) -> TableDefinition:
    """Return the definition of a table.

    :raises WarehouseError: The table does not exist.
    """
    table: Table = stored.table
    metadata, schema = table.metadata, table.schema()
    current = metadata.spec()
    older = sorted(metadata.partition_specs, key=lambda spec: -spec.spec_id)
    return TableDefinition(
        table_format=f"iceberg {metadata.format_version}",
        columns={field.name: str(field.field_type) for field in schema.fields},
        partition_by=spec_text(schema, current),
        partition_names=tuple(field.name for field in current.fields),
        earlier=tuple(spec_text(schema, spec) for spec in older if spec.spec_id != current.spec_id),
        sort_by=_sort_text(schema, sort_order_of_table(metadata)),
        snapshot_id=metadata.current_snapshot_id,
        properties=metadata.properties,
    )


def _sort_text(schema: Schema, order: SortOrder) -> str:
    terms = []
    for field in order.fields:
        transform = transform_of(field.transform)
        column = schema.find_column_name(field.source_id) or f"(dropped column {field.source_id})"
        term = f"{field.transform}({column})" if transform is None else transform.of(column)
        direction = " desc" if field.direction is SortDirection.DESC else ""
        nulls = "first" if field.null_order is NullOrder.NULLS_FIRST else "last"
        terms.append(f"{term}{direction} nulls {nulls}")
    return ", ".join(terms)


def files(stored: StoredTable, snapshot_id: int, start: int, count: int) -> FilePage:
    """Return a part of the files of a snapshot.

    :raises WarehouseError: The table or the snapshot does not exist, or its files cannot be read.
    """
    table: Table = stored.table
    snapshot = table.metadata.snapshot_by_id(snapshot_id)
    if snapshot is None:
        raise WarehouseError(f"table {stored.name} has no snapshot {snapshot_id}; it may have expired")
    with library_errors(f"table {stored.name}: the files of snapshot {snapshot_id} cannot be read"):
        found: list[TableFile] = []
        total = 0
        for manifest in snapshot.manifests(table.io):
            of_manifest = (manifest.added_files_count or 0) + (manifest.existing_files_count or 0)
            first, end = max(start - total, 0), start + count - total
            total += of_manifest
            if first < of_manifest and end > 0:
                found += list(_files_of(table, manifest))[first:end]
        return FilePage(found, total)


def _files_of(table: Table, manifest: ManifestFile) -> Iterator[TableFile]:
    spec, schema = table.specs()[manifest.partition_spec_id], table.schema()
    for entry in manifest.fetch_manifest_entry(table.io):
        file: Any = entry.data_file
        content = DataFileContent.DATA if manifest.content == ManifestContent.DATA else file.content
        partition = "" if spec.is_unpartitioned() else spec.partition_to_path(file.partition, schema)
        yield TableFile(
            file.file_path, _CONTENTS.get(content, str(content)), file.record_count, file.file_size_in_bytes, partition
        )
