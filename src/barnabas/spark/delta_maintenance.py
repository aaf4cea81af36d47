"""Maintenance of Delta tables: small files put together, old versions and their files removed; the ledger is kept.

delta-rs does the work, without Spark. The version that puts files together carries the ledger, and is refused, as a
load is, where somebody else has committed meanwhile. Orphans of loads that run are not touched: their files are young,
and in the local file system their folders are locked (load_folder.py).
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

from barnabas.clock import Clock
from barnabas.spark.day_files import TARGET_BYTES
from barnabas.spark.delta_warehouse import DeltaWarehouse
from barnabas.spark.errors import LoadConflictError
from barnabas.spark.ledger import KEPT_PROPERTIES, LOAD_ID
from barnabas.spark.library_errors import library_errors
from barnabas.spark.load_folder import SUFFIX, remove_leftovers
from barnabas.spark.object_files import files_below, remove_file
from barnabas.spark.table_store import ORPHAN_AGE, SMALL_FILE_BYTES, SNAPSHOT_AGE


class DeltaMaintainer:
    """Maintains one Delta table. Not thread-safe."""

    def __init__(self, warehouse: DeltaWarehouse, name: str, clock: Clock) -> None:
        """Take a table.

        :raises WarehouseError: there is none.
        """
        base = warehouse.begin(name)
        assert base.table, "it raises where there is none"
        self.name = base.name
        self._warehouse = warehouse
        self._clock = clock

    def compact(self, target_bytes: int = TARGET_BYTES, small_bytes: int = SMALL_FILE_BYTES) -> tuple[int, int]:
        """Put files below the target size together. Returns how many there were, and how many came of them.

        :param small_bytes: of no effect: delta-rs takes all files below the target.
        :raises LoadConflictError: somebody else has committed meanwhile.
        """
        base = self._warehouse.begin(self.name)
        folder = base.location().local_folder
        if folder is not None:
            remove_leftovers(folder, partial(self._warehouse.committed_loads, self.name))
        last = base.last_load
        properties = {name: last[name] for name in KEPT_PROPERTIES if name in last}
        committing = CommitProperties({LOAD_ID: uuid.uuid4().hex, **properties}, max_commit_retries=0)
        with self._maintenance_errors("put its small files together"):
            done = base.table.optimize.compact(target_size=target_bytes, commit_properties=committing)
        return int(done["numFilesRemoved"]), int(done["numFilesAdded"])

    def expire(self, age: timedelta = SNAPSHOT_AGE) -> int:
        """Remove the files that are in no version younger than the age, and versions that are old themselves.

        How old versions become in the log is the table's own setting (`delta.logRetentionDuration`, 30 days); without
        their files they cannot be read any more. Returns how many versions are gone.
        """
        table = self._warehouse.begin(self.name).table
        with self._maintenance_errors("expire what is old"):
            before = len(table.history())
            table.vacuum(age // timedelta(hours=1), dry_run=False, enforce_retention_duration=False)
            table.cleanup_metadata()
            return max(0, before - len(self._warehouse.begin(self.name).table.history()))

    def remove_orphans(self, age: timedelta = ORPHAN_AGE) -> int:
        """Remove old files that no version names. Returns how many."""
        with self._maintenance_errors("remove files that nobody names"):
            return self._remove_orphans(age)

    def _remove_orphans(self, age: timedelta) -> int:
        base = self._warehouse.begin(self.name)
        location, folder = base.location(), base.location().local_folder
        alive = set() if folder is None else {path.stem for path in (folder / "loads").glob(f"*{SUFFIX}")}
        before = datetime.fromtimestamp(self._clock.time_s(), UTC) - age
        # What is old is listed first: what a commit names after that is younger.
        old = [file.uri for file in files_below(location.properties, location.uri) if file.modified_at < before]
        unnamed = {unquote(path) for path in self._unnamed()}
        orphans = [uri for uri in old if uri.removeprefix(f"{location.uri}/") in unnamed]
        orphans = [uri for uri in orphans if uri.endswith(".parquet") and uri.split("/")[-2] not in alive]
        for uri in orphans:
            with suppress(FileNotFoundError):
                remove_file(location.properties, uri)
        return len(orphans)

    def _unnamed(self) -> list[str]:
        """Return the files that no version has of those that the log still knows."""
        table = self._warehouse.begin(self.name).table
        known = [entry["version"] for entry in table.history()]
        unnamed = table.vacuum(0, dry_run=True, enforce_retention_duration=False, full=True, keep_versions=known)
        return list(unnamed)

    @contextmanager
    def _maintenance_errors(self, what: str) -> Iterator[None]:
        """Raise what delta-rs ends with as what it means; whatever is done by then leaves the same rows.

        :raises LoadConflictError: somebody else has committed meanwhile.
        :raises WarehouseError: it could not be done.
        """
        with library_errors(f"table {self.name}: cannot {what}, its rows are as before"):
            before = self._version()
            try:
                yield
            except CommitFailedError as error:
                if self._version() == before:
                    raise
                raise LoadConflictError(
                    f"table {self.name}: somebody else changed it while this was running, so nothing of it was kept; "
                    "run it again"
                ) from error

    def _version(self) -> int:
        return int(self._warehouse.current_table(self.name).table.version())
