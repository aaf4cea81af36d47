"""The folder of a load in a local warehouse: its lock, and the rule for its removal.

While a load runs, it holds a lock on `loads/<load id>.lock` in the table's folder, and its tasks write into
`data/<load id>/`. The kernel gives up the lock when the process ends, in whatever way. So a lock file that is
there and not locked belongs to a load that is dead: if its data was not committed, the folder is removed by the
next load. A load that is alive is never touched, and a folder without a lock file is never looked at.

The lock file gets its name when it is already locked, so that nobody can take a new one for a dead one. Tasks
make no folders: those of a dead load that still run fail as soon as their folder is gone.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

from barnabas.spark.errors import WarehouseError, is_as_before
from barnabas.spark.library_errors import library_errors
from barnabas.spark.object_files import file_system_of, files_below, remove_below, remove_file

if TYPE_CHECKING:
    from barnabas.spark.table_store import Location

SUFFIX = ".lock"


@dataclass(frozen=True, slots=True)
class LoadFolder:
    """The claimed folder of a running load. Give it up with `release` or `discard`."""

    data: Path
    lock_path: Path
    lock: IO[str]

    @classmethod
    def claim(cls, table_folder: Path, load_id: str) -> LoadFolder:
        """Lock and make the folder of a new load.

        :raises OSError: the warehouse is full or not writable.
        """
        lock_path = table_folder / "loads" / f"{load_id}{SUFFIX}"
        lock_path.parent.mkdir(parents=True, exist_ok=True)
        unnamed = lock_path.with_suffix(".new")
        lock = unnamed.open("x")
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.write(f"process {os.getpid()}\n")
        lock.flush()
        unnamed.rename(lock_path)
        data = table_folder / "data" / load_id
        data.mkdir(parents=True)
        return cls(data, lock_path, lock)

    def keep_only(self, files: Iterable[str]) -> None:
        """Remove all files but those that are to be committed: tasks that were killed or done again leave some.

        What cannot be removed now is removed by age, and so is what is written later, by a task whose executor was
        given up while it was still at work.
        """
        kept = {file_name_of(file) for file in files}
        with suppress(OSError):
            for path in self.data.iterdir():
                if path.name not in kept:
                    path.unlink(missing_ok=True)

    def release(self) -> None:
        """Give up the claim; the files stay: they are the table's now."""
        self.lock_path.unlink(missing_ok=True)
        self.lock.close()

    def discard(self) -> None:
        """Remove the files, which no snapshot names, and give up the claim."""
        shutil.rmtree(self.data, ignore_errors=True)
        if self.data.exists():
            # A task that still runs wrote while we removed; the next load finds the lock file and does the rest.
            self.lock.close()
        else:
            self.release()

    def abandon(self) -> None:
        """Leave it to the next load to find out whether the files are the table's."""
        self.lock.close()

    def give_up_after(self, error: BaseException) -> None:
        """Give up the claim after a commit that ended with an error: only some say that the files are nobody's."""
        if is_as_before(error):
            self.discard()
        else:
            self.abandon()


class RemoteFolder:
    """The folder of a load where files are not this machine's: no locks there, so what a kill left is removed by age.

    `table maintain` does that, as Iceberg's own removal of orphan files would. A load that fails removes its own.

    :param properties: how it is reached, as pyiceberg names them.
    """

    def __init__(self, properties: Mapping[str, str], uri: str) -> None:
        self._properties = properties
        self._uri = uri

    def keep_only(self, files: Iterable[str]) -> None:
        """Remove all files but those that are to be committed, as `LoadFolder` does."""
        kept = {file_name_of(file) for file in files}
        with suppress(OSError):
            for file in files_below(self._properties, self._uri):
                if file_name_of(file.uri) not in kept:
                    remove_file(self._properties, file.uri)

    def release(self) -> None:
        """Nothing to do."""

    def discard(self) -> None:
        """Remove the files, which nobody names; what cannot be removed now is removed by age."""
        with suppress(OSError):
            remove_below(self._properties, self._uri)

    def abandon(self) -> None:
        """Nothing to do: they are removed by age, if they are not the table's."""

    def give_up_after(self, error: BaseException) -> None:
        """Remove the files after a commit that ended with an error, if that says that they are nobody's."""
        if is_as_before(error):
            self.discard()


Folder = LoadFolder | RemoteFolder


def claim_folder(location: Location, load_id: str, table: str) -> Folder:
    """Return the folder of a new load, wherever its table is.

    :raises WarehouseError: the warehouse is full or not writable, or of a kind that nothing here can write to.
    """
    folder = location.local_folder
    if folder is None:
        with library_errors(f"table {table} is as before: cannot write to {location.uri}"):
            file_system_of(location.properties, location.uri)
        return RemoteFolder(location.properties, f"{location.uri}/data/{load_id}")
    try:
        return LoadFolder.claim(folder, load_id)
    except OSError as error:
        raise WarehouseError(f"table {table} is as before: cannot write: {error}") from error


def file_name_of(file: str) -> str:
    """Return a file's name in its folder, which its path and its URI have in common."""
    return file.rpartition("/")[2]


def remove_leftovers(table_folder: Path, committed: Callable[[Collection[str]], Collection[str]]) -> list[str]:
    """Remove what loads that died have left, and return their ids.

    :param committed: given ids of dead loads, returns those whose files the table names. It is asked when the
        locks are held, so no answer can become wrong: a dead load commits nothing any more.
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


@contextmanager
def _dead_locks(folder: Path) -> Iterator[list[Path]]:
    """Take the locks that nobody holds, for as long as the context lasts."""
    taken: list[tuple[Path, IO[str]]] = []
    lock: IO[str]
    try:
        for path in sorted(folder.glob(f"*{SUFFIX}")):
            with suppress(FileNotFoundError):  # another load that cleans up was faster
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
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    # Whoever cleaned up before us may have removed it between our open and our lock.
    return path.exists() and path.stat().st_ino == os.fstat(lock.fileno()).st_ino
