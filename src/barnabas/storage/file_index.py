"""An index file of a sealed segment: each lookup reads it; it is never mapped and never trusted.

A lookup reads a few entries to narrow the search, and then the few hundred between them at once.

Errors. A file that has become shorter raises CorruptBatchError; the caller can rebuild the index.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from typing import Any

from barnabas.errors import CorruptBatchError
from barnabas.storage.filesystem import DataFile, FileSystem

_BLOCK_ENTRIES = 256
"""When the search has come down to so many entries, they are read at once."""


class FileIndex:
    """Entries of one size, in ascending order.

    :param size: of the file, in bytes; the bytes after the last whole entry are ignored.
    """

    __slots__ = ("_entry", "_file", "_filesystem", "_length")

    def __init__(self, filesystem: FileSystem, file: DataFile, size: int, entry: struct.Struct) -> None:
        self._filesystem = filesystem
        self._file = file
        self._entry = entry
        self._length = size // entry.size

    def __len__(self) -> int:
        return self._length

    def read(self, number: int) -> tuple[Any, ...]:
        """Return an entry.

        :raises CorruptBatchError: the file has become shorter.
        """
        return self._entry.unpack(self._block(number, 1))

    def floor(self, target: int, column: int) -> tuple[Any, ...] | None:
        """Return the last entry whose number in a column is not above the one given."""
        low, high = 0, self._length
        while high - low > _BLOCK_ENTRIES:
            middle = (low + high) // 2
            if self.read(middle)[column] <= target:
                low = middle
            else:
                high = middle
        entries = list(self._entry.iter_unpack(self._block(low, high - low)))
        found = bisect_right(entries, target, key=lambda entry: entry[column]) - 1
        return entries[found] if found >= 0 else None

    def _block(self, first: int, count: int) -> bytes:
        size = count * self._entry.size
        data = self._filesystem.pread(self._file, size, first * self._entry.size)
        if len(data) < size:
            raise CorruptBatchError(f"{self._file.path} was cut short")
        return data
