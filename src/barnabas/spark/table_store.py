"""What loads, maintenance, status and readers know of tables: one interface, whatever format the tables have.

A format of tables (Iceberg, Delta) implements these protocols and names itself in `table_place.py`. What all of them
promise, and what loads build on:

- a commit adds files and properties (with the ledger, ledger.py) together or not at all;
- it is refused where the table is no longer as it was when `begin` looked at it;
- the ledger outlives compaction, expiry of history and checkpoints, and goes back with a table that is rolled back.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlparse

from barnabas.formats.value_format import RAW
from barnabas.model import TopicPartition
from barnabas.spark.day_files import TARGET_BYTES, DataFile
from barnabas.spark.ledger import Ledger
from barnabas.spark.table_shape import TableShape

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from barnabas.clock import Clock
    from barnabas.spark.table_place import TablePlace

SMALL_FILE_BYTES = 32 * 1024 * 1024
"""Files below it are worth to be put together."""
SNAPSHOT_AGE = timedelta(days=7)
ORPHAN_AGE = timedelta(days=3)


@dataclass(frozen=True, slots=True)
class Location:
    """Where a table's files are, and how they are reached: properties as pyiceberg names them (`s3.endpoint`)."""

    uri: str
    properties: Mapping[str, str]

    @property
    def local_folder(self) -> Path | None:
        """The folder, where it is one of this machine's file system."""
        parsed = urlparse(self.uri)
        return Path(parsed.path) if parsed.scheme in ("", "file") else None


@dataclass(frozen=True, slots=True)
class Contents:
    """The files of a table's current version, and how many versions its history still has."""

    records: int
    file_sizes: tuple[int, ...]
    versions: int


@dataclass(frozen=True, slots=True)
class Maintained:
    """What was done: files that were put together and those that came of them, snapshots expired, files removed."""

    table: str
    compacted_files: int = 0
    new_files: int = 0
    expired_snapshots: int = 0
    removed_files: int = 0


class StoredTable(Protocol):
    """A table as it was when something began; `commit` succeeds only while it still is like that."""

    @property
    def name(self) -> str: ...

    @property
    def table(self) -> Any:
        """The table of the format's own library.

        :raises WarehouseError: there is none yet.
        """

    @property
    def exists(self) -> bool: ...

    @property
    def format(self) -> str | None:
        """How values were decoded in earlier loads; None for a table that no load has made."""

    @property
    def last_load(self) -> Mapping[str, str]:
        """The properties of the last load's commit; empty where there is none left."""

    @property
    def target_file_bytes(self) -> int:
        """How large its files are to become, as the table itself says."""

    @property
    def widens_types(self) -> bool:
        """Whether the type of a column can become a wider one."""

    def check_accepts_loads(self) -> None:
        """Check that files of loads fit the table, which other tools may have changed.

        :raises WarehouseError: they do not.
        """

    def shape(self, value_format: str = RAW) -> TableShape | None:
        """Return what its rows look like; None for a table that does not exist.

        :param value_format: that of the values, for a table that no load has made.
        """

    def ledger(self) -> Ledger:
        """Return how far the table is loaded.

        :raises HistoryExpiredError: nothing that is left says so.
        """

    def next_offsets_of_rows(self) -> dict[TopicPartition, int]:
        """Return the offset after the last row of each partition. It reads three columns of the whole table."""

    def rows_of(self, topic: str, start_offset: int, columns: Collection[str]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a topic, from an offset on in all of its partitions.

        :param columns: those that the table lacks are left out.
        :raises WarehouseError: they cannot be read.
        """

    def location(self) -> Location:
        """Return where the table's files are, or will be."""

    def contents(self) -> Contents:
        """Return what it holds."""

    def commit(self, files: Sequence[DataFile], properties: dict[str, str], shape: TableShape) -> int:
        """Add the files and the properties in one commit, and return its number.

        :param shape: what the rows of the files look like; the table gets the columns that it lacks.
        :raises LoadConflictError: the table is no longer as it was when the load began.
        :raises WarehouseError: it could not be done, and the table is as before.
        """


class TableStore(Protocol):
    """Where tables of one format are. Not thread-safe."""

    def begin(self, name: str) -> StoredTable:
        """Return the state of a table that a load starts from.

        :raises WarehouseError: it lacks the columns that every loaded table has, or cannot be read.
        """

    def current_table(self, name: str) -> StoredTable:
        """Return a table as it is now, whoever has made it, to be read; nothing of it is changed.

        :raises WarehouseError: it cannot be read.
        """

    def committed_loads(self, name: str, load_ids: Collection[str]) -> set[str]:
        """Return those of the loads whose files the table names, in any version that it still has."""


class Maintainer(Protocol):
    """Maintains one table, step by step. A kill after any step leaves a table with the same rows."""

    name: str

    def compact(self, target_bytes: int = TARGET_BYTES, small_bytes: int = SMALL_FILE_BYTES) -> tuple[int, int]:
        """Put small files together. Returns how many there were, and how many came of them.

        :raises LoadConflictError: somebody else has committed meanwhile.
        """

    def expire(self, age: timedelta = SNAPSHOT_AGE) -> int:
        """Expire versions that are older, but never the ledger. Returns how many."""

    def remove_orphans(self, age: timedelta = ORPHAN_AGE) -> int:
        """Remove files that no version names and that are older. Returns how many."""


@dataclass(frozen=True, slots=True)
class TableFormat:
    """All that there is to do with tables of a format."""

    open: Callable[[TablePlace], TableStore]
    maintainer: Callable[[TableStore, str, Clock], Maintainer]
    scan: Callable[[StoredTable, Sequence[str] | None, str | None], Iterator[pa.RecordBatch]]
    frame: Callable[[SparkSession, StoredTable, str | None], DataFrame]


def maintain(
    maintainer: Maintainer,
    *,
    target_bytes: int = TARGET_BYTES,
    small_bytes: int = SMALL_FILE_BYTES,
    snapshot_age: timedelta = SNAPSHOT_AGE,
    orphan_age: timedelta = ORPHAN_AGE,
) -> Maintained:
    """Do all steps.

    :param target_bytes: about the size of the files that are written; `small_bytes`: smaller ones are rewritten.
    :param snapshot_age: older versions expire; the current one never does.
    :param orphan_age: older files that no version names are removed.
    :raises LoadConflictError: somebody else has committed meanwhile; run it again.
    :raises WarehouseError: it could not be done.
    """
    compacted, written = maintainer.compact(target_bytes, small_bytes)
    expired = maintainer.expire(snapshot_age)
    removed = maintainer.remove_orphans(orphan_age)
    return Maintained(maintainer.name, compacted, written, expired, removed)
