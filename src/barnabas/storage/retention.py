"""Retention: finds the segments of a log to delete, by size and by age.

Invariants. As in Kafka, retention deletes whole segments, oldest first, and only if all of their records are below the
high watermark:

- by time: a segment is deleted if its newest record is older than `retention.ms`;
- by size: a segment is deleted if the log without it still has at least `retention.bytes`.

If `cleanup.policy` is only compact, or empty, retention keeps all segments. Retention may delete the active segment
unless this segment is empty. Before retention deletes a segment by time, it reads the headers of all batches in the
segment, because a wrong index must not cause a deletion.

Threads. The owner of the log creates a search, and any thread may run the search, on snapshots of the segments.

Errors. CorruptBatchError is raised for a segment with damaged batches; such a segment is kept. OSError is raised if a
file cannot be read.
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
    """The properties of a segment that retention uses."""

    size: int
    next_offset: int


S = TypeVar("S", bound=SegmentExtent)


def count_deletable(
    segments: Sequence[S], config: LogConfig, now_ms: int, high_watermark: int, newest_ms: Callable[[S], int]
) -> int:
    """Return the number of segments to delete, counted from the oldest one.

    :param segments: all segments of the log, oldest first.
    :param newest_ms: returns the timestamp of a segment's newest record. It is called only if needed, because it may
        open a file.
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
    """A search for the segments of a log that retention must delete.

    It uses snapshots of the segments, and any thread may call `find`.

    :param segments: snapshots of all segments with batches, oldest first.
    :param is_roll_due: True if the active segment is older than `segment.ms`. In this case, the caller rolls the active
        segment, regardless of the result.
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
        """Return a search in the current segments, or None if it is certain that retention keeps all of them."""
        active = segments.active
        is_roll_due = now_ms - active_since_ms > config.roll_ms and active.size > 0
        if not config.deletes_old and not is_roll_due:
            return None
        is_young = config.retention_ms == UNLIMITED or now_ms - active.max_timestamp_ms <= config.retention_ms
        is_small = config.retention_bytes == UNLIMITED or active.size <= config.retention_bytes
        # Most logs have only one segment with a recent append, and retention keeps this segment. This check avoids
        # opening files for such logs.
        if not segments.sealed and not is_roll_due and (not active.size or (is_young and is_small)):
            return None
        filled = [segment.snapshot() for segment in segments.all if segment.size]
        return cls(filled, config, now_ms, high_watermark, is_roll_due=is_roll_due) if filled else None

    def find(self) -> int | None:
        """Return the offset before which all segments must be deleted, or None.

        :raises CorruptBatchError: a segment to delete has damaged batches.
        :raises OSError: the files cannot be read.
        """
        count = count_deletable(self._segments, self._config, self._now_ms, self._high_watermark, self._newest_ms)
        return self._segments[count - 1].next_offset if count else None

    def _newest_ms(self, segment: SealedSegment) -> int:
        """Return the timestamp of the newest record.

        If the records have no timestamps, return the time of the last write.
        """
        newest_ms = _claimed_ms(segment)
        if newest_ms is None or self._now_ms - newest_ms > self._config.retention_ms:
            newest_ms = segment.confirm_timestamp()
        return segment.filesystem.modified_ms(segment.paths.log) if newest_ms == NO_TIMESTAMP else newest_ms


def _claimed_ms(segment: SealedSegment) -> int | None:
    """Return the greatest timestamp according to the index, or None if the index is damaged."""
    try:
        return segment.max_timestamp_ms
    except CorruptBatchError:
        return None
