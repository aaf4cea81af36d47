"""The sparse index of a segment by time: up to which offset no record is later than a timestamp.

File format (Kafka's): entries of 12 bytes, big-endian: timestamp in ms, i64; offset, relative to the segment's
base offset, u32. The entry (T, O) says that T is the greatest timestamp in the segment up to the batch that ends
with O, and that this batch holds it; every record later than T comes after O. Timestamps and offsets ascend.

As with the offset index, the active segment's grows in memory, and the others' files are mapped.
"""

from __future__ import annotations

import mmap
import struct
from array import array
from bisect import bisect_right
from typing import NamedTuple, Protocol

ENTRY_SIZE = 12

_ENTRY = struct.Struct(">qI")


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
        self._timestamps_ms: array[int] = array("q")
        self._offsets: array[int] = array("I")

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
            index._timestamps_ms.append(timestamp_ms)
            index._offsets.append(relative_offset)
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
            self._timestamps_ms.append(timestamp_ms)
            self._offsets.append(relative_offset)

    def floor(self, timestamp_ms: int) -> TimeOffset | None:
        return self._entry(bisect_right(self._timestamps_ms, timestamp_ms) - 1)

    def last(self) -> TimeOffset | None:
        return self._entry(len(self) - 1)

    def truncate(self, relative_offset: int) -> None:
        """Drop the entries at and above an offset."""
        count = bisect_right(self._offsets, relative_offset - 1)
        del self._timestamps_ms[count:]
        del self._offsets[count:]

    def _entry(self, index: int) -> TimeOffset | None:
        return TimeOffset(self._timestamps_ms[index], self._offsets[index]) if index >= 0 else None


class MappedTimeIndex:
    """The index of a segment that is not written any more, read from a map of its file."""

    __slots__ = ("_length", "_map")

    def __init__(self, content: mmap.mmap | bytes) -> None:
        self._map = content
        self._length = len(content) // ENTRY_SIZE

    def __len__(self) -> int:
        return self._length

    def floor(self, timestamp_ms: int) -> TimeOffset | None:
        entries = range(self._length)
        return self._entry(bisect_right(entries, timestamp_ms, key=self._timestamp_ms) - 1)

    def last(self) -> TimeOffset | None:
        return self._entry(self._length - 1)

    def _timestamp_ms(self, index: int) -> int:
        timestamp_ms: int = _ENTRY.unpack_from(self._map, index * ENTRY_SIZE)[0]
        return timestamp_ms

    def _entry(self, index: int) -> TimeOffset | None:
        return TimeOffset(*_ENTRY.unpack_from(self._map, index * ENTRY_SIZE)) if index >= 0 else None
