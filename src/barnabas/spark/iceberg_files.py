"""Adds Parquet files to an Iceberg table.

The result is that of pyiceberg's `add_files`. pyiceberg derives the statistics plan for each file again, although it is
the same for all files of a schema. For files with a few hundred records, this takes 90 % of the commit time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import pyarrow.parquet as pq
from pyiceberg.conversions import from_bytes
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import (
    _check_pyarrow_schema_compatible,
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestContent, ManifestFile
from pyiceberg.table import Table, TableProperties, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update.snapshot import _FastAppendFiles, _ManifestMergeManager, _MergeAppendFiles
from pyiceberg.typedef import Record
from pyiceberg.types import NestedField, PrimitiveType
from pyiceberg.utils.concurrent import ExecutorFactory
from pyiceberg.utils.properties import property_as_bool

from barnabas.spark.table_layout import Partition

TIER_MANIFESTS = 10
MANIFEST_BYTES_MAX = 8 * 1024 * 1024
"""The largest manifest that is still merged, in bytes: Iceberg's target size for manifests."""
FOOTERS_AT_ONCE = 32
"""The number of footers read at a time. The footer of a file with hundreds of columns needs almost a megabyte of
memory."""


def add_files(
    transaction: Transaction,
    paths: Sequence[str],
    properties: Mapping[str, str],
    partitions: Sequence[Partition] | None = None,
    *,
    is_sorted: bool = False,
    replaced: Iterable[DataFile] = (),
) -> None:
    """Add files that the table does not have yet, and remove others, in one snapshot.

    :param properties: The properties of the snapshot.
    :param partitions: The partition of each file; None derives it from the statistics of the file.
    :param is_sorted: True if the rows of each file are in the table's sort order.
    :param replaced: The files to remove.
    :raises ValueError: The columns of a file differ from those of the table.
    :raises OSError: A file cannot be read.
    """
    metadata = transaction.table_metadata
    if metadata.name_mapping() is None:
        mapping = metadata.schema().name_mapping.model_dump_json()
        transaction.set_properties({TableProperties.DEFAULT_NAME_MAPPING: mapping})
    files = list(described(transaction._table.io, transaction.table_metadata, paths, partitions, is_sorted=is_sorted))
    removed = list(replaced)
    if removed:
        with transaction.update_snapshot(snapshot_properties=dict(properties)).overwrite() as overwrite:
            for old in removed:
                overwrite.delete_data_file(old)
            for file in files:
                overwrite.append_data_file(file)
        return
    merges = property_as_bool(
        metadata.properties, TableProperties.MANIFEST_MERGE_ENABLED, TableProperties.MANIFEST_MERGE_ENABLED_DEFAULT
    )
    kind = TieredAppend if merges else _FastAppendFiles
    append = kind(Operation.APPEND, transaction, transaction._table.io, snapshot_properties=dict(properties))
    for file in files:
        append.append_data_file(file)
    append.commit()


class TieredAppend(_MergeAppendFiles):
    """An append that limits the number of manifests, and rewrites the entry of a file only once per tier.

    pyiceberg's own merge fills one manifest up to a target size, and close to this size rewrites it in each commit.
    Here ten manifests of a tier (`TIER_MANIFESTS`, or `commit.manifest.min-count-to-merge`) become one manifest of the
    next tier, which has about ten times as many files.
    """

    def _process_manifests(self, manifests: list[ManifestFile]) -> list[ManifestFile]:
        asked = self._transaction.table_metadata.properties.get(TableProperties.MANIFEST_MIN_MERGE_COUNT, "")
        least = max(2, int(asked)) if asked.isdecimal() else TIER_MANIFESTS
        merge = _ManifestMergeManager(0, 0, merge_enabled=True, snapshot_producer=self)._create_manifest
        tiers: dict[tuple[int, int], list[ManifestFile]] = {}
        kept = []
        for manifest in manifests:
            if manifest.content == ManifestContent.DATA and manifest.manifest_length < MANIFEST_BYTES_MAX:
                tiers.setdefault((manifest.partition_spec_id, tier_of(manifest)), []).append(manifest)
            else:
                kept.append(manifest)
        for spec_id, tier in sorted(tiers):
            if len(tiers[spec_id, tier]) < least:
                kept += tiers[spec_id, tier]
                continue
            merged = merge(spec_id, tiers[spec_id, tier])
            above = (spec_id, tier_of(merged))
            if above in tiers and above[1] > tier:
                tiers[above].append(merged)
            else:
                kept.append(merged)
        return kept


