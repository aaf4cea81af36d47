"""The sparse index of a segment by offset: the position of the batch that ends with an offset.

File format (Kafka's): entries of 8 bytes, big-endian, in ascending order: last offset of a batch, relative to the
segment's base offset, u32; position of that batch in the segment, u32. There is an entry for about every
`index.interval.bytes` (paper, 3.1: the sorted list of offsets that the broker keeps in memory).

The index of the active segment grows in memory (`OffsetIndex`); that of a sealed segment is read from its file
(`FileOffsetIndex`). Both answer the same lookups. A lookup detects a wrong entry: the batch at the position must end
with the offset.
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_right
from typing import NamedTuple, Protocol

from barnabas.records.scan import SegmentScan
from barnabas.storage.file_index import FileIndex
from barnabas.storage.filesystem import DataFile, FileSystem

ENTRY_SIZE = 8

_ENTRY = struct.Struct(">II")
_UINT32 = "I"

_SWAP = sys.byteorder == "little"

assert array(_UINT32).itemsize == 4

_NONE = array(_UINT32)
"""Shared by all indexes without entries, and never changed."""


class OffsetPosition(NamedTuple):
    """One entry: the batch at `position` ends with the offset that is `relative_offset` above the base."""

    relative_offset: int
    position: int


class OffsetLookup(Protocol):
    """What a reader asks an index."""

    def __len__(self) -> int: ...

    def floor(self, relative_offset: int) -> OffsetPosition | None:
        """Return the last entry whose offset is not above the one given."""
        ...

    def floor_position(self, position: int) -> OffsetPosition | None:
        """Return the last entry whose position is not above the one given."""
        ...


class OffsetIndex:
    """The index of an active segment, in memory, eight bytes per entry."""

    __slots__ = ("_offsets", "_positions")

    def __init__(self) -> None:
        self._offsets = self._positions = _NONE

    @classmethod
    def decode(cls, data: bytes) -> OffsetIndex:
        """Read a file's content.

        :raises ValueError: it is not a list of ascending entries.
        """
        if len(data) % ENTRY_SIZE:
            raise ValueError(f"offset index of {len(data)} bytes; must be a multiple of {ENTRY_SIZE}")
        numbers = array(_UINT32, data)
        if _SWAP:
            numbers.byteswap()
        index = cls()
        index._offsets, index._positions = numbers[0::2], numbers[1::2]
        if not (_ascends(index._offsets) and _ascends(index._positions)):
            raise ValueError("the entries of the offset index do not ascend")
        return index

    @classmethod
    def of_scan(cls, scan: SegmentScan) -> OffsetIndex:
        """Take over the entries that a scan of the batches brought."""
        index = cls()
        index._offsets, index._positions = scan.offset_entries
        return index

    def copy(self) -> OffsetIndex:
        """Return an index that does not change with this one."""
        index = OffsetIndex()
        index._offsets, index._positions = self._offsets[:], self._positions[:]
        return index

    def encode(self) -> bytes:
        """Return the content of the index file."""
        numbers = array(_UINT32, bytes(ENTRY_SIZE * len(self)))
        numbers[0::2], numbers[1::2] = self._offsets, self._positions
        if _SWAP:
            numbers.byteswap()
        return numbers.tobytes()

    def __len__(self) -> int:
        return len(self._positions)

    def append(self, relative_offset: int, position: int) -> None:
        if not self._offsets:
            self._offsets, self._positions = array(_UINT32, [relative_offset]), array(_UINT32, [position])
            return
        assert relative_offset > self._offsets[-1]
        assert position > self._positions[-1]
        self._offsets.append(relative_offset)
        self._positions.append(position)

    def extend(self, relative_offsets: array[int], positions: array[int]) -> None:
        """Add entries that come after all that there are."""
        if relative_offsets:
            self._offsets, self._positions = self._offsets + relative_offsets, self._positions + positions

    def floor(self, relative_offset: int) -> OffsetPosition | None:
        return self._entry(bisect_right(self._offsets, relative_offset) - 1)

    def floor_position(self, position: int) -> OffsetPosition | None:
        return self._entry(bisect_right(self._positions, position) - 1)

    def last(self) -> OffsetPosition | None:
        return self._entry(len(self) - 1)

    def truncate(self, relative_offset: int) -> None:
        """Drop the entries at and above an offset."""
        count = bisect_right(self._offsets, relative_offset - 1)
        del self._offsets[count:]
        del self._positions[count:]

    def truncate_positions(self, position: int) -> None:
        """Drop the entries at and above a position."""
        count = bisect_right(self._positions, position - 1)
        del self._offsets[count:]
        del self._positions[count:]

    def _entry(self, index: int) -> OffsetPosition | None:
        return OffsetPosition(self._offsets[index], self._positions[index]) if index >= 0 else None


class FileOffsetIndex:
    """The index of a segment that is not written any more, read from its file."""

    __slots__ = ("_entries",)

    def __init__(self, filesystem: FileSystem, file: DataFile, size: int) -> None:
        self._entries = FileIndex(filesystem, file, size, _ENTRY)

    def __len__(self) -> int:
        return len(self._entries)

    def floor(self, relative_offset: int) -> OffsetPosition | None:
        return self._floor(relative_offset, 0)

    def floor_position(self, position: int) -> OffsetPosition | None:
        return self._floor(position, 1)

    def _floor(self, target: int, column: int) -> OffsetPosition | None:
        found = self._entries.floor(target, column)
        return OffsetPosition(*found) if found else None


def _ascends(numbers: array[int]) -> bool:
    return all(map(int.__lt__, numbers, numbers[1:]))
