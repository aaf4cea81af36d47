"""The segments of a log, in order: sealed ones, and the active one at the end.

Each segment covers the offsets up to where the next one begins; it may hold records of some of them, or of none. `Log`
guards every change with its state lock.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from barnabas.storage.active_segment import ActiveSegment
from barnabas.storage.segment import SealedSegment, Segment

SEALED_OPEN_MAX = 8
"""The default number of sealed segments whose files are kept open after they were read."""


class OpenSegments:
    """The sealed segments, of any number of logs, whose files are kept open: those that were read last.

    Each has two files open: its batches and an index. Used from the thread that reads.
    """

    __slots__ = ("_segments", "_segments_max")

    def __init__(self, segments_max: int = SEALED_OPEN_MAX) -> None:
        self._segments: dict[SealedSegment, None] = {}
        self._segments_max = segments_max

    def touch(self, segment: SealedSegment) -> None:
        """Note that a segment is read; close the files of the one that was read longest ago, if there are too many."""
        self._segments.pop(segment, None)
        self._segments[segment] = None
        if len(self._segments) > self._segments_max:
            oldest = next(iter(self._segments))
            del self._segments[oldest]
            oldest.release()

    def forget(self, segment: SealedSegment) -> None:
        """The segment was closed."""
        self._segments.pop(segment, None)


class SegmentList:
    """All segments of one log; there is at least the active one."""

    __slots__ = ("_open", "active", "sealed")

    def __init__(self, sealed: list[SealedSegment], active: ActiveSegment, opened: OpenSegments | None = None) -> None:
        self.sealed = sealed
        self.active = active
        self._open = opened or OpenSegments()

    @property
    def all(self) -> list[Segment]:
        """Every segment, oldest first."""
        return [*self.sealed, self.active]

    @property
    def first(self) -> Segment:
        """The oldest segment."""
        return self.sealed[0] if self.sealed else self.active

    @property
    def base_offsets(self) -> set[int]:
        """Where segments begin."""
        return {segment.base_offset for segment in self.all}

    @property
    def size_bytes(self) -> int:
        """Bytes of batches in all segments."""
        return sum(segment.size for segment in self.sealed) + self.active.size

    @property
    def unflushed_count(self) -> int:
        """How many sealed segments keep their file open until it is flushed."""
        return sum(segment.unflushed_file is not None for segment in self.sealed)

    def sealed_since(self, recovery_point: int) -> list[SealedSegment]:
        """Return the sealed segments of which something was not flushed."""
        return [each for each in self.sealed if each.unflushed_file is not None or each.next_offset > recovery_point]

    def find(self, offset: int) -> tuple[Segment, int]:
        """Return the segment with the first batch that ends at or after `offset`, and the position of that batch.

        Where there is none, this is the active segment, and its size.

        :raises CorruptBatchError: as `Segment.position_of` does.
        :raises OSError: a file cannot be read.
        """
        if offset < self.active.base_offset:
            sealed = self.sealed  # it may be another list when something was compacted meanwhile
            for segment in sealed[_number_covering(sealed, offset) :]:
                if segment.size:
                    self._open.touch(segment)
                    if (position := segment.position_of(offset)) < segment.size:
                        return segment, position
        return self.active, self.active.position_of(offset)

    def end_before(self, offset: int) -> int:
        """Return where the log ends that loses all batches that end at or after `offset`, as `Segment.end_before`."""
        if offset >= self.active.base_offset:
            return self.active.end_before(offset)
        return self.sealed[_number_covering(self.sealed, offset)].end_before(offset)

    def seal_active(self, active: ActiveSegment) -> None:
        """Put another segment behind the active one, whose indexes were stored."""
        sealed = self.active.seal()
        sealed.next_offset = active.base_offset
        self.sealed.append(sealed)
        self.active = active

    def remove_before(self, offset: int) -> list[SealedSegment]:
        """Take out the sealed segments that hold nothing from `offset` on, and let go of their files."""
        gone = [segment for segment in self.sealed if segment.next_offset <= offset]
        del self.sealed[: len(gone)]
        for segment in gone:
            self._open.forget(segment)
            segment.close()
        return gone

    def replace(self, sealed: list[SealedSegment], active: ActiveSegment) -> None:
        """Put other segments in place of all."""
        for segment in self.sealed:
            self._open.forget(segment)
        self.sealed, self.active = sealed, active

    def replace_some(self, old: Sequence[SealedSegment], new: SealedSegment) -> bool:
        """Put a compacted segment in place of some; return False if not all of them are there.

        From then on, whoever has one of the old ones and has not opened its file gets a SegmentReplacedError.
        """
        first = next((number for number, each in enumerate(self.sealed) if each is old[0]), len(self.sealed))
        if self.sealed[first : first + len(old)] != list(old):
            return False
        # Another list, since a reader may be searching in this one.
        self.sealed = [*self.sealed[:first], new, *self.sealed[first + len(old) :]]
        for segment in old:
            segment.replacement.has_begun = True
            segment.close()
        return True

    def close(self) -> None:
        """Let go of all files."""
        for segment in self.sealed:
            self._open.forget(segment)
            segment.close()
        self.active.close()


def _number_covering(sealed: Sequence[SealedSegment], offset: int) -> int:
    """Return the number of the sealed segment that covers an offset."""
    return max(0, bisect_right(sealed, offset, key=lambda each: each.base_offset) - 1)
