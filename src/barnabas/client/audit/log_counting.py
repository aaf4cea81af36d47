"""Counts the records of a topic's log. Each count continues at the end of the previous count, which is correct only if
no counted record has changed. The counter checks that the last counted batch is still the same. The batch contains the
leader epoch and a checksum, so all earlier batches are the same, too, as in Raft's log matching. After an unclean
leader election, or a deletion of records by retention, the count starts again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from barnabas.audit.batch_windows import RecordRange
from barnabas.audit.header_windows import batches_by_likely_window, believable
from barnabas.audit.identities import Producer
from barnabas.audit.reported_counts import ReportedCounts
from barnabas.audit.scanned_ranges import OnRange, ScannedRanges
from barnabas.audit.stored_log import StoredLog
from barnabas.audit.windows import WINDOW_MS
from barnabas.client.config import Bootstrap
from barnabas.client.range_reader import RangeReader
from barnabas.errors import BarnabasError
from barnabas.model import TopicPartition
from barnabas.records.header import BatchHeader

OnProgress = Callable[[int], object]
"""A progress callback; its argument is the number of records counted since the last call."""

Ranges = Mapping[TopicPartition, tuple[int, int]]
"""The first offset and the end offset of each partition."""


class LogChangedError(BarnabasError):
    """The counted part of a log has changed, so the count must start again."""


class _Counted(NamedTuple):
    """The counted part of a partition.

    :param is_cut: True if records before the start of the range are deleted.
    :param last: the last counted batch.
    """

    begin: int
    is_cut: bool
    last: BatchHeader


class LogCounter:
    """Counts the partitions of one topic.

    :param since_ms: omit windows before this time. The ranges must then begin at the first record with this timestamp
        or a later one.
    :param on_range: called for each range of consecutive records of a producer and a window, with the producer, the
        first offset, the number of records and the window. It is not called for omitted windows.
    """

    def __init__(
        self,
        bootstrap: Bootstrap,
        width_ms: int = WINDOW_MS,
        since_ms: int | None = None,
        on_range: OnRange | None = None,
    ) -> None:
        self._bootstrap = bootstrap
        self._since_ms = since_ms
        self._width_ms = width_ms
        if on_range is not None and since_ms is not None:
            on_range = _since(since_ms, on_range)
        self._stored = StoredLog(width_ms, on_range)
        self._counted: dict[TopicPartition, _Counted] = {}
        self.believed: set[int] = set()
        """The ids of the producers whose batches are counted by batch headers, without decoding records."""

    def count(
        self,
        ranges: Ranges,
        on_progress: OnProgress = lambda _records: None,
        log_begins: Mapping[TopicPartition, int] | None = None,
        believed: Collection[int] = (),
    ) -> StoredLog:
        """Count the records in the ranges that are not counted yet.

        :param log_begins: the log start offsets. If None, the ranges begin at the log start offsets, unless `since_ms`
            is given.
        :param believed: the producers whose batches are counted by batch headers; see `barnabas.audit.header_windows`.
        :raises LogChangedError: the counted part has changed.
        :raises NotAuditableError: the log is compacted.
        :raises ApiError: the log cannot be read.
        """
        for where, (begin, end) in ranges.items():
            is_cut = begin > 0 and (self._since_ms is None if log_begins is None else begin <= log_begins[where])
            counted = self._counted.get(where)
            if counted is not None:
                if (begin, is_cut) != (counted.begin, counted.is_cut) or end < counted.last.next_offset:
                    raise LogChangedError(f"{where} ends or begins elsewhere than it did")
                on_progress(counted.last.next_offset - begin)
            if begin < end:
                self._count(where, begin, end, is_cut, believed, on_progress)
            elif is_cut:
                self._stored.is_emptied(where.partition)
        if self._since_ms is not None:
            self._stored.leave_out_before(self._since_ms)
        return self._stored

    def _count(
        self,
        where: TopicPartition,
        begin: int,
        end: int,
        is_cut: bool,
        believed: Collection[int],
        on_progress: OnProgress,
    ) -> None:
        counted = self._counted.get(where)
        start, reached, expected = begin, begin, None
        if counted is not None:
            start, reached, expected = counted.last.base_offset, counted.last.next_offset, counted.last
        with RangeReader(self._bootstrap, where.topic, where.partition, start, end) as reader:
            for batches in reader:
                for header, windows, is_likely in batches_by_likely_window(batches, self._width_ms, believed):
                    if expected is not None:
                        if header != expected:
                            raise LogChangedError(f"{where} has another batch at offset {start} than it had")
                        expected = None
                    if header.base_offset >= end or header.last_offset < reached:
                        continue
                    self._stored.add(where.partition, header, windows)
                    if is_likely:
                        self.believed.add(header.producer_id)
                    if where not in self._counted and is_cut:
                        self._stored.begins_late(where.partition, windows[0].window_ms)
                    on_progress(header.next_offset - reached)
                    reached = header.next_offset
                    self._counted[where] = _Counted(begin, is_cut, header)


class LogCountCache:
    """A cache of a log's counts, so that the next audit of the topic reads only new records."""

    def __init__(self) -> None:
        self._counter: LogCounter | None = None
        self._seen: ScannedRanges | None = None
        """The ranges that were passed to `on_range`, or None if there was no `on_range`."""
        self._of: tuple[str, int, int | None] | None = None
        self._is_exact = False

    @property
    def is_likely(self) -> bool:
        """Return whether some batches were counted by batch headers only."""
        return self._counter is not None and bool(self._counter.believed)

    def look_at_records(self) -> None:
        """Discard counts that are based on batch headers, and decode every record in later counts."""
        self._counter, self._is_exact = None, True

    def count(
        self,
        bootstrap: Bootstrap,
        topic_id: str,
        reported: ReportedCounts,
        ranges: Ranges,
        on_progress: OnProgress,
        *,
        width_ms: int,
        since_ms: int | None,
        log_begins: Mapping[TopicPartition, int],
        on_range: OnRange | None,
    ) -> StoredLog:
        """Count the records of the log; see `LogCounter.count`.

        :param reported: the reported counts of the topic.
        :param on_range: called for the ranges of the whole log each time; ranges of earlier counts come from the cache.
        """
        believed = frozenset[int]() if self._is_exact else believable(reported)
        known = (topic_id, width_ms, since_ms)
        if self._of == known:
            stored = self._grown(ranges, on_progress, log_begins, believed, on_range)
            if stored is not None:
                return stored
        self._counter = self._of = None  # If the count raises an error, no partial count stays in the cache.
        seen = None if on_range is None else ScannedRanges(on_range)
        counter = LogCounter(bootstrap, width_ms, since_ms, seen)
        stored = counter.count(ranges, on_progress, log_begins, believed)
        if seen is not None:
            seen.listener = None
        self._counter, self._seen, self._of = counter, seen, known
        return stored

    def _grown(
        self,
        ranges: Ranges,
        on_progress: OnProgress,
        log_begins: Mapping[TopicPartition, int],
        believed: frozenset[int],
        on_range: OnRange | None,
    ) -> StoredLog | None:
        """Count new records, and pass all ranges to `on_range`.

        Return None, without a call of `on_range`, if this count cannot continue the previous count.
        """
        counter, seen = self._counter, self._seen
        if counter is None or not counter.believed <= believed:
            return None
        try:
            stored = counter.count(ranges, on_progress, log_begins, believed)
        except LogChangedError:
            return None
        if on_range is not None:
            if seen is None or not seen.is_whole:
                return None
            # Call `on_range` only after the count has succeeded: a range that is passed twice would be reported as
            # duplicate records.
            seen.show(on_range)
        return stored


def _since(since_ms: int, on_range: OnRange) -> OnRange:
    """Wrap `on_range` to ignore windows before `since_ms`. Records of such windows may be anywhere in the log."""

    def of_later_windows(producer: Producer, offset: int, record_range: RecordRange) -> None:
        if record_range.window_ms >= since_ms:
            on_range(producer, offset, record_range)

    return of_later_windows
