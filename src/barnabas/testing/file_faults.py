"""Files that fail or are slow: the files of the operating system, with faults before their operations.

A FUSE file system could do the same from outside. This file system needs no privileges, and fails at the operation that
a test has chosen. It does not affect the embedded metadata store, which is a SQLite file, and the processes of the log
cleaner.
"""

from __future__ import annotations

import errno
import os
import random
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from barnabas.clock import SYSTEM_CLOCK
from barnabas.storage.filesystem import Chunk, DataFile, FilePath, MeasuredFileSystem

WRITES = ("writev", "allocate", "fsync", "truncate", "create", "replace", "fsync_folder", "make_folder")
"""The operations that a full or a read-only disk refuses."""
OPERATIONS = (*WRITES, "unlink", "remove_folder", "read")
"""All operations that can fail or be slow. The operating system sends segments to clients without a read."""

DISK_FULL = "ENOSPC"


@dataclass(frozen=True)
class FileFault:
    """One fault.

    :param number: the number of the fault, from 1. Each fault counts its operations for itself.
    :param operations: the operations that fail or are slow.
    :param paths: a pattern for the whole path of the file; for a rename, the new path. `*` matches `/` as well.
    :param error: the name of an errno, or None if no operation fails.
    :param share: the share of the matching operations, from 0 to 1, that the fault affects at random.
    :param nth: the number of the only affected operation among the matching ones, from 1; None for all.
    :param slow_ms: the additional duration of an operation in milliseconds.
    """

    number: int
    operations: tuple[str, ...]
    paths: str = "*"
    error: str | None = None
    share: float = 1.0
    nth: int | None = None
    slow_ms: float = 0.0


class FileFaults:
    """Applies faults to operations. Thread-safe.

    :param current: returns the faults at this moment.
    :param sleep: waits for a number of seconds.
    :param on_failed: called with each operation that fails, before the error.
    """

    def __init__(
        self,
        current: Callable[[], Sequence[FileFault]],
        sleep: Callable[[float], object] = SYSTEM_CLOCK.sleep,
        on_failed: Callable[[FileFault, str, FilePath], object] = lambda _fault, _operation, _path: None,
    ) -> None:
        self._current = current
        self._sleep = sleep
        self._on_failed = on_failed
        self._lock = threading.Lock()
        self._counts: Counter[int] = Counter()
        self._random = random.Random(0)

    def apply(self, operation: str, path: FilePath) -> None:
        """Wait before an operation, or raise its error.

        :raises OSError: the operation fails.
        """
        for fault in self._current():
            if operation in fault.operations and fnmatchcase(str(path), fault.paths) and self._is_due(fault):
                if fault.slow_ms:
                    self._sleep(fault.slow_ms / 1000)
                if fault.error:
                    self._on_failed(fault, operation, path)
                    number = getattr(errno, fault.error)
                    raise OSError(number, os.strerror(number), str(path))

    def is_full(self, folder: Path) -> bool:
        """Return whether all writes into a folder fail because the disk is full."""
        return any(
            fault.error == DISK_FULL
            and fault.nth is None
            and "writev" in fault.operations
            and fnmatchcase(str(folder / "any"), fault.paths)
            for fault in self._current()
        )

    def _is_due(self, fault: FileFault) -> bool:
        with self._lock:
            self._counts[fault.number] += 1
            is_drawn = fault.share >= 1 or self._random.random() < fault.share
            return is_drawn and fault.nth in {None, self._counts[fault.number]}


class FaultyFileSystem(MeasuredFileSystem):
    """The files of the operating system, with faults. A write that fails has written one half."""

    def __init__(self, faults: FileFaults) -> None:
        super().__init__(SYSTEM_CLOCK.monotonic)
        self._faults = faults

    def open(self, path: FilePath, *, create: bool = False, writable: bool = True) -> DataFile:
        if create and not Path(path).exists():
            self._faults.apply("create", path)
        return super().open(path, create=create, writable=writable)

    def writev(self, file: DataFile, chunks: Sequence[Chunk]) -> int:
        try:
            self._faults.apply("writev", file.path)
        except OSError:
            data = b"".join(chunks)
            super().writev(file, [data[: len(data) // 2]])
            raise
        return super().writev(file, chunks)

    def allocate(self, file: DataFile, size: int) -> None:
        self._faults.apply("allocate", file.path)
        super().allocate(file, size)

    def pread(self, file: DataFile, size: int, position: int) -> bytes:
        self._faults.apply("read", file.path)
        return super().pread(file, size, position)

    def read_all(self, file: DataFile) -> bytes:
        self._faults.apply("read", file.path)
        return super().pread(file, self.size_of(file), 0)

    def fsync(self, file: DataFile) -> None:
        self._faults.apply("fsync", file.path)
        super().fsync(file)

    def truncate(self, file: DataFile, size: int) -> None:
        self._faults.apply("truncate", file.path)
        super().truncate(file, size)

    def replace(self, source: Path, target: Path) -> None:
        self._faults.apply("replace", target)
        super().replace(source, target)

    def unlink(self, path: Path) -> None:
        self._faults.apply("unlink", path)
        super().unlink(path)

    def make_folder(self, path: Path) -> None:
        self._faults.apply("make_folder", path)
        super().make_folder(path)

    def remove_folder(self, path: Path) -> None:
        self._faults.apply("remove_folder", path)
        super().remove_folder(path)

    def fsync_folder(self, path: Path) -> None:
        self._faults.apply("fsync_folder", path)
        super().fsync_folder(path)

    def free_bytes(self, path: Path) -> int:
        return 0 if self._faults.is_full(path) else super().free_bytes(path)
