"""The interface of tables for loads, maintenance, status and readers. It is the same for all table formats.

A table format (Iceberg, Delta) implements these protocols and is registered in `table_formats.py`. Each format
guarantees:

- A commit adds files and properties (with the ledger, ledger.py) together or not at all.
- A commit fails if the table has changed since `begin`.
- The ledger survives compaction, checkpoints and the expiry of history. It is rolled back together with the table.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlparse

from barnabas.formats.value_format import RAW
from barnabas.model import TopicPartition
from barnabas.spark.data_files import TARGET_BYTES, DataFile
from barnabas.spark.ledger import Ledger
from barnabas.spark.run_ids import CommittedRun
from barnabas.spark.table_layout import TableLayout
from barnabas.spark.table_shape import TableShape

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from barnabas.clock import Clock
    from barnabas.spark.table_place import TablePlace
    from barnabas.spark.table_snapshots import FilePage, SnapshotPage

SMALL_FILE_BYTES = 32 * 1024 * 1024
"""The file size in bytes below which maintenance merges files."""
SNAPSHOT_AGE = timedelta(days=7)
ORPHAN_AGE = timedelta(days=3)


@dataclass(frozen=True, slots=True)
class Location:
    """The URI of a table's directory, and the storage properties as pyiceberg names them (`s3.endpoint`)."""

    uri: str
    properties: Mapping[str, str]

    @property
    def local_folder(self) -> Path | None:
        """The directory if it is in this machine's file system; else None."""
        parsed = urlparse(self.uri)
        return Path(parsed.path) if parsed.scheme in ("", "file") else None


@dataclass(frozen=True, slots=True)
class Contents:
    """The size of a table's current version, and the number of versions in its history."""

    records: int
    file_sizes: tuple[int, ...]
    versions: int


