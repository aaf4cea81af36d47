"""The plan of a cleaning: the cleanable part of a compacted log, and the groups of segments to merge.

The rules are the same as in Kafka's LogCleanerManager and Cleaner. A log has a clean part, in which each key occurs
once. The dirty part follows and begins at the first dirty offset. A cleaning reads the keys of the cleanable dirty
part, and then rewrites the clean part and the cleanable dirty part. The active segment is never cleaned. Records that
are not flushed, not stable, or younger than `min.compaction.lag.ms` are not cleaned either.

The functions of this module do no I/O. Only `CleaningSearch` reads the files of a log. It uses a snapshot of the
segments and may run on any thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, TypeVar

from barnabas.errors import CorruptBatchError
from barnabas.model import NO_TIMESTAMP
from barnabas.records.scan import RELATIVE_OFFSET_MAX
from barnabas.storage.log_config import NEVER, LogConfig
from barnabas.storage.segment import SealedSegment, scan_headers
from barnabas.storage.segment_list import SegmentList


class SegmentExtent(Protocol):
    """The properties of a segment that the planning uses."""

    @property
    def base_offset(self) -> int: ...

    @property
    def next_offset(self) -> int:
        """The base offset of the next segment."""
        ...

    @property
    def size(self) -> int: ...


S = TypeVar("S", bound=SegmentExtent)


class CleanableRange(NamedTuple):
    """The cleanable part of a log."""

    first_dirty_offset: int
    end_offset: int
    """The first offset after the cleanable part. It is the base offset of a segment."""
    clean_bytes: int
    """The total size of the clean segments, in bytes."""
    dirty_bytes: int
    is_overdue: bool
    """True if a record has waited longer than `max.compaction.lag.ms`."""

    @property
    def dirty_ratio(self) -> float:
        """The dirty bytes as a share of all bytes to rewrite. Logs with a larger share are cleaned first."""
        return self.dirty_bytes / (self.clean_bytes + self.dirty_bytes)

    def is_due(self, config: LogConfig) -> bool:
        """Return whether the dirty ratio exceeds `min.cleanable.dirty.ratio`, or a record is overdue."""
        return self.is_overdue or self.dirty_ratio > config.min_cleanable_dirty_ratio


def first_dirty_offset(checkpoint: int, log_start_offset: int, active_base_offset: int) -> int:
    """Return the offset at which the dirty part of a log begins.

    If the stored offset is outside the log, for example because files were replaced, the whole log is dirty. Cleaning
    too much is harmless.
    """
    return checkpoint if log_start_offset <= checkpoint <= active_base_offset else log_start_offset


def find_range(
    sealed: Sequence[S],
    first_dirty: int,
    limit_offset: int,
    config: LogConfig,
    now_ms: int,
    *,
    newest_ms: Callable[[S], int],
    oldest_ms: Callable[[S], int],
) -> CleanableRange | None:
    """Return the cleanable part of a log, or None if it is empty.

    :param sealed: all segments except the active one, oldest first.
    :param limit_offset: the end of the flushed and stable records. Segments that extend beyond it are not cleaned.
    :param newest_ms: returns the timestamp of a segment's newest record. It is called only if `min.compaction.lag.ms`
        is set.
    :param oldest_ms: returns the timestamp of a segment's first batch, or a number below 1 if the batch has no
        timestamp. It is called only if `max.compaction.lag.ms` is set.
    """
    cleanable: list[S] = []
    for segment in sealed:
        if segment.next_offset > limit_offset:
            break
        is_dirty = segment.next_offset > first_dirty
        if is_dirty and config.min_compaction_lag_ms and newest_ms(segment) > now_ms - config.min_compaction_lag_ms:
            break
        cleanable.append(segment)
    dirty = [segment for segment in cleanable if segment.next_offset > first_dirty]
    dirty_bytes = sum(segment.size for segment in dirty)
    if not dirty_bytes:
        return None
    return CleanableRange(
        first_dirty,
        dirty[-1].next_offset,
        sum(segment.size for segment in cleanable) - dirty_bytes,
        dirty_bytes,
        _is_overdue(dirty, config, now_ms, oldest_ms),
    )


def _is_overdue(dirty: Sequence[S], config: LogConfig, now_ms: int, oldest_ms: Callable[[S], int]) -> bool:
    if config.max_compaction_lag_ms == NEVER:
        return False
    times = [time_ms for segment in dirty if (time_ms := oldest_ms(segment)) > 0]
    return bool(times) and min(times) < now_ms - config.max_compaction_lag_ms


class IndexedExtent(NamedTuple):
    """A segment and the sizes of its files, in bytes."""

    base_offset: int
    next_offset: int
    size: int
    index_bytes: int = 0
    time_index_bytes: int = 0


def group_segments(
    segments: Sequence[IndexedExtent], segment_bytes_max: int, index_bytes_max: int
) -> list[list[IndexedExtent]]:
    """Return groups of adjacent segments. The cleaner merges each group into one segment.

    A group contains as many segments as fit into one segment, even if no record is removed. The limits are the size of
    the batches, the size of each index, and the greatest relative offset in an index. A cleaning may leave small
    segments, and a later cleaning merges them.
    """
    groups: list[list[IndexedExtent]] = []
    for segment in segments:
        if groups and _fits(groups[-1], segment, segment_bytes_max, index_bytes_max):
            groups[-1].append(segment)
        else:
            groups.append([segment])
    return groups


def _fits(group: Sequence[IndexedExtent], segment: IndexedExtent, segment_bytes_max: int, index_bytes_max: int) -> bool:
    together = [*group, segment]
    return (
        sum(each.size for each in together) <= segment_bytes_max
        and sum(each.index_bytes for each in together) <= index_bytes_max
        and sum(each.time_index_bytes for each in together) <= index_bytes_max
        and (not segment.size or segment.next_offset - 1 - group[0].base_offset <= RELATIVE_OFFSET_MAX)
    )


class CleaningSearch:
    """A search for the cleanable part of a log. Any thread may call `find`.

    :param sealed: snapshots of all segments except the active one, oldest first.
    :param limit_offset: the end of the flushed and stable records. Segments that extend beyond it are not cleaned.
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
        """Return a search over the current segments of a log, or None if it is certain that nothing can be cleaned."""
        sealed = segments.sealed
        if not any(first_dirty < each.next_offset <= limit_offset and each.unflushed_file is None for each in sealed):
            return None
        unflushed = (each.base_offset for each in sealed if each.unflushed_file is not None)
        limit_offset = min([limit_offset, *unflushed])
        return cls([each.snapshot() for each in sealed], first_dirty, limit_offset, config, now_ms)

    def find(self) -> CleanableRange | None:
        """Return the cleanable part of the log, or None.

        :raises BarnabasError: a segment is damaged, or was replaced during the search.
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
