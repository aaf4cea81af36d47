"""Searches one log for the part that can be cleaned, as of one moment; any thread carries it out."""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.errors import CorruptBatchError
from barnabas.model import NO_TIMESTAMP
from barnabas.storage.cleaner.planning import CleanableRange, find_range
from barnabas.storage.log_config import LogConfig
from barnabas.storage.segment import SealedSegment, scan_headers
from barnabas.storage.segment_list import SegmentList


class CleaningSearch:
    """A search in the segments of a log; call `find` on any thread.

    :param sealed: snapshots of all segments but the active one, oldest first.
    :param limit_offset: segments that reach beyond it are not cleaned.
    """

    def __init__(
        self, sealed: Sequence[SealedSegment], first_dirty: int, limit_offset: int, config: LogConfig, now_ms: int
    ) -> None:
        self._sealed = sealed
        self._first_dirty = first_dirty
        self._limit_offset = limit_offset
        self._config = config
        self._now_ms = now_ms

    @classmethod
    def of(
        cls, segments: SegmentList, first_dirty: int, limit_offset: int, config: LogConfig, now_ms: int
    ) -> CleaningSearch | None:
        """Return the search in a log as it is now; None where it is clear that nothing can be cleaned."""
        sealed = segments.sealed
        if not any(first_dirty < each.next_offset <= limit_offset and each.unflushed_file is None for each in sealed):
            return None
        unflushed = (each.base_offset for each in sealed if each.unflushed_file is not None)
        limit_offset = min([limit_offset, *unflushed])
        return cls([each.snapshot() for each in sealed], first_dirty, limit_offset, config, now_ms)

    def find(self) -> CleanableRange | None:
        """Return what can be cleaned.

        :raises BarnabasError: a segment cannot be understood, or was replaced meanwhile.
        :raises OSError: the files cannot be read.
        """
        return find_range(
            self._sealed,
            self._first_dirty,
            self._limit_offset,
            self._config,
            self._now_ms,
            newest_ms=_newest_ms,
            oldest_ms=_oldest_ms,
        )


def _newest_ms(segment: SealedSegment) -> int:
    try:
        newest_ms = segment.max_timestamp_ms
    except CorruptBatchError:  # an index is damaged
        newest_ms = segment.confirm_timestamp()
    return segment.filesystem.modified_ms(segment.paths.log) if newest_ms == NO_TIMESTAMP else newest_ms


def _oldest_ms(segment: SealedSegment) -> int:
    batches = scan_headers(segment.filesystem, segment.file, 0, segment.size)
    return next((batch.header.max_timestamp_ms for batch in batches), NO_TIMESTAMP)
