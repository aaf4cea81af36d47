"""Parquet files by event day, written by the tasks of a load.

An event day is the UTC day of a record's timestamp, as Iceberg's `day` transform has it. A task holds its
records in memory up to a limit and then writes one file for each day, sorted by partition and offset as they
came; a task below the limit writes one file a day. Files are new or not written at all, and in a folder that
the driver made: where it has been removed, because the driver is dead, writing fails.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import IO, cast
from urllib.parse import urlparse

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

BUFFERED_BYTES_MAX = 128 * 1024 * 1024
DAY_US = 86_400_000_000
EPOCH = date(1970, 1, 1)


@dataclass(frozen=True, slots=True)
class DataFile:
    """A Parquet file that a task wrote; no reader sees it before the commit."""

    path: str
    records: int


class DayFiles:
    """Gathers record batches and writes them by event day. Not thread-safe.

    :param prefix: of the files' paths, unique to this attempt of this task.
    :param create: opens a new file for writing.
    """

    def __init__(
        self,
        prefix: str,
        create: Callable[[str], AbstractContextManager[IO[bytes]]],
        *,
        buffered_bytes_max: int = BUFFERED_BYTES_MAX,
    ) -> None:
        self._prefix = prefix
        self._create = create
        self._buffered_bytes_max = buffered_bytes_max
        self._batches: list[pa.RecordBatch] = []
        self._buffered_bytes = 0
        self._files: list[DataFile] = []

    def add(self, batch: pa.RecordBatch) -> None:
        """Take a batch that has the column `timestamp`; may write files."""
        self._batches.append(batch)
        self._buffered_bytes += batch.nbytes
        if self._buffered_bytes >= self._buffered_bytes_max:
            self._write()

    def finish(self) -> list[DataFile]:
        """Write what is left, and return all files."""
        self._write()
        return self._files

    def _write(self) -> None:
        if not self._batches:
            return
        for day, table in split_by_day(pa.Table.from_batches(self._batches)):
            path = f"{self._prefix}-{day}-{len(self._files):05}.parquet"
            with self._create(path) as file:
                pq.write_table(table, file, compression="zstd")
            self._files.append(DataFile(path, table.num_rows))
        self._batches, self._buffered_bytes = [], 0


def split_by_day(table: pa.Table) -> Iterator[tuple[date, pa.Table]]:
    """Yield the rows of each event day, days ascending, rows in their order."""
    days = _event_days(table.column("timestamp").combine_chunks())
    order = pc.sort_indices(days)  # stable
    ordered_days = days.take(order)
    ordered = table.take(order)
    runs = pc.run_end_encode(ordered_days)
    start = 0
    for day, end in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
        yield EPOCH + timedelta(days=day), ordered.slice(start, end - start)
        start = end


def _event_days(timestamps: pa.Array) -> pa.Array:
    """Return days since the epoch, rounded down (a time before 1970 too)."""
    microseconds = timestamps.cast(pa.int64())
    return pc.floor(pc.divide(microseconds.cast(pa.float64()), float(DAY_US))).cast(pa.int32())


def create_file(io_properties: Mapping[str, str], uri: str) -> AbstractContextManager[IO[bytes]]:
    """Open a new file; in the local file system only in a folder that is there already."""
    parsed = urlparse(uri)
    if parsed.scheme in ("", "file"):
        return Path(parsed.path).open("xb")
    from pyiceberg.io import load_file_io  # noqa: PLC0415  # slow to import, and of no use to a local warehouse

    return cast("AbstractContextManager[IO[bytes]]", load_file_io(dict(io_properties), uri).new_output(uri).create())
