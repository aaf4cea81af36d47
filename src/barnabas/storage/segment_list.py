"""The segments of a log, in order: sealed ones, and the active one at the end.

Keeps the files of a few sealed segments open, those that were read last. Each segment begins where the one before
ends. `Log` guards every change with its state lock.
"""

from __future__ import annotations

from bisect import bisect_right

from barnabas.storage.segment import ActiveSegment, SealedSegment, Segment

SEALED_OPEN_MAX = 8
"""Sealed segments whose files a log keeps open after they were read."""


class SegmentList:
    """All segments of one log; there is at least the active one."""

    __slots__ = ("_open", "active", "sealed")

    def __init__(self, sealed: list[SealedSegment], active: ActiveSegment) -> None:
        self.sealed = sealed
        self.active = active
        self._open: dict[SealedSegment, None] = {}

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

    def holding(self, offset: int) -> Segment:
        """Return the segment that holds an offset, or will."""
        if offset >= self.active.base_offset:
            return self.active
        segment = self.sealed[bisect_right(self.sealed, offset, key=lambda each: each.base_offset) - 1]
        self._open.pop(segment, None)
        self._open[segment] = None
        if len(self._open) > SEALED_OPEN_MAX:
            oldest = next(iter(self._open))
            del self._open[oldest]
            oldest.release()
        return segment

    def seal_active(self, active: ActiveSegment) -> None:
        """Put another segment behind the active one, whose indexes were stored."""
        self.sealed.append(self.active.seal())
        self.active = active

    def remove_before(self, offset: int) -> list[SealedSegment]:
        """Take out the sealed segments that hold nothing from `offset` on, and let go of their files."""
        gone = [segment for segment in self.sealed if segment.next_offset <= offset]
        del self.sealed[: len(gone)]
        for segment in gone:
            self._open.pop(segment, None)
            segment.close()
        return gone

    def replace(self, sealed: list[SealedSegment], active: ActiveSegment) -> None:
        """Put other segments in place of all."""
        self.sealed, self.active = sealed, active
        self._open.clear()

    def close(self) -> None:
        """Let go of all files."""
        self._open.clear()
        for segment in self.all:
            segment.close()
