"""The sparse indexes of a segment, in Kafka's file formats: the offset index and the time index.

The offset index has big-endian entries of 8 bytes, in ascending order. An entry contains the last offset of a batch
relative to the base offset of the segment (u32), and the position of this batch in the segment (u32). There is about
one entry per `index.interval.bytes` (paper, 3.1: the sorted list of offsets that the broker keeps in memory). A lookup
can detect a wrong entry, because the batch at the position must end with the offset.

The time index has big-endian entries of 12 bytes: a timestamp in ms (i64), and an offset relative to the base offset of
the segment (u32). The entry (T, O) means that T is the greatest timestamp of all batches up to the batch that ends with
O, and that this batch contains T. So all records with a later timestamp have offsets above O. Timestamps and offsets
ascend.

The indexes of the active segment grow in memory (`OffsetIndex`, `TimeIndex`). The indexes of a sealed segment are read
from their files (`FileOffsetIndex`, `FileTimeIndex`), which are never memory-mapped and never trusted. A lookup in a
file does a binary search that reads single entries, and then reads the last few hundred entries with one read.

Errors. A truncated file raises CorruptBatchError, and the caller can rebuild the index.
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_right
from typing import Any, NamedTuple, Protocol

from barnabas.errors import CorruptBatchError
from barnabas.model import NO_OFFSET
from barnabas.records.scan import SegmentScan
from barnabas.storage.filesystem import DataFile, FileSystem

_BLOCK_ENTRIES = 256
"""If a binary search has at most this number of entries left, it reads all of them with one read."""


class FileIndex:
    """Entries of one size in a file, in ascending order.

    :param size: the size of the file, in bytes; bytes after the last complete entry are ignored.
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
        """Return the entry with this number.

        :raises CorruptBatchError: the file was truncated.
        """
        return self._entry.unpack(self._block(number, 1))

    def floor(self, target: int, column: int) -> tuple[Any, ...] | None:
        """Return the last entry whose value in `column` is at most `target`, or None."""
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
            raise CorruptBatchError(f"{self._file.path} was truncated")
        return data


OFFSET_ENTRY_SIZE = 8

_OFFSET_ENTRY = struct.Struct(">II")
_UINT32 = "I"

_SWAP = sys.byteorder == "little"

assert array(_UINT32).itemsize == 4

_NONE = array(_UINT32)
"""An empty array that all empty indexes share. It is never changed."""


class OffsetPosition(NamedTuple):
    """An entry of the offset index: the relative last offset of a batch, and the position of the batch."""

    relative_offset: int
    position: int


class OffsetLookup(Protocol):
    """The lookups of an offset index."""

    def __len__(self) -> int: ...

    def floor(self, relative_offset: int) -> OffsetPosition | None:
        """Return the last entry whose relative offset is at most `relative_offset`, or None."""
        ...

    def floor_position(self, position: int) -> OffsetPosition | None:
        """Return the last entry whose position is at most `position`, or None."""
        ...


class OffsetIndex:
    """The offset index of an active segment, in memory, with eight bytes per entry."""

    __slots__ = ("_offsets", "_positions")

    def __init__(self) -> None:
        self._offsets = self._positions = _NONE

    @classmethod
    def decode(cls, data: bytes) -> OffsetIndex:
        """Decode the content of an index file.

        :raises ValueError: the entries are incomplete or do not ascend.
        """
        if len(data) % OFFSET_ENTRY_SIZE:
            raise ValueError(f"the offset index has {len(data)} bytes, which is not a multiple of {OFFSET_ENTRY_SIZE}")
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
        """Return an index with the entries of a scan."""
        index = cls()
        index._offsets, index._positions = scan.offset_entries
        return index

    def copy(self) -> OffsetIndex:
        """Return an independent copy."""
        index = OffsetIndex()
        index._offsets, index._positions = self._offsets[:], self._positions[:]
        return index

    def encode(self) -> bytes:
        """Return the content of the index file."""
        numbers = array(_UINT32, bytes(OFFSET_ENTRY_SIZE * len(self)))
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
        """Append entries. They must be greater than the existing entries."""
        if relative_offsets:
            self._offsets, self._positions = self._offsets + relative_offsets, self._positions + positions

    def floor(self, relative_offset: int) -> OffsetPosition | None:
        return self._entry(bisect_right(self._offsets, relative_offset) - 1)

    def floor_position(self, position: int) -> OffsetPosition | None:
        return self._entry(bisect_right(self._positions, position) - 1)

    def last(self) -> OffsetPosition | None:
        return self._entry(len(self) - 1)

    def truncate(self, relative_offset: int) -> None:
        """Remove the entries at and above a relative offset."""
        count = bisect_right(self._offsets, relative_offset - 1)
        del self._offsets[count:]
        del self._positions[count:]

    def truncate_positions(self, position: int) -> None:
        """Remove the entries at and above a position."""
        count = bisect_right(self._positions, position - 1)
        del self._offsets[count:]
        del self._positions[count:]

    def _entry(self, index: int) -> OffsetPosition | None:
        return OffsetPosition(self._offsets[index], self._positions[index]) if index >= 0 else None


