"""Parquet files of a load, written by its tasks: each file has the rows of one partition (table_layout.py).

A task buffers records up to a limit. It then appends the rows of each partition to the file of the partition, in the
order of partitions and offsets. A file is closed when it reaches the target size, so a task writes few files per
partition. With a sort order, each file gets the rows of one buffer, because appended rows would not be in order. The
driver creates the directory. If the directory is removed because the driver has died, writes fail.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import IO, Literal, cast
from urllib.parse import urlparse

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from barnabas.spark.table_layout import Partition, TableLayout

BUFFERED_BYTES_MAX = 128 * 1024 * 1024
TARGET_BYTES = 128 * 1024 * 1024
OPEN_FILES_MAX = 100
"""The maximum number of open files of a task, whose records may cover thousands of partitions. The file that was not
written to for the longest time is closed first."""
RISING = frozenset({"offset", "timestamp"})
SAMPLE_ROWS = 1_024
"""The rows in a sample. If all their values differ, the column probably has over 200,000 values, too many for a
dictionary."""
LETTER_WITHOUT_NEXT = "\ud7ff"


@dataclass(frozen=True, slots=True)
class DataFile:
    """A Parquet file of a task, with rows of one partition. Readers do not see the file before the commit."""

    path: str
    records: int
    partition: Partition = ()
    size_bytes: int = 0


class _OpenFile:
    """An open file of one partition. More rows of that partition may be appended."""

    def __init__(
        self, path: str, partition: Partition, file: IO[bytes], first: pa.Table, bounded: Literal[True] | list[str]
    ) -> None:
        self.bounded = bounded
        self._path = path
        self._partition = partition
        self._file = file
        self._records = 0
        self._writer = pq.ParquetWriter(
            file,
            first.schema,
            compression="zstd",
            use_dictionary=columns_with_dictionaries(first),
            write_statistics=self.bounded,
        )

    @property
    def size_bytes(self) -> int:
        return self._file.tell()

    def write(self, rows: pa.Table) -> None:
        """Append rows to the file."""
        self._writer.write_table(rows)
        self._records += rows.num_rows

    def close(self) -> DataFile:
        """Close the file, and return its description."""
        self._writer.close()
        size_bytes = self._file.tell()
        self._file.close()
        return DataFile(self._path, self._records, self._partition, size_bytes)


class PartitionedFiles:
    """Buffers record batches and writes them by partition. Not thread-safe.

    :param prefix: The prefix of the files' paths, unique to this attempt of the task.
    :param create: Opens a new file for writing.
    :param layout: The partition fields and the sort order of the table.
    :param partition: The partition of all rows; None derives the partitions from the rows.
    :param partitions_max: The maximum number of partitions in one buffer; None for no limit.
    :param buffered_bytes_max: The size of the buffered batches at which they are written, in bytes.
    :param target_bytes: The approximate size of a file, in bytes.
    """

    def __init__(
        self,
        prefix: str,
        create: Callable[[str], AbstractContextManager[IO[bytes]]],
        layout: TableLayout,
        *,
        partition: Partition | None = None,
        partitions_max: int | None = None,
        buffered_bytes_max: int = BUFFERED_BYTES_MAX,
        target_bytes: int = TARGET_BYTES,
    ) -> None:
        self._prefix = prefix
        self._layout = layout
        self._partition = partition
        self._partitions_max = partitions_max
        self._create = create
        self._buffered_bytes_max = buffered_bytes_max
        self._target_bytes = target_bytes
        self._batches: list[pa.RecordBatch] = []
        self._buffered_bytes = 0
        self._files: list[DataFile] = []
        self._open: dict[Partition, _OpenFile] = {}  # open files, ordered by their last write, most recent last
        self._started = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Buffer a batch; write files if the buffer is full.

        :raises PartitionLimitError: The buffered rows have more partitions than allowed.
        """
        self._batches.append(batch)
        self._buffered_bytes += batch.nbytes
        if self._buffered_bytes >= self._buffered_bytes_max:
            self._write()

    def finish(self) -> list[DataFile]:
        """Write the buffered rows, close all files, and return them.

        :raises PartitionLimitError: The buffered rows have more partitions than allowed.
        """
        self._write()
        for partition in list(self._open):
            self._end(partition)
        return self._files

    def _write(self) -> None:
        if not any(batch.num_rows for batch in self._batches):
            return
        table = pa.Table.from_batches(self._batches)
        wide = columns_beyond_ascii(table)
        for partition, rows in self._by_partition(table):
            file = self._file_for(partition, rows, columns_with_bounds(rows, wide))
            file.write(rows)
            if self._layout.sort or file.size_bytes >= self._target_bytes:
                self._end(partition)
        self._batches, self._buffered_bytes = [], 0

    def _by_partition(self, table: pa.Table) -> Iterator[tuple[Partition, pa.Table]]:
        """Yield the rows of each partition, with the columns of the files."""
        if self._partition is not None:
            yield self._partition, self._layout.sorted(table)
            return
        omitted = [name for name in self._layout.only_in_partition if name in table.schema.names]
        for partition, rows in self._layout.rows_by_partition(table, self._partitions_max):
            yield partition, rows.drop_columns(omitted)

    def _file_for(self, partition: Partition, rows: pa.Table, bounded: Literal[True] | list[str]) -> _OpenFile:
        """Return the open file of a partition. If no open file can take these rows, open a new one.

        :param bounded: The columns of the rows that may have min/max statistics.
        """
        file = self._open.pop(partition, None)
        if file is not None and not _is_within(file.bounded, bounded):
            self._files.append(file.close())
            file = None
        if file is None:
            if len(self._open) >= OPEN_FILES_MAX:
                self._end(next(iter(self._open)))
            path = f"{self._prefix}-{self._layout.label(partition)}-{self._started:05}.parquet"
            self._started += 1
            file = _OpenFile(path, partition, self._create(path).__enter__(), rows, bounded)
        self._open[partition] = file
        return file

    def _end(self, partition: Partition) -> None:
        self._files.append(self._open.pop(partition).close())


