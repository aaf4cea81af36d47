"""Loads without brokers and Spark: a topic that is lists of values, and tables in a folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from barnabas.model import OffsetAndTimestamp, TopicPartition
from barnabas.records import BatchBuilder
from barnabas.records.arrow import ArrowReader
from barnabas.records.header import stamp
from barnabas.spark import load_tasks, table_load
from barnabas.spark.jobs import run_here
from barnabas.spark.load_folder import LoadFolder
from barnabas.spark.load_plan import TopicState
from barnabas.spark.load_types import LoadSettings, TableLoad
from barnabas.spark.offset_ranges import OffsetRange
from barnabas.spark.table_formats import open_place
from barnabas.spark.table_load import TableLoader
from barnabas.spark.table_place import TablePlace
from barnabas.spark.table_store import TableStore
from barnabas.spark.tables import scan_table

MARKER = b"the end of a transaction"
FIRST_MS = 1_400_000_000_000
"""The timestamp of the record at offset 0."""
Rows = list[tuple[int, Any]]


class NoAdmin:
    def __enter__(self) -> None:
        return None

    def __exit__(self, *_error: object) -> None:
        return None


class Timestamps:
    """An admin client that knows the timestamps of the records of a lake."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake

    def __enter__(self) -> Timestamps:
        return self

    def __exit__(self, *_error: object) -> None:
        return None

    def offsets_for_times(
        self, times: Mapping[tuple[str, int], int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        found: dict[TopicPartition, OffsetAndTimestamp | None] = {}
        for (topic, partition), time_ms in times.items():
            offset = max(0, -(-(time_ms - FIRST_MS) // self._lake.ms_between))
            is_there = offset < len(self._lake.partitions[partition])
            at_ms = FIRST_MS + offset * self._lake.ms_between
            found[TopicPartition(topic, partition)] = OffsetAndTimestamp(offset, at_ms) if is_there else None
        return found


class Here:
    """No Spark, as this machine can do it."""

    is_this_machine = True

    def __call__(self) -> Any:
        raise AssertionError("there is one task")


class Lake:
    """A topic, and tables of a format that it is loaded into without brokers and Spark.

    `partitions`: the values in each; `values` are those of the first one. Each record is a day after the one before,
    or as `ms_between` has it. `keys` has the keys of records that are not `key`, by partition and offset.
    `MARKER` is no record: what else has an offset in a log, as the end of a transaction has.
    """

    def __init__(self, folder: Path, table_format: str) -> None:
        self.folder = folder
        self.place = TablePlace.of(folder, table_format=table_format)
        self.partitions: list[list[bytes | None]] = [[]]
        self.keys: dict[tuple[int, int], bytes | None] = {}
        self.topic_id = "one"
        self.ms_between = 86_400_000

    @property
    def values(self) -> list[bytes | None]:
        return self.partitions[0]

    @values.setter
    def values(self, values: list[bytes | None]) -> None:
        self.partitions[0] = values

    def stand_in(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Take the places of brokers and Spark."""

        def run_tasks(_spark: object, items: Any, work: Any, **options: Any) -> Any:
            return run_here(items, work, **options)

        monkeypatch.setattr(table_load, "open_admin", lambda *_arguments: Timestamps(self))
        monkeypatch.setattr(table_load, "_describe", self.describe)
        monkeypatch.setattr(table_load, "run_tasks", run_tasks)
        monkeypatch.setattr(table_load, "parallelism", lambda _spark: 2)
        monkeypatch.setattr(table_load, "is_local", lambda _spark: False)
        monkeypatch.setattr(load_tasks, "read_range", self.read)

    def open(self) -> TableStore:
        return open_place(self.place)

    def describe(self, _admin: object, _topics: object) -> list[TopicState]:
        ends = dict(enumerate(map(len, self.partitions)))
        return [TopicState("t", self.topic_id, dict.fromkeys(ends, 0), ends)]

    def read(self, wanted: OffsetRange, *_arguments: object, **_options: object) -> Iterator[pa.RecordBatch]:
        for offset in range(wanted.start_offset, wanted.end_offset):
            value = self.partitions[wanted.partition][offset]
            if value == MARKER:
                continue
            builder, reader = BatchBuilder(), ArrowReader()
            key = self.keys.get((wanted.partition, offset), b"key")
            builder.append(FIRST_MS + offset * self.ms_between, key, value, [("id", b"1")])
            built = bytearray(builder.build())
            stamp(built, 0, offset, 0)
            reader.read(built, "t", wanted.partition)
            yield reader.finish()

    def load(
        self,
        table: str = "t",
        bad: str | None = "bad",
        *,
        on_progress: Any = lambda _progress: None,
        records_per_task: int | None = None,
        value_format: str = "json",
        **more: Any,
    ) -> TableLoad:
        """Load what is new.

        :param more: further settings of the load.

        :param bad: the dead-letter table, None for none.
        :param records_per_task: None: all of it is one task's.
        """
        most = records_per_task or 100
        settings = LoadSettings(
            "nowhere:1", value_format, None, {}, True, None, most, {}, audit=False, dead_letter_table=bad
        )
        settings = replace(settings, **more)
        sessions: Any = Here() if records_per_task is None else lambda: None
        return TableLoader(sessions, self.open(), table, settings, on_progress).run(["t"])

    def load_killed_before(
        self, owner: type, method: str, table: str = "t", bad: str | None = "bad", **more: Any
    ) -> None:
        """Load what is new, and end where a method would begin, as a process does that is killed there."""
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(owner, method, _end)
            for given_up in ("discard", "release"):
                patched.setattr(LoadFolder, given_up, lambda folder: folder.lock.close())
            with pytest.raises(SystemExit):
                self.load(table, bad, **more)

    def rows(self, table: str = "bad", column: str = "reason") -> Rows:
        if not self.open().current_table(table).exists:
            return []
        found = scan_table(self.folder, table, columns=["offset", column], table_format=self.place.table_format)
        rows = [(row["offset"], row[column]) for batch in found for row in batch.to_pylist()]
        return sorted(rows, key=lambda row: (row[0], repr(row[1])))

    def files(self) -> tuple[set[str], int]:
        """Return the data files that there are, and how many locks."""
        files = {str(path) for path in self.folder.rglob("*.parquet") if "_delta_log" not in path.parts}
        return files, len(list(self.folder.rglob("*.lock")))


def _end(*_arguments: object) -> None:
    raise SystemExit(137)
