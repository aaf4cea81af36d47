"""Maintenance of Delta tables: merges small files, removes old versions and their files, and keeps the ledger.

delta-rs does the work, without Spark. The version with the merged files contains the ledger. Its commit fails if
another writer has committed meanwhile, as in a load. Files of running loads are not removed: they are younger than the
orphan age, and in the local file system their directories are locked (load_folder.py).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from urllib.parse import unquote

from deltalake import CommitProperties
from deltalake.exceptions import CommitFailedError

from barnabas.clock import SYSTEM_CLOCK, Clock
from barnabas.spark.data_files import TARGET_BYTES
from barnabas.spark.delta_warehouse import DeltaWarehouse
from barnabas.spark.errors import LoadConflictError
from barnabas.spark.ledger import KEPT_PROPERTIES, LOAD_ID
from barnabas.spark.library_errors import library_errors
from barnabas.spark.load_folder import SUFFIX, remove_empty_folders, remove_leftovers
from barnabas.spark.object_files import files_below, remove_file
from barnabas.spark.table_store import ORPHAN_AGE, SMALL_FILE_BYTES, SNAPSHOT_AGE


class DeltaMaintainer:
    """The maintenance of one Delta table. Not thread-safe."""

    def __init__(self, warehouse: DeltaWarehouse, name: str, clock: Clock) -> None:
        """Open the table.

        :raises WarehouseError: The table does not exist.
        """
        base = warehouse.begin(name)
        assert base.table, "base.table raises an error if the table does not exist"
        self.name = base.name
        self._warehouse = warehouse
        self._clock = clock

    def compact(self, target_bytes: int = TARGET_BYTES, small_bytes: int = SMALL_FILE_BYTES) -> tuple[int, int]:
        """Merge files below the target size. Return the number of merged files, and the number of new files.

        :param small_bytes: Ignored: delta-rs merges all files below the target size.
        :raises LoadConflictError: Another writer has committed meanwhile.
        """
        base = self._warehouse.begin(self.name)
        folder = base.location().local_folder
        if folder is not None:
            remove_leftovers(folder, partial(self._warehouse.committed_loads, self.name))
        last = base.last_load
        properties = {name: last[name] for name in KEPT_PROPERTIES if name in last}
        committing = CommitProperties({LOAD_ID: uuid.uuid4().hex, **properties}, max_commit_retries=0)
        with self._maintenance_errors("merge its small files"):
            done = base.table.optimize.compact(target_size=target_bytes, commit_properties=committing)
        return int(done["numFilesRemoved"]), int(done["numFilesAdded"])

    def expire(self, age: timedelta = SNAPSHOT_AGE) -> int:
        """Remove files that only versions older than `age` contain, and expired versions. Return the number of
        versions.

        The log keeps a version for the time that the table sets (`delta.logRetentionDuration`, 30 days), but a version
        without its files cannot be read.
        """
        table = self._warehouse.begin(self.name).table
        with self._maintenance_errors("expire old versions"):
            before = len(table.history())
            table.vacuum(age // timedelta(hours=1), dry_run=False, enforce_retention_duration=False)
            table.cleanup_metadata()
            return max(0, before - len(self._warehouse.begin(self.name).table.history()))

    def remove_orphans(self, age: timedelta = ORPHAN_AGE) -> int:
        """Remove files that no version contains, and the empty directories of loads. Return the number of files.

        :param age: The least age of a file. For a file that a commit removed from the table, the time since that commit
            also counts: a reader may still use the version before.
        """
        with self._maintenance_errors("remove orphan files"):
            return self._remove_orphans(age)

    def _remove_orphans(self, age: timedelta) -> int:
        base = self._warehouse.begin(self.name)
        location, folder = base.location(), base.location().local_folder
        alive = set() if folder is None else {path.stem for path in (folder / "loads").glob(f"*{SUFFIX}")}
        before = datetime.fromtimestamp(self._clock.time_s(), UTC) - age
        # List the old files before the files of versions: a commit after the listing only references younger files.
        old = [file.uri for file in files_below(location.properties, location.uri) if file.modified_at < before]
        unnamed = {unquote(path) for path in self._unnamed(before)}
        orphans = [uri for uri in old if uri.removeprefix(f"{location.uri}/") in unnamed]
        orphans = [uri for uri in orphans if uri.endswith(".parquet") and uri.split("/")[-2] not in alive]
        for uri in orphans:
            with suppress(FileNotFoundError):
                remove_file(location.properties, uri)
        if folder is not None:
            remove_empty_folders(folder)
        return len(orphans)

    def _unnamed(self, before: datetime) -> list[str]:
        """Return the files that no version in the log contains, without those that were removed after a time."""
        table = self._warehouse.begin(self.name).table
        known = [entry["version"] for entry in table.history()]
        # delta-rs counts from its own clock, which is the system's. A test may have another clock here.
        hours = max(timedelta(), datetime.fromtimestamp(SYSTEM_CLOCK.time_s(), UTC) - before) // timedelta(hours=1)
        unnamed = table.vacuum(hours, dry_run=True, enforce_retention_duration=False, full=True, keep_versions=known)
        return list(unnamed)

    @contextmanager
    def _maintenance_errors(self, what: str) -> Iterator[None]:
        """Convert errors of delta-rs. A failed step leaves the rows unchanged.

        :raises LoadConflictError: Another writer has committed meanwhile.
        :raises WarehouseError: The step failed.
        """
        with library_errors(f"table {self.name}: cannot {what}, its rows are unchanged"):
            before = self._version()
            try:
                yield
            except CommitFailedError as error:
                if self._version() == before:
                    raise
                raise LoadConflictError(
                    f"table {self.name}: another writer changed the table meanwhile, so this run committed nothing; "
                    "run it again"
                ) from error

    def _version(self) -> int:
        return int(self._warehouse.current_table(self.name).table.version())
