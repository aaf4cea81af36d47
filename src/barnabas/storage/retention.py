"""The segments of a log that its settings no longer keep, by size and time only.

Invariants. As in Kafka, segments go from the oldest on, whole, and only if all of their records are below the high
watermark:

- by time: while the newest record of the segment is older than `retention.ms`;
- by size: while the log without the segment still has `retention.bytes`.

If `cleanup.policy` is compact alone, or empty, all segments stay, whatever these two settings are. The active segment
may be among those that go; an empty one never is. Before a segment goes, the headers of all its batches are read: a
wrong index must not delete anything.

Threads. The owner makes a search, and any thread carries it out on snapshots of the segments.

Errors. CorruptBatchError for a segment whose batches are damaged; it stays. OSError if a file cannot be read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from barnabas.errors import CorruptBatchError
from barnabas.model import NO_TIMESTAMP
from barnabas.storage.log_config import LogConfig
from barnabas.storage.segment import SealedSegment
from barnabas.storage.segment_list import SegmentList

UNLIMITED = -1
"""The value of `retention.ms` and `retention.bytes` that keeps all segments."""


class SegmentExtent(Protocol):
    """What retention needs of a segment."""

    size: int
    next_offset: int


S = TypeVar("S", bound=SegmentExtent)


def count_deletable(
    segments: Sequence[S], config: LogConfig, now_ms: int, high_watermark: int, newest_ms: Callable[[S], int]
) -> int:
    """Return how many segments, from the first on, the settings no longer keep.

    :param segments: all segments of the log, oldest first.
    :param newest_ms: returns the time of a segment's newest record; called where it matters, since it may open a file.
    """
    if not config.deletes_old:
        return 0
    excess_bytes = sum(segment.size for segment in segments) - config.retention_bytes
    count = 0
    for segment in segments:
        if not segment.size or segment.next_offset > high_watermark:
            break
        too_much = config.retention_bytes != UNLIMITED and excess_bytes >= segment.size
        if not too_much and not _is_expired(config.retention_ms, now_ms, segment, newest_ms):
            break
        excess_bytes -= segment.size
        count += 1
    return count


def _is_expired(retention_ms: int, now_ms: int, segment: S, newest_ms: Callable[[S], int]) -> bool:
    return retention_ms != UNLIMITED and now_ms - newest_ms(segment) > retention_ms


class RetentionSearch:
    """A search for the segments of a log that are to be deleted, as of one moment; any thread calls `find`.

    :param segments: snapshots of all segments with batches, oldest first.
    :param is_roll_due: the active segment has been active for `segment.ms`; it is sealed whatever `find` returns.
    """

    def __init__(
        self,
        segments: Sequence[SealedSegment],
        config: LogConfig,
        now_ms: int,
        high_watermark: int,
        *,
        is_roll_due: bool,
    ) -> None:
        self.is_roll_due = is_roll_due
        self._segments = segments
        self._config = config
        self._now_ms = now_ms
        self._high_watermark = high_watermark

    @classmethod
    def of(
        cls, segments: SegmentList, config: LogConfig, now_ms: int, high_watermark: int, active_since_ms: int
    ) -> RetentionSearch | None:
        """Return a search in the segments as they are now; None where it is clear that all are kept."""
        active = segments.active
        is_roll_due = now_ms - active_since_ms > config.roll_ms and active.size > 0
        if not config.deletes_old and not is_roll_due:
            return None
        is_young = config.retention_ms == UNLIMITED or now_ms - active.max_timestamp_ms <= config.retention_ms
        is_small = config.retention_bytes == UNLIMITED or active.size <= config.retention_bytes
        # Most logs have one segment with a recent append, which stays: no file needs to be read.
        if not segments.sealed and not is_roll_due and (not active.size or (is_young and is_small)):
            return None
        filled = [segment.snapshot() for segment in segments.all if segment.size]
        return cls(filled, config, now_ms, high_watermark, is_roll_due=is_roll_due) if filled else None

    def find(self) -> int | None:
        """Return the offset before which all segments are to be deleted, or None.

        :raises CorruptBatchError: a segment to delete has damaged batches.
        :raises OSError: the files cannot be read.
        """
        count = count_deletable(self._segments, self._config, self._now_ms, self._high_watermark, self._newest_ms)
        return self._segments[count - 1].next_offset if count else None

    def _newest_ms(self, segment: SealedSegment) -> int:
        """Return the time of the newest record; of records without timestamps, the time of the last write."""
        newest_ms = _claimed_ms(segment)
        if newest_ms is None or self._now_ms - newest_ms > self._config.retention_ms:
            newest_ms = segment.confirm_timestamp()
        return segment.filesystem.modified_ms(segment.paths.log) if newest_ms == NO_TIMESTAMP else newest_ms


def _claimed_ms(segment: SealedSegment) -> int | None:
    """Return the greatest timestamp in the index; None if the index is damaged."""
    try:
        return segment.max_timestamp_ms
    except CorruptBatchError:
        return None
