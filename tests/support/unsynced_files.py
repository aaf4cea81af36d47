"""A file system for tests that write and restart often, and have no loss of power."""

from __future__ import annotations

from pathlib import Path

from barnabas.storage import OsFileSystem
from barnabas.storage.filesystem import DataFile


class UnsyncedFileSystem(OsFileSystem):
    """The real one, without waiting for the disk."""

    def fsync(self, file: DataFile) -> None:
        pass

    def fsync_folder(self, path: Path) -> None:
        pass