class FileOffsetIndex:
    """The offset index of a sealed segment, read from its file."""

    __slots__ = ("_entries",)

    def __init__(self, filesystem: FileSystem, file: DataFile, size: int) -> None:
        self._entries = FileIndex(filesystem, file, size, _OFFSET_ENTRY)

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


TIME_ENTRY_SIZE = 12

_TIME_ENTRY = struct.Struct(">qI")

_NO_TIMESTAMPS, _NO_OFFSETS = array("q"), array("I")
"""Empty arrays that all empty indexes share. They are never changed."""


class TimeOffset(NamedTuple):
    """An entry of the time index: the greatest timestamp up to a batch, and the last offset of this batch."""

    timestamp_ms: int
    relative_offset: int


class TimeLookup(Protocol):
    """The lookups of a time index."""

    def __len__(self) -> int: ...

    def floor(self, timestamp_ms: int) -> TimeOffset | None:
        """Return the last entry whose timestamp is at most `timestamp_ms`, or None."""
        ...

    def last(self) -> TimeOffset | None: ...


class TimeIndex:
    """The time index of an active segment, in memory."""

    __slots__ = ("_offsets", "_timestamps_ms")

    def __init__(self) -> None:
        self._timestamps_ms, self._offsets = _NO_TIMESTAMPS, _NO_OFFSETS

    @classmethod
    def decode(cls, data: bytes) -> TimeIndex:
        """Decode the content of an index file.

        :raises ValueError: the entries are incomplete or do not ascend.
        """
        if len(data) % TIME_ENTRY_SIZE:
            raise ValueError(f"the time index has {len(data)} bytes, which is not a multiple of {TIME_ENTRY_SIZE}")
        index = cls()
        for timestamp_ms, relative_offset in _TIME_ENTRY.iter_unpack(data):
            last = index.last()
            if last and (timestamp_ms <= last.timestamp_ms or relative_offset <= last.relative_offset):
                raise ValueError("the entries of the time index do not ascend")
            index._append(timestamp_ms, relative_offset)
        return index

    @classmethod
    def of_scan(cls, scan: SegmentScan) -> TimeIndex:
        """Return an index with the entries of a scan, including an entry for the greatest timestamp at its end."""
        index = cls()
        index._timestamps_ms, index._offsets = scan.time_entries
        if scan.max_timestamp_offset != NO_OFFSET:
            index.maybe_append(scan.max_timestamp_ms, scan.max_timestamp_offset - scan.base_offset)
        return index

    def copy(self) -> TimeIndex:
        """Return an independent copy."""
        index = TimeIndex()
        index._timestamps_ms, index._offsets = self._timestamps_ms[:], self._offsets[:]
        return index

    def encode(self) -> bytes:
        """Return the content of the index file."""
        return b"".join(map(_TIME_ENTRY.pack, self._timestamps_ms, self._offsets))

    def __len__(self) -> int:
        return len(self._offsets)

    def maybe_append(self, timestamp_ms: int, relative_offset: int) -> None:
        """Append an entry if its timestamp is greater than the timestamp of the last entry."""
        if not self._offsets or timestamp_ms > self._timestamps_ms[-1]:
            assert not self._offsets or relative_offset > self._offsets[-1]
            self._append(timestamp_ms, relative_offset)

    def extend(self, timestamps_ms: array[int], relative_offsets: array[int]) -> None:
        """Append entries. They must be greater than the existing entries."""
        if timestamps_ms:
            self._timestamps_ms, self._offsets = self._timestamps_ms + timestamps_ms, self._offsets + relative_offsets

    def floor(self, timestamp_ms: int) -> TimeOffset | None:
        return self._entry(bisect_right(self._timestamps_ms, timestamp_ms) - 1)

    def last(self) -> TimeOffset | None:
        return self._entry(len(self) - 1)

    def truncate(self, relative_offset: int) -> None:
        """Remove the entries at and above a relative offset."""
        count = bisect_right(self._offsets, relative_offset - 1)
        del self._timestamps_ms[count:]
        del self._offsets[count:]

    def _append(self, timestamp_ms: int, relative_offset: int) -> None:
        if not self._offsets:
            self._timestamps_ms, self._offsets = array("q", [timestamp_ms]), array("I", [relative_offset])
            return
        self._timestamps_ms.append(timestamp_ms)
        self._offsets.append(relative_offset)

    def _entry(self, index: int) -> TimeOffset | None:
        return TimeOffset(self._timestamps_ms[index], self._offsets[index]) if index >= 0 else None


class FileTimeIndex:
    """The time index of a sealed segment, read from its file."""

    __slots__ = ("_entries",)

    def __init__(self, filesystem: FileSystem, file: DataFile, size: int) -> None:
        self._entries = FileIndex(filesystem, file, size, _TIME_ENTRY)

    def __len__(self) -> int:
        return len(self._entries)

    def floor(self, timestamp_ms: int) -> TimeOffset | None:
        found = self._entries.floor(timestamp_ms, 0)
        return TimeOffset(*found) if found else None

    def last(self) -> TimeOffset | None:
        return TimeOffset(*self._entries.read(len(self) - 1)) if len(self) else None
