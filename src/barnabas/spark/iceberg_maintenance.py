"""Maintenance of Iceberg tables: merges small files, expires old snapshots, removes orphan files, and keeps the ledger.

After a kill in any step the table has the same rows:

1. *Compact.* The small files of a partition become few files of the target size, in one snapshot that also has the
ledger.
   Loads may commit meanwhile; the commit fails if another writer has changed the merged files.
2. *Expire.* Old snapshots are removed from the table's history.
3. *Remove orphans.* Old files that no snapshot references are deleted: files of expired snapshots and of dead writers.
Files of
   running loads are younger, and their directories are locked.

Maintenance runs in the calling process, with Arrow and without Spark. It reads and writes one group of files of a
partition at a time.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFile
from pyiceberg.table import FileScanTask, Table

from barnabas.clock import SYSTEM_CLOCK, Clock
from barnabas.spark.data_files import TARGET_BYTES, columns_with_bounds, create_file
from barnabas.spark.errors import LoadConflictError
from barnabas.spark.iceberg_files import described, files_of, manifests_of
from barnabas.spark.iceberg_reading import read_files
from barnabas.spark.iceberg_snapshot_expiry import expire_snapshots, replacement_times_ms, summary_of
from barnabas.spark.ledger import KEPT_PROPERTIES, LEDGER, LOAD_ID
from barnabas.spark.library_errors import library_errors
from barnabas.spark.load_folder import SUFFIX, claim_folder, remove_empty_folders, remove_leftovers
from barnabas.spark.object_files import files_below, remove_file
from barnabas.spark.table_layout import Partition, TableLayout
from barnabas.spark.table_store import ORPHAN_AGE, SMALL_FILE_BYTES, SNAPSHOT_AGE
from barnabas.spark.warehouse import TableBase, Warehouse

FILES_MIN = 2
COMMITS_MAX = 5
"""The number of attempts of a merge to commit while loads commit."""


class IcebergMaintainer:
    """The maintenance of one Iceberg table. Not thread-safe."""

    def __init__(self, warehouse: Warehouse, name: str, clock: Clock = SYSTEM_CLOCK) -> None:
        """Open the table.

        :raises WarehouseError: The table does not exist.
        """
        warehouse.table(name)
        self.name = ".".join(warehouse.identifier(name))
        self._warehouse = warehouse
        self._name = name
        self._clock = clock

    def compact(self, target_bytes: int = TARGET_BYTES, small_bytes: int = SMALL_FILE_BYTES) -> tuple[int, int]:
        """Merge small files. Return the number of merged files, and the number of new files.

        :raises LoadConflictError: Another writer has changed these files meanwhile.
        :raises WarehouseError: The merge failed.
        """
        with self._failures_of("merge its small files"):
            return self._compact(target_bytes, small_bytes)

    def _failures_of(self, what: str) -> AbstractContextManager[None]:
        return library_errors(f"table {self.name}: cannot {what}, its rows are unchanged")

    def _compact(self, target_bytes: int, small_bytes: int) -> tuple[int, int]:
        base = self._warehouse.begin(self._name)
        table = base.table
        local = base.location().local_folder
        if local is not None:
            remove_leftovers(local, partial(self._warehouse.committed_loads, self._name))
        shape = base.shape()
        has_layout = shape is not None and shape.layout is not None
        groups = list(_groups(table, target_bytes, small_bytes, has_layout=has_layout))
        if not groups:
            return 0, 0
        compaction_id = uuid.uuid4().hex
        folder = claim_folder(base.location(), compaction_id, self._name)
        try:
            merged = list(self._write(base, groups, compaction_id))
        except BaseException:
            folder.discard()
            raise
        old = [task.file for group, _ in merged for task in group]
        written = [file for _, files in merged for file in files]
        if not old:
            folder.discard()
            return 0, 0
        try:
            self._replace(base, old, written, compaction_id)
        except BaseException as error:
            folder.give_up_after(error)
            raise
        folder.release()
        return len(old), len(written)

    def _replace(
        self, base: TableBase, old: Sequence[DataFile], written: Sequence[DataFile], compaction_id: str
    ) -> None:
        """Commit the merged files, also if loads have committed meanwhile: their files and their ledger stay.

        Frequent loads commit during most merges, so without this a merge in another process would never succeed.

        :raises LoadConflictError: Another writer has changed the merged files or the schema.
        """
        for is_last in (*[False] * (COMMITS_MAX - 1), True):
            properties = {name: base.last_load[name] for name in KEPT_PROPERTIES if name in base.last_load}
            try:
                base.replace(old, written, {LOAD_ID: compaction_id, **properties})
            except LoadConflictError:
                newer = self._warehouse.begin(self._name)
                if is_last or not _has_files(newer.table, old, base.table):
                    raise
                base = newer
            else:
                return

    def _write(
        self, base: TableBase, groups: Iterable[Sequence[FileScanTask]], compaction_id: str
    ) -> Iterator[tuple[Sequence[FileScanTask], list[DataFile]]]:
        """Write the rows of groups into new files. Yield each group with its files; groups that stay are left out."""
        table, location = base.table, base.location()
        schema = schema_to_pyarrow(table.schema(), include_field_ids=False)
        shape = base.shape()
        layout = None if shape is None else shape.layout
        numbers = count()
        for group in groups:
            rows = pa.Table.from_batches(read_files(table, group, schema, location.properties), schema)
            if layout is None or not layout.sort:
                rows = rows.sort_by([(name, "ascending") for name in ("topic", "partition", "offset")])
            parts = _by_partition(table, group, layout, rows)
            if len(parts) >= len(group):
                continue
            paths = [f"{location.uri}/data/{compaction_id}/{next(numbers):05}.parquet" for _ in parts]
            for path, (_, part) in zip(paths, parts, strict=True):
                with create_file(location.properties, path) as file:
                    pq.write_table(part, file, compression="zstd", write_statistics=columns_with_bounds(part))
            is_sorted = layout is not None and bool(layout.sort)
            partitions = [partition for partition, _ in parts]
            yield group, list(described(table.io, table.metadata, paths, partitions, is_sorted=is_sorted))

    def expire(self, age: timedelta = SNAPSHOT_AGE) -> int:
        """Expire old snapshots, and return their number.

        The last snapshot with a ledger is kept, because snapshots of other tools have none.

        :param age: The least time since the next snapshot replaced an expired one.
        """
        table = self._warehouse.table(self._name)
        oldest_ms = self._clock.time_ms() - age // timedelta(milliseconds=1)
        kept = {ref.snapshot_id for ref in table.metadata.refs.values()}
        kept |= {each.snapshot_id for each in [each for each in table.snapshots() if LEDGER in summary_of(each)][-1:]}
        replaced_at_ms = replacement_times_ms(table.metadata)
        old = [snapshot_id for snapshot_id, time_ms in replaced_at_ms.items() if time_ms < oldest_ms]
        expired = [each for each in old if each not in kept]
        if expired:
            with self._failures_of("expire old snapshots"):
                expire_snapshots(table, expired)
        return len(expired)

    def remove_orphans(self, age: timedelta = ORPHAN_AGE) -> int:
        """Remove files that no snapshot references and that are older than `age`. Return the number of files.

        :raises WarehouseError: The removal failed.
        """
        with self._failures_of("remove orphan files"):
            return self._remove_orphans(age)

    def _remove_orphans(self, age: timedelta) -> int:
        location = self._warehouse.begin(self._name).location()
        folder = location.local_folder
        alive = set() if folder is None else {path.stem for path in (folder / "loads").glob(f"*{SUFFIX}")}
        before = datetime.fromtimestamp(self._clock.time_s(), UTC) - age
        # List the old files before the referenced files: a commit after the listing only references younger files.
        parts = [files_below(location.properties, f"{location.uri}/{part}") for part in ("data", "metadata")]
        old = [file.uri for part in parts for file in part if file.modified_at < before]
        named = {_normal(uri) for uri in _named_files(self._warehouse.table(self._name))}
        orphans = [uri for uri in old if _normal(uri) not in named and uri.split("/")[-2] not in alive]
        for uri in orphans:
            with suppress(FileNotFoundError):
                remove_file(location.properties, uri)
        if folder is not None:
            remove_empty_folders(folder)
        return len(orphans)


def _has_files(table: Table, files: Iterable[DataFile], before: Table) -> bool:
    """Return whether a table still has all rows of files of an earlier version, in the same form."""
    form, form_before = (
        (each.current_schema_id, each.default_spec_id, each.default_sort_order_id)
        for each in (table.metadata, before.metadata)
    )
    there = {task.file.file_path for task in table.scan().plan_files() if not task.delete_files}
    return form == form_before and there.issuperset(file.file_path for file in files)


def _by_partition(
    table: Table, group: Sequence[FileScanTask], layout: TableLayout | None, rows: pa.Table
) -> list[tuple[Partition, pa.Table]]:
    """Return the rows of a group by partition of the current spec, in the sort order."""
    if group[0].file.spec_id != table.metadata.default_spec_id:
        assert layout is not None, "`_groups` has files of older specs only with a known layout"
        return list(layout.rows_by_partition(rows))
    partition = group[0].file.partition
    values = tuple(partition[number] for number in range(len(partition)))
    return [(values, rows if layout is None else layout.sorted(rows))]


def _groups(table: Table, target_bytes: int, small_bytes: int, *, has_layout: bool) -> Iterator[list[FileScanTask]]:
    """Yield the groups of small files to merge, each of one partition.

    :param has_layout: True if files of an older partition spec can be merged into files of the current spec.
    """
    specs = {spec.spec_id for spec in table.metadata.partition_specs if has_layout}
    specs.add(table.metadata.default_spec_id)
    by_partition: dict[tuple[int, str], list[FileScanTask]] = {}
    for task in table.scan().plan_files():
        is_small = task.file.file_size_in_bytes < small_bytes
        if is_small and not task.delete_files and task.file.spec_id in specs:
            by_partition.setdefault((task.file.spec_id, repr(task.file.partition)), []).append(task)
    for tasks in by_partition.values():
        group: list[FileScanTask] = []
        size = 0
        for task in sorted(tasks, key=lambda each: each.file.file_path):
            if group and size + task.file.file_size_in_bytes > target_bytes:
                if len(group) >= FILES_MIN:
                    yield group
                group, size = [], 0
            group.append(task)
            size += task.file.file_size_in_bytes
        if len(group) >= FILES_MIN:
            yield group


def _normal(uri: str) -> str:
    """Return a URI in a form that is the same with and without `file://`, and with `s3`, `s3a` and `s3n`."""
    scheme, _, rest = uri.rpartition("://")
    return rest if scheme in ("", "file") else f"{'s3' if scheme in ('s3a', 's3n') else scheme}://{rest}"


def _named_files(table: Table) -> set[str]:
    metadata = table.metadata
    named = {table.metadata_location, *(entry.metadata_file for entry in metadata.metadata_log)}
    named |= {snapshot.manifest_list for snapshot in metadata.snapshots}
    named |= {statistics.statistics_path for statistics in metadata.statistics}
    manifests = manifests_of(table)
    return named | {manifest.manifest_path for manifest in manifests} | files_of(table, manifests)
