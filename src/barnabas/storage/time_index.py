"""The sparse index of a segment by time: for a timestamp, the offset up to which no record is later.

File format (Kafka's): entries of 12 bytes, big-endian: timestamp in ms, i64; offset, relative to the segment's base
offset, u32. The entry (T, O) states that T is the greatest timestamp in the segment up to the batch that ends with O,
and that this batch holds it; every record later than T comes after O. Timestamps and offsets ascend.

As with the offset index, that of the active segment grows in memory, and the others are read from their files.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_right
from typing import NamedTuple, Protocol

from barnabas.model import NO_OFFSET
from barnabas.records.scan import SegmentScan
from barnabas.storage.file_index import FileIndex
from barnabas.storage.filesystem import DataFile, FileSystem

ENTRY_SIZE = 12

_ENTRY = struct.Struct(">qI")

_NO_TIMESTAMPS, _NO_OFFSETS = array("q"), array("I")
"""Shared by all indexes without entries, and never changed."""


class TimeOffset(NamedTuple):
    """One entry: the greatest timestamp so far, and the last offset of the batch that has it."""

    timestamp_ms: int
    relative_offset: int


class TimeLookup(Protocol):
    """What a reader asks an index."""

    def __len__(self) -> int: ...

    def floor(self, timestamp_ms: int) -> TimeOffset | None:
        """Return the last entry whose timestamp is not above the one given."""
        ...

    def last(self) -> TimeOffset | None: ...


class TimeIndex:
    """The index of an active segment, in memory."""

    __slots__ = ("_offsets", "_timestamps_ms")

    def __init__(self) -> None:
        self._timestamps_ms, self._offsets = _NO_TIMESTAMPS, _NO_OFFSETS

    @classmethod
    def decode(cls, data: bytes) -> TimeIndex:
        """Read a file's content.

        :raises ValueError: it is not a list of ascending entries.
        """
        if len(data) % ENTRY_SIZE:
            raise ValueError(f"time index of {len(data)} bytes; must be a multiple of {ENTRY_SIZE}")
        index = cls()
        for timestamp_ms, relative_offset in _ENTRY.iter_unpack(data):
            last = index.last()
            if last and (timestamp_ms <= last.timestamp_ms or relative_offset <= last.relative_offset):
                raise ValueError("the entries of the time index do not ascend")
            index._append(timestamp_ms, relative_offset)
        return index

    @classmethod
    def of_scan(cls, scan: SegmentScan) -> TimeIndex:
        """Take over the entries that a scan of the batches brought, the one for the end included."""
        index = cls()
        index._timestamps_ms, index._offsets = scan.time_entries
        if scan.max_timestamp_offset != NO_OFFSET:
            index.maybe_append(scan.max_timestamp_ms, scan.max_timestamp_offset - scan.base_offset)
        return index

    def copy(self) -> TimeIndex:
        """Return an index that does not change with this one."""
        index = TimeIndex()
        index._timestamps_ms, index._offsets = self._timestamps_ms[:], self._offsets[:]
        return index

    def encode(self) -> bytes:
        """Return the content of the index file."""
        return b"".join(map(_ENTRY.pack, self._timestamps_ms, self._offsets))

    def __len__(self) -> int:
        return len(self._offsets)

    def maybe_append(self, timestamp_ms: int, relative_offset: int) -> None:
        """Add an entry, unless time has not gone on since the last one."""
        if not self._offsets or timestamp_ms > self._timestamps_ms[-1]:
            assert not self._offsets or relative_offset > self._offsets[-1]
            self._append(timestamp_ms, relative_offset)

    def extend(self, timestamps_ms: array[int], relative_offsets: array[int]) -> None:
        """Add entries that come after all that there are."""
        if timestamps_ms:
            self._timestamps_ms, self._offsets = self._timestamps_ms + timestamps_ms, self._offsets + relative_offsets

    def floor(self, timestamp_ms: int) -> TimeOffset | None:
        return self._entry(bisect_right(self._timestamps_ms, timestamp_ms) - 1)

    def last(self) -> TimeOffset | None:
        return self._entry(len(self) - 1)

    def truncate(self, relative_offset: int) -> None:
        """Drop the entries at and above an offset."""
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
    """The index of a segment that is not written any more, read from its file."""

    __slots__ = ("_entries",)

    def __init__(self, filesystem: FileSystem, file: DataFile, size: int) -> None:
        self._entries = FileIndex(filesystem, file, size, _ENTRY)

    def __len__(self) -> int:
        return len(self._entries)

    def floor(self, timestamp_ms: int) -> TimeOffset | None:
        found = self._entries.floor(timestamp_ms, 0)
        return TimeOffset(*found) if found else None

    def last(self) -> TimeOffset | None:
        return TimeOffset(*self._entries.read(len(self) - 1)) if len(self) else None
