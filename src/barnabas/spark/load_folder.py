"""The data directory of a load in a local warehouse: its lock, and the rule for its removal.

A running load holds a lock on `loads/<load id>.lock` in the table's directory, and its tasks write to `data/<load
id>/`. The kernel releases the lock when the process ends. So a lock file without a lock belongs to a dead load; if its
data was not committed, the next load removes the data directory. A load never touches the directory of a running load,
and ignores directories without a lock file.

A load creates and locks the file under another name and then renames it, so no other load mistakes it for the file of a
dead load. Tasks create no directories: tasks of a dead load that still run fail once their directory is removed.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

from barnabas.portable import try_lock
from barnabas.spark.errors import WarehouseError, is_as_before
from barnabas.spark.library_errors import library_errors
from barnabas.spark.object_files import file_system_of, files_below, remove_below, remove_file

if TYPE_CHECKING:
    from barnabas.spark.table_store import Location

SUFFIX = ".lock"
_LOAD_ID = re.compile("[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class LoadFolder:
    """The data directory of a running load, and its lock. Call `release`, `discard` or `abandon` at the end."""

    data: Path
    lock_path: Path
    lock: IO[str]

    @classmethod
    def claim(cls, table_folder: Path, load_id: str) -> LoadFolder:
        """Create the data directory of a new load, and lock it.

        :raises OSError: The warehouse is full or not writable.
        """
        lock_path = table_folder / "loads" / f"{load_id}{SUFFIX}"
        lock_path.parent.mkdir(parents=True, exist_ok=True)
        unnamed = lock_path.with_suffix(".new")
        lock = unnamed.open("x")
        try_lock(lock.fileno())  # nobody else knows the name of the new file
        lock.write(f"process {os.getpid()}\n")
        lock.flush()
        unnamed.rename(lock_path)
        data = table_folder / "data" / load_id
        data.mkdir(parents=True)
        return cls(data, lock_path, lock)

    def keep_only(self, files: Iterable[str]) -> None:
        """Remove all files except those to commit. Killed and repeated task attempts leave other files.

        An executor that is lost but still runs may write more files later. Maintenance removes these files, and those
        that cannot be removed now, when they reach the orphan age.
        """
        kept = {file_name_of(file) for file in files}
        with suppress(OSError):
            for path in self.data.iterdir():
                if path.name not in kept:
                    path.unlink(missing_ok=True)

    def release(self) -> None:
        """Unlock the directory and keep its files, which the table references now."""
        self.lock_path.unlink(missing_ok=True)
        self.lock.close()

    def discard(self) -> None:
        """Remove the files, which no snapshot references, and unlock the directory."""
        shutil.rmtree(self.data, ignore_errors=True)
        if self.data.exists():
            # A running task wrote a file during the removal, so keep the lock file. The next load finds it and removes
            # the rest.
            self.lock.close()
        else:
            self.release()

    def abandon(self) -> None:
        """Unlock the directory and keep the lock file. The next load finds out whether the files were committed."""
        self.lock.close()

    def give_up_after(self, error: BaseException) -> None:
        """Unlock the directory after a failed commit. Remove the files only if the error proves that nothing
        committed."""
        if is_as_before(error):
            self.discard()
        else:
            self.abandon()


class RemoteFolder:
    """The data directory of a load in remote storage, which has no locks.

    A load that fails removes its own files. `table maintain` removes the files of killed loads when they reach the
    orphan age, as Iceberg's orphan file removal does.

    :param properties: The storage properties, as pyiceberg names them.
    """

    def __init__(self, properties: Mapping[str, str], uri: str) -> None:
        self._properties = properties
        self._uri = uri

    def keep_only(self, files: Iterable[str]) -> None:
        """Remove all files except those to commit, as `LoadFolder.keep_only` does."""
        kept = {file_name_of(file) for file in files}
        with suppress(OSError):
            for file in files_below(self._properties, self._uri):
                if file_name_of(file.uri) not in kept:
                    remove_file(self._properties, file.uri)

    def release(self) -> None:
        """Do nothing: there is no lock."""

    def discard(self) -> None:
        """Remove the files, which no snapshot references. Maintenance removes the rest by age."""
        with suppress(OSError):
            remove_below(self._properties, self._uri)

    def abandon(self) -> None:
        """Do nothing. Maintenance removes the files by age if the table does not reference them."""

    def give_up_after(self, error: BaseException) -> None:
        """Remove the files after a failed commit, but only if the error proves that nothing was committed."""
        if is_as_before(error):
            self.discard()


Folder = LoadFolder | RemoteFolder


def claim_folder(location: Location, load_id: str, table: str) -> Folder:
    """Create and lock the data directory of a new load, in local or remote storage.

    :raises WarehouseError: The warehouse is full, not writable, or of an unsupported kind.
    """
    folder = location.local_folder
    if folder is None:
        with library_errors(f"table {table} is unchanged: cannot write to {location.uri}"):
            file_system_of(location.properties, location.uri)
        return RemoteFolder(location.properties, f"{location.uri}/data/{load_id}")
    try:
        return LoadFolder.claim(folder, load_id)
    except OSError as error:
        raise WarehouseError(f"table {table} is unchanged: cannot write: {error}") from error


def file_name_of(file: str) -> str:
    """Return the last part of a path or URI: the file name."""
    return file.rpartition("/")[2]


def remove_leftovers(table_folder: Path, committed: Callable[[Collection[str]], Collection[str]]) -> list[str]:
    """Remove the files of dead loads that were not committed, and return the ids of these loads.

    :param committed: Returns those of the given load ids whose files the table references. It is called while the locks
        are held. A dead load cannot commit later, so the answer stays correct.
    """
    with _dead_locks(table_folder / "loads") as dead:
        if not dead:
            return []
        kept = committed([lock.stem for lock in dead])
        removed = []
        for lock in dead:
            folder = table_folder / "data" / lock.stem
            if lock.stem not in kept and folder.exists():
                shutil.rmtree(folder, ignore_errors=True)
                removed.append(lock.stem)
            if lock.stem in kept or not folder.exists():
                lock.unlink(missing_ok=True)
        return removed


def remove_empty_folders(table_folder: Path) -> int:
    """Remove the empty data directories of loads that have ended. Return their number.

    Directories are listed before locks: a running load has its lock before it has its directory.
    """
    ended = [path for path in (table_folder / "data").glob("*") if _LOAD_ID.fullmatch(path.name)]
    running = {path.stem for path in (table_folder / "loads").glob(f"*{SUFFIX}")}
    removed = 0
    for path in ended:
        if path.name not in running:
            with suppress(OSError):  # the directory has files
                path.rmdir()
                removed += 1
    return removed


@contextmanager
def _dead_locks(folder: Path) -> Iterator[list[Path]]:
    """Return a context manager that locks all lock files of dead loads, and yields them."""
    taken: list[tuple[Path, IO[str]]] = []
    lock: IO[str]
    try:
        for path in sorted(folder.glob(f"*{SUFFIX}")):
            with suppress(FileNotFoundError):  # another load has removed the file
                lock = path.open()
                if _take(lock, path):
                    taken.append((path, lock))
                else:
                    lock.close()
        yield [path for path, _ in taken]
    finally:
        for _, lock in taken:
            lock.close()


def _take(lock: IO[str], path: Path) -> bool:
    if not try_lock(lock.fileno()):
        return False
    # Another load may have removed the file between open and flock.
    return path.exists() and path.stat().st_ino == os.fstat(lock.fileno()).st_ino