@dataclass(frozen=True, slots=True)
class TableDefinition:
    """The definition of a table.

    :param table_format: The format and its version.
    :param columns: The type of each column, in the words of the format.
    :param partition_by: The partition fields of new files, in the syntax of `--partition-by`.
    :param partition_names: The names of the partition fields or columns.
    :param earlier: The partition fields of older specs, the newest first.
    :param sort_by: The sort order of new files; empty without one.
    :param snapshot_id: The current version; None for a table without data.
    """

    table_format: str
    columns: Mapping[str, str]
    partition_by: str
    partition_names: tuple[str, ...]
    earlier: tuple[str, ...]
    sort_by: str
    snapshot_id: int | None
    properties: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Maintained:
    """The result of maintenance: the numbers of merged, new and removed files, and of expired snapshots."""

    table: str
    compacted_files: int = 0
    new_files: int = 0
    expired_snapshots: int = 0
    removed_files: int = 0


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A data file of a version of a table, to read its rows or to replace it.

    :param bounds: the least and the greatest value of columns. Bounds may be wider than the values. A column without
        known bounds is absent.
    :param handle: the file in the format's library.
    """

    path: str
    records: int
    size_bytes: int
    bounds: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)
    handle: Any = None


class StoredTable(Protocol):
    """One version of a table. `commit` succeeds only if the table still has this version."""

    @property
    def name(self) -> str: ...

    @property
    def table(self) -> Any:
        """The table object of the format's library.

        :raises WarehouseError: The table does not exist.
        """

    @property
    def exists(self) -> bool: ...

    @property
    def format(self) -> str | None:
        """The value format of earlier loads; None for a table that was not created by a load."""

    @property
    def last_load(self) -> Mapping[str, str]:
        """The properties of the last load's commit; empty without one."""

    @property
    def target_file_bytes(self) -> int:
        """The approximate size of new files, from the table's properties."""

    @property
    def widens_types(self) -> bool:
        """True if the format can change the type of a column to a wider one."""

    def check_accepts_loads(self) -> None:
        """Check that the files of loads fit the table. Other tools may have changed it.

        :raises WarehouseError: The files do not fit.
        """

    def check_layout(self, layout: TableLayout, shape: TableShape) -> TableLayout:
        """Return the layout of a new table of the format.

        :param shape: The shape of the new table, without the layout.
        :raises ConfigurationError: Tables of the format cannot have this layout.
        """

    def shape(self, value_format: str = RAW) -> TableShape | None:
        """Return the shape of the table's rows; None for a table that does not exist.

        :param value_format: The value format of a table that was not created by a load.
        """

    def ledger(self) -> Ledger:
        """Return the loaded offsets of the table.

        :raises HistoryExpiredError: The table has rows, but no record of the end of its last load.
        """

    def find_run(self, run_id: str) -> CommittedRun | None:
        """Return the commit of a load with this run id (run_ids.py); None if the table has or remembers none."""

    def next_offsets_of_rows(self) -> dict[TopicPartition, int]:
        """Return the offset after the last row of each partition. This reads three columns of the whole table."""

    def rows_of(self, topic: str, start_offset: int, columns: Collection[str]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a topic from an offset on, in all its partitions.

        :param columns: The columns to read. Columns that the table lacks are left out.
        :raises WarehouseError: The rows cannot be read.
        """

    def location(self) -> Location:
        """Return the location of the table's files; for a new table the location that it will get."""

    def contents(self) -> Contents:
        """Return the number and the sizes of the table's files, its records and versions."""

    def data_files(self, columns: Collection[str]) -> list[StoredFile]:
        """Return the files of a state table; an empty list for a table that does not exist.

        :param columns: The columns whose bounds the caller needs.
        :raises WarehouseError: The list of files cannot be read, or other files delete rows of these files.
        """

    def rows_of_file(self, file: StoredFile, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a file in their order.

        :param schema: The columns to read. Columns that the file lacks are null, and widened ones are cast.
        :raises WarehouseError: The file cannot be read.
        """

    def commit(
        self,
        files: Sequence[DataFile],
        properties: dict[str, str],
        shape: TableShape,
        replaced: Collection[StoredFile] = (),
    ) -> int:
        """Add files and properties in one commit, and return the number of the commit.

        :param shape: The shape of the rows in the files. The table gets the columns that it lacks.
        :param replaced: Files that the same commit removes from the table; only in state tables.
        :raises LoadConflictError: The table has changed since `begin`.
        :raises WarehouseError: The commit failed, and the table is unchanged.
        """


class TableStore(Protocol):
    """The tables of one format in a warehouse or catalog. Not thread-safe."""

    def begin(self, name: str) -> StoredTable:
        """Return the version of a table that a load starts from.

        :raises WarehouseError: The table lacks a column that each loaded table has, or cannot be read.
        """

    def current_table(self, name: str) -> StoredTable:
        """Return the current version of a table for reading. The table may be made by another tool.

        :raises WarehouseError: The table cannot be read.
        """

    def committed_loads(self, name: str, load_ids: Collection[str]) -> set[str]:
        """Return the given load ids whose files are in any version of the table's history."""


class Maintainer(Protocol):
    """The maintenance of one table, in steps. A kill after any step leaves the rows unchanged."""

    name: str

    def compact(self, target_bytes: int = TARGET_BYTES, small_bytes: int = SMALL_FILE_BYTES) -> tuple[int, int]:
        """Merge small files. Return the number of merged files, and the number of new files.

        :raises LoadConflictError: Another writer has committed since the maintenance started.
        """

    def expire(self, age: timedelta = SNAPSHOT_AGE) -> int:
        """Expire versions that are older than `age`, but keep the ledger. Return the number of expired versions."""

    def remove_orphans(self, age: timedelta = ORPHAN_AGE) -> int:
        """Remove files that no version references and that are older than `age`. Return the number of files."""


@dataclass(frozen=True, slots=True)
class TableFormat:
    """The functions for tables of one format.

    :param snapshots: Returns a part of a table's versions, from a number of versions and a maximum number.
    :param files: Returns a part of the files of a version.
    """

    open: Callable[[TablePlace], TableStore]
    maintainer: Callable[[TableStore, str, Clock], Maintainer]
    scan: Callable[[StoredTable, Sequence[str] | None, str | None], Iterator[pa.RecordBatch]]
    frame: Callable[[SparkSession, StoredTable, str | None], DataFrame]
    snapshots: Callable[[StoredTable, int, int], SnapshotPage]
    files: Callable[[StoredTable, int, int, int], FilePage]
    definition: Callable[[StoredTable], TableDefinition]


def maintain(
    maintainer: Maintainer,
    *,
    target_bytes: int = TARGET_BYTES,
    small_bytes: int = SMALL_FILE_BYTES,
    snapshot_age: timedelta = SNAPSHOT_AGE,
    orphan_age: timedelta = ORPHAN_AGE,
) -> Maintained:
    """Run all maintenance steps.

    :param target_bytes: The approximate size of merged files.
    :param small_bytes: Files below this size are merged.
    :param snapshot_age: Older versions expire, except the current one.
    :param orphan_age: Files without a version that are older are removed.
    :raises LoadConflictError: Another writer has committed meanwhile; run the maintenance again.
    :raises WarehouseError: A step failed.
    """
    compacted, written = maintainer.compact(target_bytes, small_bytes)
    expired = maintainer.expire(snapshot_age)
    removed = maintainer.remove_orphans(orphan_age)
    return Maintained(maintainer.name, compacted, written, expired, removed)
