"""Counting records by windows of event time.

What comes in a row is not counted one by one: batches of one producer that follow on each other, in one partition and
window, are a run, and cost a comparison each; what a run amounts to is found out when it ends.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable
from typing import Generic, NamedTuple, TypeVar

from barnabas.audit.identities import FIELD, Producer, fingerprint
from barnabas.model import NO_TIMESTAMP
from barnabas.records.header import SEQUENCE_MAX

WINDOW_MS = 60_000
"""How wide a window is, if nobody chooses: a minute of event time."""

DAY_MS = 86_400_000
"""A day is a multiple of the width of each window, so that windows of different widths have common ones."""

ENDED = -2
"""No sequence number, and not what batches have that have none: nothing follows on a run that is over."""

NO_WINDOW_MS = -1
"""Where records without a timestamp are counted."""


class Tally(NamedTuple):
    """How many records, of how many bytes in batches, and their fingerprint."""

    records: int = 0
    size_bytes: int = 0
    fingerprint: int = 0

    def plus(self, other: Tally) -> Tally:
        """Return both together."""
        return Tally(
            self.records + other.records,
            self.size_bytes + other.size_bytes,
            (self.fingerprint + other.fingerprint) % FIELD,
        )


NOTHING = Tally()


def tally(producer: Producer, first: int, count: int, size_bytes: int) -> Tally:
    """Return what `count` records amount to whose sequence numbers begin with `first`; 0 follows the last number."""
    wraps = producer.is_known and not producer.is_mirror  # offsets do not
    before_wrap = min(count, SEQUENCE_MAX + 1 - first) if wraps else count
    prints = fingerprint(producer, first, before_wrap)
    if before_wrap < count:
        prints += fingerprint(producer, 0, count - before_wrap)
    return Tally(count, size_bytes, prints % FIELD)


def common_width(widths_ms: Iterable[int]) -> int:
    """Return how wide windows must be to have whole ones of all these widths in them.

    >>> common_width([60_000, 90_000]), common_width([])
    (180000, 60000)
    """
    distinct = set(widths_ms)
    return math.lcm(*distinct) if distinct else WINDOW_MS


def window_of(timestamp_ms: int, width_ms: int) -> int:
    """Return when the window begins that an event time is in, in ms.

    >>> window_of(125_000, 60_000)
    120000
    """
    return NO_WINDOW_MS if timestamp_ms <= NO_TIMESTAMP else timestamp_ms - timestamp_ms % width_ms


class Run:
    """Batches of one producer, partition and window that follow on each other, and are all late, or none is.

    `WindowCounter.count` opens and extends runs. Whoever counts very many batches may extend the run that it returns by
    himself, as long as that is open: for one that is over, `next` is no sequence number. It has the records from
    `first` to before `next`.
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
"""What stands for a topic."""


class WindowCount(NamedTuple):
    """What was counted in one window of one topic."""

    partitions: dict[Producer, Tally]
    late: int


class WindowCounter(Generic[T]):
    """Counts acknowledged batches of all topics. Not safe to use from several threads.

    :param width_ms: of a window.
    :param late_ms: what is acknowledged so long after its window's end is late.
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
        """Return whether anything was counted since `take_changes`."""
        return bool(self._changed or self._runs)

    def count(
        self, topic: T, producer: Producer, first: int, records: int, size_bytes: int, timestamp_ms: int, now_ms: int
    ) -> Run:
        """Count a batch; return the run that it is in.

        :param first: the sequence number of its first record.
        :param timestamp_ms: of its records; any of them, for all are in the same window.
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
        """Return the windows that have changed since the last call, each with all that was ever counted in it, by
        topic and begin."""
        runs, self._runs = self._runs, {}
        for (topic, _partition), run in runs.items():
            self._end(topic, run)
        changed, self._changed = self._changed, {}
        return {place: self._windows[place] for place in changed}

    def of(self, topic: T, begin_ms: int) -> WindowCount:
        """Return what was counted in a window, as of the last `take_changes`."""
        return self._windows.get((topic, begin_ms)) or WindowCount({}, 0)

    def places(self) -> list[tuple[T, int]]:
        """Return all windows that were ever counted in, as of the last `take_changes`, by topic and begin."""
        return list(self._windows)