def tier_of(manifest: ManifestFile) -> int:
    """Return the tier of a manifest: 0 for fewer than 10 files, 1 for fewer than 100, and so on."""
    files = (manifest.added_files_count or 0) + (manifest.existing_files_count or 0)
    return len(str(max(1, files))) - 1


def manifests_of(table: Table) -> list[ManifestFile]:
    """Return the manifests of all snapshots of a table, each of them once."""
    run = ExecutorFactory.get_or_create().map
    lists = run(lambda snapshot: snapshot.manifests(table.io), table.metadata.snapshots)
    return list({manifest.manifest_path: manifest for manifests in lists for manifest in manifests}.values())


def files_of(table: Table, manifests: Sequence[ManifestFile]) -> set[str]:
    """Return the paths of the files that manifests contain.

    pyiceberg's `inspect.all_files` reads a manifest once for each snapshot that has it.
    """
    run = ExecutorFactory.get_or_create().map
    return set[str]().union(*run(lambda each: _paths_in(each, table.io), manifests))


def _paths_in(manifest: ManifestFile, io: FileIO) -> set[str]:
    return {entry.data_file.file_path for entry in manifest.fetch_manifest_entry(io, discard_deleted=True)}


def described(
    io: FileIO,
    metadata: TableMetadata,
    paths: Sequence[str],
    partitions: Sequence[Partition] | None = None,
    *,
    is_sorted: bool = False,
) -> Iterator[DataFile]:
    """Yield the manifest entry of each file; the arguments are those of `add_files`.

    :raises ValueError: The columns of a file differ from those of the table.
    :raises OSError: A file cannot be read.
    """
    schema, spec = metadata.schema(), metadata.spec()
    statistics_of = partial(
        data_file_statistics_from_parquet_metadata,
        stats_columns=compute_statistics_plan(schema, metadata.properties),
        parquet_column_mapping=parquet_path_to_id_mapping(schema),
    )
    checked: set[bytes] = set()  # before pyarrow 22, a schema with metadata has no hash
    for number, (path, footer, size_bytes) in enumerate(_footers(io, paths)):
        columns = footer.schema.to_arrow_schema()
        if columns.serialize().to_pybytes() not in checked:
            _check_pyarrow_schema_compatible(schema, columns, format_version=metadata.format_version)
            checked.add(columns.serialize().to_pybytes())
        statistics = statistics_of(footer)
        yield DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=path,
            file_format=FileFormat.PARQUET,
            partition=statistics.partition(spec, schema) if partitions is None else Record(*partitions[number]),
            file_size_in_bytes=size_bytes,
            sort_order_id=metadata.default_sort_order_id if is_sorted else None,
            spec_id=metadata.default_spec_id,
            equality_ids=None,
            key_metadata=None,
            **statistics.to_serialized_dict(),
        )


def _footers(io: FileIO, paths: Sequence[str]) -> Iterator[tuple[str, pq.FileMetaData, int]]:
    """Yield the footer and the size in bytes of each file. Several footers are read in parallel."""
    executor = ExecutorFactory.get_or_create()
    for first in range(0, len(paths), FOOTERS_AT_ONCE):
        some = paths[first : first + FOOTERS_AT_ONCE]
        for path, (footer, size_bytes) in zip(some, executor.map(partial(_read_footer, io), some), strict=True):
            yield path, footer, size_bytes


def _read_footer(io: FileIO, path: str) -> tuple[pq.FileMetaData, int]:
    file = io.new_input(path)
    with file.open() as stream:
        return pq.read_metadata(stream), len(file)


def bounds_of_file(file: DataFile, fields: Iterable[NestedField]) -> dict[str, tuple[Any, Any]]:
    """Return the least and the greatest value of columns in a file. Texts may be truncated, outwards."""
    lower, upper = file.lower_bounds or {}, file.upper_bounds or {}
    return {
        field.name: (
            from_bytes(field.field_type, lower[field.field_id]),
            from_bytes(field.field_type, upper[field.field_id]),
        )
        for field in fields
        if isinstance(field.field_type, PrimitiveType) and field.field_id in lower and field.field_id in upper
    }
