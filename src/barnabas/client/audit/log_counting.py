"""Counts what the log of a topic holds, and goes on where it ended when it is asked again.

To go on is right only where the log has just grown: the last batch that was counted must still be there, as it was. A
log is a sequence that is written once, so that what stands before it is the same, too (as in Raft's log matching: that
batch has its leader's epoch and a checksum). Otherwise, after a leader that was chosen uncleanly, or when retention has
taken something, all is counted anew.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from barnabas.audit.event_times import Stretch
from barnabas.audit.identities import Producer
from barnabas.audit.likely_windows import batches_by_likely_window, believable
from barnabas.audit.seen_stretches import OnStretch, SeenStretches
from barnabas.audit.stored import StoredLog
from barnabas.audit.told import Told
from barnabas.audit.windows import WINDOW_MS
from barnabas.client.range_reader import RangeReader
from barnabas.client.setting_types import Bootstrap
from barnabas.errors import BarnabasError
from barnabas.model import TopicPartition
from barnabas.records.header import BatchHeader

OnProgress = Callable[[int], object]
"""Called with how many more records were looked at."""

Ranges = Mapping[TopicPartition, tuple[int, int]]
"""Where partitions begin and end."""


class LogChangedError(BarnabasError):
    """What was counted of a log is not what it holds now; it has to be counted from its beginning."""


class _Counted(NamedTuple):
    """What was counted of a partition.

    :param is_cut: whether something was before its begin, and is gone.
    :param last: the last batch.
    """

    begin: int
    is_cut: bool
    last: BatchHeader


class LogCounter:
    """Counts the partitions of one topic.

    :param since_ms: leave out earlier windows; the ranges begin with the first record that is not earlier.
    :param on_stretch: called with whose records were read, the offset of the first, and how many are in which window;
        not of windows that are left out.
    """

    def __init__(
        self,
        bootstrap: Bootstrap,
        width_ms: int = WINDOW_MS,
        since_ms: int | None = None,
        on_stretch: OnStretch | None = None,
    ) -> None:
        self._bootstrap = bootstrap
        self._since_ms = since_ms
        self._width_ms = width_ms
        if on_stretch is not None and since_ms is not None:
            on_stretch = _since(since_ms, on_stretch)
        self._stored = StoredLog(width_ms, on_stretch)
        self._counted: dict[TopicPartition, _Counted] = {}
        self.believed: set[int] = set()
        """The producers of whom batches were counted by what their headers say."""

    def count(
        self,
        ranges: Ranges,
        on_progress: OnProgress = lambda _records: None,
        log_begins: Mapping[TopicPartition, int] | None = None,
        believed: Collection[int] = (),
    ) -> StoredLog:
        """Count what the partitions hold between two offsets, or what of that was not counted yet.

        :param log_begins: where the partitions themselves begin: what was before that is gone. None: with the ranges,
            unless `since_ms` chose these.
        :param believed: producers whose batches' headers are believed, see `barnabas.audit.likely_windows`.
        :raises LogChangedError: what was counted before is not there any more.
        :raises NotAuditableError: the log was compacted.
        :raises ApiError: it cannot be read.
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


class LogMemory:
    """What audits of a topic that follow on each other remember of its log, so that each reads only what is new."""

    def __init__(self) -> None:
        self._counter: LogCounter | None = None
        self._seen: SeenStretches | None = None
        """What was shown of the log; None: nobody wanted to see it."""
        self._of: tuple[str, int, int | None] | None = None
        self._is_exact = False

    @property
    def is_likely(self) -> bool:
        """Whether something was counted by what headers say, and may have to be looked at."""
        return self._counter is not None and bool(self._counter.believed)

    def look_at_records(self) -> None:
        """Forget what is only likely, and believe no header from now on."""
        self._counter, self._is_exact = None, True

    def count(
        self,
        bootstrap: Bootstrap,
        topic_id: str,
        told: Told,
        ranges: Ranges,
        on_progress: OnProgress,
        *,
        width_ms: int,
        since_ms: int | None,
        log_begins: Mapping[TopicPartition, int],
        on_stretch: OnStretch | None,
    ) -> StoredLog:
        """Count what the log holds; see `LogCounter.count`.

        :param told: what was told of the topic.
        :param on_stretch: is shown the whole log each time, what was read before from memory.
        """
        believed = frozenset[int]() if self._is_exact else believable(told)
        known = (topic_id, width_ms, since_ms)
        if self._of == known:
            stored = self._grown(ranges, on_progress, log_begins, believed, on_stretch)
            if stored is not None:
                return stored
        self._counter = self._of = None  # until all is counted
        seen = None if on_stretch is None else SeenStretches(on_stretch)
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
        on_stretch: OnStretch | None,
    ) -> StoredLog | None:
        """Count what is new, and show all; None where that cannot be, and nothing was shown."""
        counter, seen = self._counter, self._seen
        if counter is None or not counter.believed <= believed:
            return None
        try:
            stored = counter.count(ranges, on_progress, log_begins, believed)
        except LogChangedError:
            return None
        if on_stretch is not None:
            if seen is None or not seen.is_whole:
                return None
            seen.show(on_stretch)  # only now: what is shown twice is called doubled
        return stored


def _since(since_ms: int, on_stretch: OnStretch) -> OnStretch:
    """Leave out earlier windows, whose records may be anywhere in a log: event times need not grow with offsets."""

    def of_later_windows(producer: Producer, offset: int, stretch: Stretch) -> None:
        if stretch.window_ms >= since_ms:
            on_stretch(producer, offset, stretch)

    return of_later_windows