def columns_with_dictionaries(rows: pa.Table) -> list[str]:
    """Return the column paths, including nested columns, that use dictionary encoding in a file that begins with
    `rows`.

    Columns with mostly distinct values get no dictionary: Kafka's offsets and timestamps, and ids. Building such a
    dictionary costs time, and the Parquet writer would discard it.

    >>> columns_with_dictionaries(pa.table({"offset": [5, 6], "tags": [["a"], ["b", "a"]]}))
    ['tags.list.element']
    """
    without = RISING | _differing(rows)
    return [path for path in _paths_of_columns(rows.schema) if path not in without]


@lru_cache(maxsize=16)
def _paths_of_columns(schema: pa.Schema) -> tuple[str, ...]:
    metadata = pa.BufferOutputStream()
    pq.write_metadata(schema, metadata)
    columns = pq.read_metadata(pa.BufferReader(metadata.getvalue())).schema
    return tuple(columns.column(number).path for number in range(len(columns)))


def _differing(rows: pa.Table) -> set[str]:
    """Return the columns whose values in a sample are all distinct. With too few rows for a sample, the result is
    empty.
    """
    if rows.num_rows < SAMPLE_ROWS:
        return set()
    step = -(-rows.num_rows // SAMPLE_ROWS)
    parts = [batch.take(pa.array(range(0, batch.num_rows, step), pa.int64())) for batch in rows.to_batches()]
    sample = pa.Table.from_batches(parts)
    plain = (field.name for field in sample.schema if not pa.types.is_nested(field.type))
    return {name for name in plain if pc.count_distinct(sample.column(name), mode="all").as_py() == sample.num_rows}


def columns_beyond_ascii(table: pa.Table) -> list[str]:
    """Return the text columns with non-ASCII characters. For a slice, this checks the whole underlying buffer."""
    texts = (field.name for field in table.schema if pa.types.is_string(field.type))
    return [name for name in texts if not _is_ascii(table.column(name))]


def columns_with_bounds(rows: pa.Table, wide: Sequence[str] | None = None) -> Literal[True] | list[str]:
    """Return the columns that may have min/max statistics; True for all columns.

    pyiceberg truncates a long text and increments its last character, to get an upper bound. The code point after
    U+D7FF is a surrogate, which cannot be encoded, so the commit would fail.

    :param wide: The result of `columns_beyond_ascii` for a table that contains the rows; None computes it.
    """
    wide = columns_beyond_ascii(rows) if wide is None else wide
    wide = [name for name in wide if name in rows.schema.names]
    without = {name for name in wide if LETTER_WITHOUT_NEXT in (pc.max(rows.column(name)).as_py() or "")}
    if not without:
        return True
    return [field.name for field in rows.schema if field.name not in without]


def _is_ascii(column: pa.ChunkedArray) -> bool:
    data = (chunk.buffers()[2] for chunk in column.chunks)
    return all(part is None or part.to_pybytes().isascii() for part in data)


def _is_within(bounded: Literal[True] | list[str], allowed: Literal[True] | list[str]) -> bool:
    """Return whether all columns with statistics in an open file may also have statistics for additional rows."""
    return allowed is True or (bounded is not True and set(bounded) <= set(allowed))


def create_file(io_properties: Mapping[str, str], uri: str) -> AbstractContextManager[IO[bytes]]:
    """Open a new file. A local file's directory must exist."""
    parsed = urlparse(uri)
    if parsed.scheme in ("", "file"):
        return Path(parsed.path).open("xb")
    from pyiceberg.io import load_file_io  # noqa: PLC0415  # slow to import, and not needed for local files

    return cast("AbstractContextManager[IO[bytes]]", load_file_io(dict(io_properties), uri).new_output(uri).create())
