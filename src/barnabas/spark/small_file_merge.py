"""Merges small files of a partition of the table, written by several tasks, before the commit.

Each task reads some partitions of the topic, so many tasks write files of the same day: 200 tasks would leave 200
files. A shuffle with one writer per day would cost every load. So tasks read and rewrite only small files, and only if
far fewer files result. `small_file_groups` chooses the files, without I/O; `merge_files` runs in a task.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import pyarrow.parquet as pq

from barnabas.spark.data_files import DataFile, PartitionedFiles, create_file
from barnabas.spark.load_tasks import TaskFailed
from barnabas.spark.object_files import file_system_of
from barnabas.spark.table_layout import Partition, TableLayout

BUNDLE_BYTES_MAX = 128 * 1024 * 1024
"""The size limit of a group of files, in bytes. It keeps tasks short if the target size of files is larger."""
TIMES_FEWER = 4
FILES_FEWER = 8
BATCH_ROWS = 65_536


@dataclass(frozen=True, slots=True)
class FileGroup:
    """Files of one partition to merge, in the order of their records."""

    number: int
    files: tuple[DataFile, ...]

    @property
    def records(self) -> int:
        return sum(file.records for file in self.files)


@dataclass(frozen=True, slots=True)
class MergeSettings:
    """The settings of merge tasks: the data directory of the load, and the format of files."""

    folder: str
    io_properties: Mapping[str, str]
    layout: TableLayout
    target_file_bytes: int


def small_file_groups(files: Sequence[DataFile], target_file_bytes: int) -> tuple[list[FileGroup], list[DataFile]]:
    """Return the groups of files to merge, and the files that stay. All files stay if a merge saves too little.

    :param files: Files in the order of their records.

    >>> bundles, left = small_file_groups([DataFile(f"{number}", 5, (16_572,), 100) for number in range(200)], 10_000)
    >>> [bundle.records for bundle in bundles], left
    ([500, 500], [])
    """
    bytes_max = min(target_file_bytes, BUNDLE_BYTES_MAX)
    by_partition: dict[Partition, list[list[DataFile]]] = {}
    room: dict[Partition, int] = {}
    for file in files:
        if file.size_bytes > room.get(file.partition, -1):
            by_partition.setdefault(file.partition, []).append([])
            room[file.partition] = bytes_max
        by_partition[file.partition][-1].append(file)
        room[file.partition] -= file.size_bytes
    found = [bundle for bundles in by_partition.values() for bundle in bundles]
    if len(found) * TIMES_FEWER > len(files) or len(files) - len(found) < FILES_FEWER:
        return [], list(files)
    several = [bundle for bundle in found if len(bundle) > 1]
    return [FileGroup(number, tuple(bundle)) for number, bundle in enumerate(several)], [
        bundle[0] for bundle in found if len(bundle) == 1
    ]


def merge_files(gathering: MergeSettings, bundle: FileGroup, attempt_id: int) -> tuple[DataFile, ...] | TaskFailed:
    """Write the rows of a group of files into new files. The old files remain.

    :param attempt_id: Unique to this attempt of the task.
    """
    prefix = f"{gathering.folder}/gathered-{bundle.number}-{attempt_id}"
    made: list[DataFile] = []
    open_files: PartitionedFiles | None = None
    schema: pa.Schema | None = None
    try:
        for rows in _rows(bundle, gathering.io_properties):
            # If this load added columns, its first files lack them. Files with different schemas are not merged.
            if open_files is None or rows.schema != schema:
                made += [] if open_files is None else open_files.finish()
                schema = rows.schema
                open_files = PartitionedFiles(
                    f"{prefix}-{len(made)}",
                    partial(create_file, gathering.io_properties),
                    gathering.layout,
                    partition=bundle.files[0].partition,
                    target_bytes=gathering.target_file_bytes,
                )
            open_files.add(rows)
        made += [] if open_files is None else open_files.finish()
    except OSError as error:
        where = gathering.layout.label(bundle.files[0].partition)
        return TaskFailed("storage", f"cannot merge {len(bundle.files)} files of {where}: {error}")
    assert sum(file.records for file in made) == bundle.records, "no row is lost"
    return tuple(made)


def _rows(bundle: FileGroup, properties: Mapping[str, str]) -> Iterator[pa.RecordBatch]:
    for file in bundle.files:
        system, path = file_system_of(properties, file.path)
        with pq.ParquetFile(path, filesystem=system) as opened:
            yield from opened.iter_batches(BATCH_ROWS)
