"""A table that is loaded again and again, without brokers and Spark."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import schema_to_pyarrow

from barnabas.model import TopicPartition
from barnabas.spark.completeness import COMPLETE, Completeness
from barnabas.spark.data_files import DataFile
from barnabas.spark.ledger import snapshot_properties
from barnabas.spark.offset_ranges import OffsetRange
from barnabas.spark.table_formats import open_place
from barnabas.spark.table_place import TablePlace
from barnabas.spark.table_schema import table_schema
from barnabas.spark.table_shape import TableShape

PARTITIONS, RECORDS = 50, 100
FIRST_OFFSET = 123_456_789
TIME_MS = 1_700_000_000_000


@dataclass(frozen=True)
class Measured:
    """After a commit: all bytes of metadata that are there, and the bytes and files that this commit wrote."""

    left_bytes: int
    written_bytes: int
    written_files: int


class LoadedTable:
    """A table of a topic of 50 partitions, to which each commit adds one file with a record of each partition."""

    def __init__(self, folder: Path, table_format: str) -> None:
        self.folder = folder / "warehouse"
        self.place = TablePlace.of(self.folder, table_format=table_format)
        self.store = open_place(self.place)
        self.commits = 0
        self._file = folder / "rows.parquet"
        self._day = date.min

    def _write_rows(self, time_ms: int) -> None:
        """Write the file that commits copy, with rows of the day of a time."""
        day = datetime.fromtimestamp(time_ms / 1000, UTC).date()
        if day != self._day:
            schema = schema_to_pyarrow(table_schema(None, {}), include_field_ids=False)
            row = {"topic": "clicks", "timestamp": time_ms * 1000, "value": b"x" * 20, "headers": []}
            rows = [{**row, "partition": each, "offset": FIRST_OFFSET + each} for each in range(PARTITIONS)]
            pq.write_table(pa.Table.from_pylist(rows, schema=schema), self._file, compression="zstd")
            self._day = day

    def commit(self, time_ms: int = TIME_MS) -> None:
        """Add a file.

        :param time_ms: The time of its records.
        """
        self.commits += 1
        self._write_rows(time_ms)
        load_id = f"{self.commits:032}"
        base = self.store.begin("clicks")
        data = f"{base.location().uri}/data/{load_id}"
        path = Path(data.removeprefix("file://")) / "00000.parquet"
        path.parent.mkdir(parents=True)
        shutil.copy(self._file, path)
        first = FIRST_OFFSET + self.commits * RECORDS
        ranges = [OffsetRange("clicks", each, first, first + RECORDS) for each in range(PARTITIONS)]
        ledger = base.ledger().advanced({"clicks": "Zx3kq0aTQq6c1s5nWk2b7A"}, ranges)
        at_ms = TIME_MS + 10_000 * self.commits
        latest_ms = {TopicPartition("clicks", each): at_ms - 123 * each for each in range(PARTITIONS)}
        properties = {
            **snapshot_properties(load_id, ledger, ranges, PARTITIONS),
            COMPLETE: Completeness(at_ms, latest_ms).dump(),
        }
        shape = base.shape() or TableShape()
        ((partition, _rows),) = shape.table_layout.rows_by_partition(pq.read_table(path))
        file = DataFile(f"{data}/00000.parquet", PARTITIONS, partition, path.stat().st_size)
        base.commit([file], properties, shape)

    @property
    def table(self) -> Any:
        """The table of the format's own library, as it is now."""
        return self.store.current_table("clicks").table

    def next_offsets(self) -> set[int]:
        """Return the offsets at which the next load of the partitions goes on."""
        loaded = self.store.begin("clicks").ledger().topics["clicks"].next_offsets
        assert set(loaded) == set(range(PARTITIONS))
        return set(loaded.values())

    def offset_after(self, commits: int) -> int:
        """Return where a load goes on after so many commits."""
        return FIRST_OFFSET + (commits + 1) * RECORDS

    def metadata(self) -> dict[Path, int]:
        """Return the files that are not the commits' data, with their sizes."""
        files = (path for path in self.folder.rglob("*") if path.is_file() and "data" not in path.parts)
        return {path: path.stat().st_size for path in files}

    def measured(self, count: int) -> Iterator[Measured]:
        """Commit, and yield what each commit did."""
        before = self.metadata()
        for _ in range(count):
            self.commit()
            after = self.metadata()
            new = [size for path, size in after.items() if path not in before]
            yield Measured(sum(after.values()), sum(new), len(new))
            before = after
