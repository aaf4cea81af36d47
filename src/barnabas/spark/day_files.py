"""Parquet files by event day, written by the tasks of a load.

An event day is the UTC day of a record's event time, as Iceberg's `day` transform has it; records without one
(columns.py says which) are in files of their own, after all days. A task holds its records in memory up to a limit, and
then writes those of each day, sorted by partition and offset as they came, behind what the day's file has already: a
file ends when it has its target size. So a task has one file a day, or as many as the day needs. Files are new or not
written at all, and in a folder that the driver made: where it has been removed, because the driver is dead, writing
fails.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import date, timedelta
from functools import lru_cache
from pathlib import Path
from typing import IO, Literal, cast
from urllib.parse import urlparse

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

BUFFERED_BYTES_MAX = 128 * 1024 * 1024
TARGET_BYTES = 128 * 1024 * 1024
OPEN_FILES_MAX = 100
"""A task may have records of thousands of days; files of the longest ago are ended first."""
EPOCH = date(1970, 1, 1)
NO_DAY = "no-day"
RISING = frozenset({"offset", "timestamp"})
SAMPLE_ROWS = 1_024
"""Where so many values all differ, the column hardly has fewer than 200,000: more than a dictionary holds."""
LETTER_WITHOUT_NEXT = "\ud7ff"


@dataclass(frozen=True, slots=True)
class DataFile:
    """A Parquet file that a task wrote; no reader sees it before the commit. Its rows are of one event day."""

    path: str
    records: int
    day: date | None = None
    size_bytes: int = 0


class _OpenFile:
    """A file that more rows of its day may be written to."""

    def __init__(
        self, path: str, day: date | None, file: IO[bytes], first: pa.Table, bounded: Literal[True] | list[str]
    ) -> None:
        self.bounded = bounded
        self._path = path
        self._day = day
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
        """Write rows behind those that it has."""
        self._writer.write_table(rows)
        self._records += rows.num_rows

    def close(self) -> DataFile:
        """End it, and return what it is."""
        self._writer.close()
        size_bytes = self._file.tell()
        self._file.close()
        return DataFile(self._path, self._records, self._day, size_bytes)


class DayFiles:
    """Gathers record batches and writes them by event day. Not thread-safe.

    :param prefix: of the files' paths, unique to this attempt of this task.
    :param create: opens a new file for writing.
    :param time_column: has the event times.
    :param target_bytes: about the size of a file, in the file system.
    """

    def __init__(
        self,
        prefix: str,
        create: Callable[[str], AbstractContextManager[IO[bytes]]],
        *,
        time_column: str = "timestamp",
        buffered_bytes_max: int = BUFFERED_BYTES_MAX,
        target_bytes: int = TARGET_BYTES,
    ) -> None:
        self._prefix = prefix
        self._time_column = time_column
        self._create = create
        self._buffered_bytes_max = buffered_bytes_max
        self._target_bytes = target_bytes
        self._batches: list[pa.RecordBatch] = []
        self._buffered_bytes = 0
        self._files: list[DataFile] = []
        self._open: dict[date | None, _OpenFile] = {}  # the one that was written to last is the last one
        self._started = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Take a batch that has the column of event times; may write files."""
        self._batches.append(batch)
        self._buffered_bytes += batch.nbytes
        if self._buffered_bytes >= self._buffered_bytes_max:
            self._write()

    def finish(self) -> list[DataFile]:
        """Write what is left, and return all files."""
        self._write()
        for day in list(self._open):
            self._end(day)
        return self._files

    def _write(self) -> None:
        if not self._batches:
            return
        table = pa.Table.from_batches(self._batches)
        wide = columns_beyond_ascii(table)
        for day, rows in split_by_day(table, self._time_column):
            file = self._file_for(day, rows, columns_with_bounds(rows, wide))
            file.write(rows)
            if file.size_bytes >= self._target_bytes:
                self._end(day)
        self._batches, self._buffered_bytes = [], 0

    def _file_for(self, day: date | None, rows: pa.Table, bounded: Literal[True] | list[str]) -> _OpenFile:
        """Return the file of a day, a new one where there is none that can take these rows.

        :param bounded: the columns of the rows that may have bounds.
        """
        file = self._open.pop(day, None)
        if file is not None and not _is_within(file.bounded, bounded):
            self._files.append(file.close())
            file = None
        if file is None:
            if len(self._open) >= OPEN_FILES_MAX:
                self._end(next(iter(self._open)))
            path = f"{self._prefix}-{day or NO_DAY}-{self._started:05}.parquet"
            self._started += 1
            file = _OpenFile(path, day, self._create(path).__enter__(), rows, bounded)
        self._open[day] = file
        return file

    def _end(self, day: date | None) -> None:
        self._files.append(self._open.pop(day).close())


