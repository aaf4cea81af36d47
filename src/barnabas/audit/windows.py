"""Counts records by windows of event time.

Consecutive batches of one producer in the same partition and window form a run. Extending a run costs one comparison;
its fingerprint is computed only when the run ends.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable
from typing import Generic, NamedTuple, TypeVar

from barnabas.audit.identities import FIELD, Producer, fingerprint
from barnabas.model import NO_TIMESTAMP
from barnabas.records.header import SEQUENCE_MAX

WINDOW_MS = 60_000
"""The default width of a window: one minute of event time."""

DAY_MS = 86_400_000
"""A day in ms. It is a multiple of each window width, so that windows of different widths have common multiples."""

ENDED = -2
"""The value of `next` in a run that has ended. It differs from all sequence numbers and from NO_SEQUENCE."""

NO_WINDOW_MS = -1
"""The window of records without a timestamp."""


class Tally(NamedTuple):
    """The number of records, the size in bytes of their batches, and their fingerprint."""

    records: int = 0
    size_bytes: int = 0
    fingerprint: int = 0

    def plus(self, other: Tally) -> Tally:
        """Return the sum of two tallies."""
        return Tally(
            self.records + other.records,
            self.size_bytes + other.size_bytes,
            (self.fingerprint + other.fingerprint) % FIELD,
        )


NOTHING = Tally()


def tally(producer: Producer, first: int, count: int, size_bytes: int) -> Tally:
    """Return the tally of `count` records whose sequence numbers start at `first`. After the highest number they
    continue at 0.
    """
    wraps = producer.is_known and not producer.is_mirror  # source offsets of mirrored records never wrap around
    before_wrap = min(count, SEQUENCE_MAX + 1 - first) if wraps else count
    prints = fingerprint(producer, first, before_wrap)
    if before_wrap < count:
        prints += fingerprint(producer, 0, count - before_wrap)
    return Tally(count, size_bytes, prints % FIELD)


def common_width(widths_ms: Iterable[int]) -> int:
    """Return the smallest width that is a multiple of all given widths.

    >>> common_width([60_000, 90_000]), common_width([])
    (180000, 60000)
    """
    distinct = set(widths_ms)
    return math.lcm(*distinct) if distinct else WINDOW_MS


def window_of(timestamp_ms: int, width_ms: int) -> int:
    """Return the start in ms of the window that contains a timestamp.

    >>> window_of(125_000, 60_000)
    120000
    """
    return NO_WINDOW_MS if timestamp_ms <= NO_TIMESTAMP else timestamp_ms - timestamp_ms % width_ms


class Run:
    """Consecutive batches of one producer, partition and window that are either all late or all in time.

    `WindowCounter.count` starts and extends runs. A caller with many batches may extend the returned run itself until
    the run ends (`next` is then ENDED). The run has the records from `first` to `next` (exclusive).
    """

    __slots__ = (
        "begin_ms", "end_ms", "first", "is_late", "next", "producer", "producer_epoch", "producer_id", "size_bytes",
    )  # fmt: skip

    def __init__(self, producer: Producer, first: int, begin_ms: int, end_ms: int, *, is_late: bool) -> None:
        self.producer = producer
        self.producer_id, self.producer_epoch, _partition = producer
        self.first = self.next = first
        self.begin_ms = begin_ms
        self.end_ms = end_ms
        self.is_late = is_late
        self.size_bytes = 0


T = TypeVar("T", bound=Hashable)
"""The type of a topic's key."""


class WindowCount(NamedTuple):
    """The counts of one window of one topic."""

    partitions: dict[Producer, Tally]
    late: int


class WindowCounter(Generic[T]):
    """Counts the acknowledged batches of all topics. Not thread-safe.

    :param width_ms: width of a window in ms.
    :param late_ms: records acknowledged later than this many ms after the end of their window are late.
    """

    def __init__(self, width_ms: int, late_ms: int) -> None:
        self.width_ms = width_ms
        self._late_ms = late_ms
        self._runs: dict[tuple[T, int], Run] = {}
        self._windows: dict[tuple[T, int], WindowCount] = {}
        self._changed: dict[tuple[T, int], None] = {}

    def __len__(self) -> int:
        return len(self._windows)

    @property
    def has_changes(self) -> bool:
        """True if any batch was counted since the last `take_changes`."""
        return bool(self._changed or self._runs)

    def count(
        self, topic: T, producer: Producer, first: int, records: int, size_bytes: int, timestamp_ms: int, now_ms: int
    ) -> Run:
        """Count a batch; return its run.

        :param first: the sequence number of the first record.
        :param timestamp_ms: the timestamp of any record of the batch; all records must be in the same window.
        """
        place = (topic, producer.partition)
        run = self._runs.get(place)
        begin_ms = window_of(timestamp_ms, self.width_ms)
        is_late = begin_ms != NO_WINDOW_MS and now_ms >= begin_ms + self.width_ms + self._late_ms
        is_next = run is not None and first == run.next and producer == run.producer
        if run is None or not is_next or run.begin_ms != begin_ms or run.is_late != is_late:
            if run is not None:
                self._end(topic, run)
            end_ms = 0 if begin_ms == NO_WINDOW_MS else begin_ms + self.width_ms
            run = self._runs[place] = Run(producer, first, begin_ms, end_ms, is_late=is_late)
        run.next = (first + records) & SEQUENCE_MAX
        run.size_bytes += size_bytes
        return run

    def _end(self, topic: T, run: Run) -> None:
        place = (topic, run.begin_ms)
        window = self._windows.get(place) or WindowCount({}, 0)
        records = (run.next - run.first) & SEQUENCE_MAX
        found = tally(run.producer, run.first, records, run.size_bytes)
        run.next = ENDED
        window.partitions[run.producer] = window.partitions.get(run.producer, NOTHING).plus(found)
        self._windows[place] = window._replace(late=window.late + (records if run.is_late else 0))
        self._changed[place] = None

    def take_changes(self) -> dict[tuple[T, int], WindowCount]:
        """Return the total counts of all windows that changed since the last call, by topic and window start."""
        runs, self._runs = self._runs, {}
        for (topic, _partition), run in runs.items():
            self._end(topic, run)
        changed, self._changed = self._changed, {}
        return {place: self._windows[place] for place in changed}

    def of(self, topic: T, begin_ms: int) -> WindowCount:
        """Return the counts of a window at the time of the last `take_changes`."""
        return self._windows.get((topic, begin_ms)) or WindowCount({}, 0)

    def places(self) -> list[tuple[T, int]]:
        """Return the topic and the start of each window counted before the last `take_changes`."""
        return list(self._windows)
