"""The segments of a log in order, with their files: the sealed segments, followed by the active segment.

Invariants. Each segment covers the offsets up to the base offset of the next segment. It may contain records for all,
some or none of these offsets. There is always an active segment. A truncation deletes the files of the last segment
first, so a crash in between leaves no gap.

Threads. The owner of the log reads the list, and the state lock of the log guards each change of the list.
`replace_some` creates a new list of sealed segments, so a search in the old list can continue. Files are truncated and
deleted only by a thread that holds `LogFlusher.file_lock`, while reads return nothing.

Errors. OSError is raised if the file system returns an error, and CorruptBatchError if batches are damaged. The log
handles both errors.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path

from barnabas.records.scan import ANY_GAPS
from barnabas.storage.filesystem import FilePath, FileSystem, is_shortage, remove_if_there
from barnabas.storage.recovery import TRUST_ALL
from barnabas.storage.segment import ActiveSegment, SealedSegment, Segment, delete_segment_files
from barnabas.storage.segment_recovery import EpochCheck, load_segment

SEALED_OPEN_MAX = 8
"""The default number of sealed segments that keep their files open after a read."""


class OpenSegments:
    """The sealed segments that keep their files open, in the order of their last reads.

    Several logs may share this object.

    Each of these segments has two open files: the batches and an index. Only the thread that reads uses this object.
    """

    __slots__ = ("_segments", "_segments_max")

    def __init__(self, segments_max: int = SEALED_OPEN_MAX) -> None:
        self._segments: dict[SealedSegment, None] = {}
        self._segments_max = segments_max

    def touch(self, segment: SealedSegment) -> None:
        """Record a read of a segment.

        If more segments than the limit are open, close the segment with the oldest read.
        """
        self._segments.pop(segment, None)
        self._segments[segment] = None
        if len(self._segments) > self._segments_max:
            oldest = next(iter(self._segments))
            del self._segments[oldest]
            oldest.release()

    def forget(self, segment: SealedSegment) -> None:
        """Remove a closed segment."""
        self._segments.pop(segment, None)


class SegmentList:
    """All segments of one log.

    :param opened: the open segments, shared by all logs; None creates a separate object for this log.
    """

    __slots__ = ("_folder", "_open", "active", "filesystem", "sealed")

    def __init__(
        self,
        filesystem: FileSystem,
        folder: FilePath,
        sealed: list[SealedSegment],
        active: ActiveSegment,
        opened: OpenSegments | None = None,
    ) -> None:
        self.filesystem = filesystem
        self._folder = str(folder)
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
        return {segment.base_offset for segment in self.all}

    @property
    def size_bytes(self) -> int:
        """The total size of the batches of all segments, in bytes."""
        return sum(segment.size for segment in self.sealed) + self.active.size

    @property
    def unflushed_count(self) -> int:
        """The number of sealed segments that keep their file open until a flush."""
        return sum(segment.unflushed_file is not None for segment in self.sealed)

    def sealed_since(self, recovery_point: int) -> list[SealedSegment]:
        """Return the sealed segments that are not completely flushed."""
        return [each for each in self.sealed if each.unflushed_file is not None or each.next_offset > recovery_point]

    def find(self, offset: int) -> tuple[Segment, int]:
        """Return the segment with the first batch that ends at or after `offset`, and the position of this batch.

        If there is no such batch, return the active segment and its size.

        :raises CorruptBatchError: the batches are damaged.
        :raises OSError: a file cannot be read.
        """
        if offset < self.active.base_offset:
            sealed = self.sealed  # `replace_some` may replace the list during the search
            for segment in sealed[_number_covering(sealed, offset) :]:
                if segment.size:
                    self._open.touch(segment)
                    if (position := segment.position_of(offset)) < segment.size:
                        return segment, position
        return self.active, self.active.position_of(offset)

    def end_before(self, offset: int) -> int:
        """Return the log end offset without the batches that end at or after `offset`; see `Segment.end_before`."""
        if offset >= self.active.base_offset:
            return self.active.end_before(offset)
        return self.sealed[_number_covering(self.sealed, offset)].end_before(offset)

    def seal_active(self, active: ActiveSegment) -> None:
        """Seal the active segment, and add a new active segment.

        The indexes of the sealed segment must have been stored.
        """
        sealed = self.active.seal()
        sealed.next_offset = active.base_offset
        self.sealed.append(sealed)
        self.active = active

    def remove_before(self, offset: int) -> list[SealedSegment]:
        """Remove the sealed segments that end at or before `offset` from the list, and close their files."""
        gone = [segment for segment in self.sealed if segment.next_offset <= offset]
        del self.sealed[: len(gone)]
        for segment in gone:
            self._open.forget(segment)
            segment.close()
        return gone

    def replace(self, sealed: list[SealedSegment], active: ActiveSegment) -> None:
        """Replace all segments."""
        for segment in self.sealed:
            self._open.forget(segment)
        self.sealed, self.active = sealed, active

    def replace_some(self, old: Sequence[SealedSegment], new: SealedSegment) -> bool:
        """Replace adjacent segments with a compacted segment. Return False if one of the segments is not in the list.

        After this call, opening a file of an old segment raises SegmentReplacedError.
        """
        first = next((number for number, each in enumerate(self.sealed) if each is old[0]), len(self.sealed))
        if self.sealed[first : first + len(old)] != list(old):
            return False
        # A reader may be searching in the old list, so the list is replaced and not changed.
        self.sealed = [*self.sealed[:first], new, *self.sealed[first + len(old) :]]
        for segment in old:
            segment.replacement.has_begun = True
            segment.close()
        return True

    # --- files ---

    def cut(self, offset: int, index_interval_bytes: int) -> tuple[list[SealedSegment], ActiveSegment]:
        """Truncate the files before the first batch that ends at or after `offset`; return the remaining segments.

        The list itself does not change; the caller must pass the result to `replace`.

        :raises OSError: the file system returned an error, or a sealed segment is damaged.
        """
        self.delete_files([segment for segment in self.all if segment.base_offset > offset])
        kept = [segment for segment in self.sealed if segment.base_offset <= offset]
        active, folder = self.active, Path(self._folder)
        if active.base_offset > offset:
            last = kept.pop()
            active, damage = load_segment(
                self.filesystem, folder, last.base_offset, index_interval_bytes, TRUST_ALL, EpochCheck(None), ANY_GAPS
            )
            last.close()
            if damage is not None:
                raise OSError(f"{last.paths.log} is damaged: {damage}")
        if (batch := active.locate(offset)) is not None:
            active.truncate(batch)
        self._store_indexes(active)
        self.filesystem.fsync_folder(folder)
        return kept, active

    def _store_indexes(self, active: ActiveSegment) -> None:
        """Store the indexes of a truncated segment.

        If the disk is full, remove the stored indexes instead, because they contain entries of removed batches. A later
        read rebuilds the indexes.
        """
        try:
            active.write_indexes(*active.encode_indexes(closing=False), durable=True)
        except OSError as error:
            if not is_shortage(error):
                raise
            # The offset index comes first, so a crash in between leaves no offset entry without its time entry.
            for path in (active.paths.index, active.paths.time_index):
                remove_if_there(self.filesystem, path)

    def delete_files(self, segments: Sequence[Segment]) -> None:
        """Delete the files of segments, the last segment first.

        :raises OSError: the file system returned an error. Some of the files may remain.
        """
        bases = [segment.base_offset for segment in reversed(segments)]
        delete_segment_files(self.filesystem, Path(self._folder), bases)
        for segment in segments:
            segment.close()

    def close(self) -> None:
        """Close all files."""
        for segment in self.sealed:
            self._open.forget(segment)
            segment.close()
        self.active.close()


def _number_covering(sealed: Sequence[SealedSegment], offset: int) -> int:
    """Return the list index of the sealed segment that covers an offset."""
    return max(0, bisect_right(sealed, offset, key=lambda each: each.base_offset) - 1)