def columns_with_dictionaries(rows: pa.Table) -> list[str]:
    """Return the paths of the columns, those within others too, of which a file that begins with some rows has a
    dictionary: of all but those whose values hardly come again (Kafka's offsets and timestamps, which rise from row to
    row, ids), so that one takes time to make, and is given up.

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
    """Return the columns whose values all differ in a sample; no columns where there are too few rows to tell."""
    if rows.num_rows < SAMPLE_ROWS:
        return set()
    step = -(-rows.num_rows // SAMPLE_ROWS)
    parts = [batch.take(pa.array(range(0, batch.num_rows, step), pa.int64())) for batch in rows.to_batches()]
    sample = pa.Table.from_batches(parts)
    plain = (field.name for field in sample.schema if not pa.types.is_nested(field.type))
    return {name for name in plain if pc.count_distinct(sample.column(name), mode="all").as_py() == sample.num_rows}


def split_by_day(table: pa.Table, time_column: str = "timestamp") -> Iterator[tuple[date | None, pa.Table]]:
    """Yield the rows of each event day, days ascending and None last, rows in their order."""
    # The cast rounds down, for times before 1970 too.
    days = table.column(time_column).combine_chunks().cast(pa.date32()).cast(pa.int32())
    bounds = pc.min_max(days)
    if not days.null_count and bounds["min"] == bounds["max"]:
        # Most loads are of one day: nothing to put in order.
        yield EPOCH + timedelta(days=bounds["min"].as_py()), table
        return
    order = pc.sort_indices(days)  # stable, nulls last
    ordered_days = days.take(order)
    ordered = table.take(order)
    runs = pc.run_end_encode(ordered_days)
    start = 0
    for day, end in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
        yield None if day is None else EPOCH + timedelta(days=day), ordered.slice(start, end - start)
        start = end


def columns_beyond_ascii(table: pa.Table) -> list[str]:
    """Return the columns of texts of which not all letters are ASCII, which is seen at once; those outside of a slice
    count, too."""
    texts = (field.name for field in table.schema if pa.types.is_string(field.type))
    return [name for name in texts if not _is_ascii(table.column(name))]


def columns_with_bounds(rows: pa.Table, wide: Sequence[str] | None = None) -> Literal[True] | list[str]:
    """Return the columns whose least and greatest value may be told to the catalog; True for all of them.

    pyiceberg cuts a long text and adds one to its last letter, to have a bound above it. After U+D7FF comes half of
    a surrogate pair, which nothing encodes: the commit would fail.

    :param wide: what `columns_beyond_ascii` says of more rows, where it has been asked for them.
    """
    wide = columns_beyond_ascii(rows) if wide is None else wide
    without = {name for name in wide if LETTER_WITHOUT_NEXT in (pc.max(rows.column(name)).as_py() or "")}
    if not without:
        return True
    return [field.name for field in rows.schema if field.name not in without]


def _is_ascii(column: pa.ChunkedArray) -> bool:
    data = (chunk.buffers()[2] for chunk in column.chunks)
    return all(part is None or part.to_pybytes().isascii() for part in data)


def _is_within(bounded: Literal[True] | list[str], allowed: Literal[True] | list[str]) -> bool:
    """Whether all columns that a file tells the bounds of may be so with other rows too."""
    return allowed is True or (bounded is not True and set(bounded) <= set(allowed))


def create_file(io_properties: Mapping[str, str], uri: str) -> AbstractContextManager[IO[bytes]]:
    """Open a new file; in the local file system only in a folder that is there already."""
    parsed = urlparse(uri)
    if parsed.scheme in ("", "file"):
        return Path(parsed.path).open("xb")
    from pyiceberg.io import load_file_io  # noqa: PLC0415  # slow to import, and of no use to a local warehouse

    return cast("AbstractContextManager[IO[bytes]]", load_file_io(dict(io_properties), uri).new_output(uri).create())
