"""What a log holds of a topic, counted from the headers of its batches and the times of its records.

Each producer numbers its records in a partition without gaps, so what is there twice is found exactly, wherever it is.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from barnabas.audit.batch_windows import RecordRange
from barnabas.audit.identities import Producer, identity_of
from barnabas.audit.windows import NOTHING, Tally, tally
from barnabas.errors import BarnabasError
from barnabas.records.header import SEQUENCE_MAX, BatchHeader

PRODUCERS_MAX = 1_000_000
"""So many producers, epochs and partitions are told apart."""


class NotAuditableError(BarnabasError):
    """A log whose records cannot be accounted for."""


class Repeat(NamedTuple):
    """Records that are in the log a second time."""

    window_ms: int
    producer: Producer
    records: int
    offset: int
    """Of the first of them."""


class Gap(NamedTuple):
    """Numbers that a producer has given, between others that are there, to records that are not."""

    window_ms: int
    """Of the record behind it."""
    producer: Producer
    first: int
    records: int


class SequenceRanges:
    """Which sequence numbers were seen: ranges without gaps, in order."""

    __slots__ = ("_begins", "_ends")

    def __init__(self) -> None:
        self._begins: list[int] = []
        self._ends: list[int] = []

    def add(self, first: int, count: int) -> list[tuple[int, int]]:
        """Note a range; return those parts of it, as first and count, that were not seen before."""
        end = first + count
        if self._ends and self._ends[-1] == first:
            self._ends[-1] = end
            return [(first, count)]
        at = bisect_right(self._ends, first - 1)
        new: list[tuple[int, int]] = []
        begin, last, until = first, first, at
        while until < len(self._begins) and self._begins[until] <= end:
            if last < self._begins[until]:
                new.append((last, self._begins[until] - last))
            begin = min(begin, self._begins[until])
            last = max(last, self._ends[until])
            until += 1
        if last < end:
            new.append((last, end - last))
        self._begins[at:until] = [begin]
        self._ends[at:until] = [max(end, last)]
        return new

    @property
    def first(self) -> int:
        """The first number; 0 where there is none."""
        return self._begins[0] if self._begins else 0

    @property
    def next(self) -> int | None:
        """The number after the last one; None where there is none."""
        return self._ends[-1] if self._ends else None

    def count_in(self, first: int, count: int) -> int:
        """Return how many of a range were seen."""
        end = first + count
        at = bisect_right(self._ends, first)
        seen = 0
        while at < len(self._begins) and self._begins[at] < end:
            seen += min(end, self._ends[at]) - max(first, self._begins[at])
            at += 1
        return seen

    def gaps(self) -> list[tuple[int, int]]:
        """Return what is missing between the first and the last number, as first and count."""
        return [(end, begin - end) for end, begin in zip(self._ends, self._begins[1:], strict=False)]


@dataclass(slots=True)
class StoredLog:
    """What the partitions of a topic hold.

    :param width_ms: of a window.
    :param on_range: called with each range of records in a window: whose they are, and the offset of the first.
    """

    width_ms: int
    on_range: Callable[[Producer, int, RecordRange], None] | None = None
    counted: dict[int, dict[Producer, Tally]] = field(default_factory=dict)
    """By window: each record once, however often it is there."""
    repeats: list[Repeat] = field(default_factory=list)
    expired_ms: dict[int, int] = field(default_factory=dict)
    """By partition whose first records are gone: the window of the first that is left. Of that and of earlier ones,
    it cannot be told what is missing."""
    _ranges: dict[Producer, SequenceRanges] = field(default_factory=dict)
    _reached: dict[Producer, int] = field(default_factory=dict)
    _jumps: dict[tuple[Producer, int], int] = field(default_factory=dict)
    """Where numbers did not follow on the last one: the first behind the gap, and its window."""
    _left_out: dict[Producer, int] = field(default_factory=dict)
    """How many records were counted in windows that are left out."""

    def add(self, partition: int, header: BatchHeader, windows: Iterable[RecordRange]) -> None:
        """Count a batch. The batches of a partition come in their order.

        :param windows: in which its records are, in their order.

        :raises NotAuditableError: a compacted log, or more producers than can be told apart.
        """
        if header.is_control:
            return
        if header.record_count != header.last_offset_delta + 1:
            raise NotAuditableError(
                f"partition {partition}, offset {header.base_offset}: the log was compacted; what is gone from it on "
                "purpose cannot be told from what was lost"
            )
        producer, first = identity_of(header, partition)
        wraps = producer.is_known and not producer.is_mirror
        if wraps:
            first = self._unwrapped(producer, first)
        ranges = self._ranges.get(producer)
        if ranges is None:
            if len(self._ranges) >= PRODUCERS_MAX:
                raise NotAuditableError(f"more than {PRODUCERS_MAX} producers wrote to this topic")
            ranges = self._ranges[producer] = SequenceRanges()
        offset, expected = header.base_offset, ranges.next
        for records, window_ms in windows:
            if wraps and expected is not None and first > expected:
                self._jumps[producer, first] = window_ms
            expected = None
            if self.on_range is not None:
                self.on_range(producer, offset, RecordRange(records, window_ms))
            of_window = self.counted.setdefault(window_ms, {})
            distinct = 0
            for begin, count in ranges.add(first, records):
                distinct += count
                found = tally(producer, begin & SEQUENCE_MAX if wraps else begin, count, 0)
                of_window[producer] = of_window.get(producer, NOTHING).plus(found)
            if distinct < records:
                self.repeats.append(Repeat(window_ms, producer, records - distinct, offset))
            first += records
            offset += records

    def _unwrapped(self, producer: Producer, sequence: int) -> int:
        """Return a sequence number as if numbers did not begin again with 0 after the last one."""
        reached = self._reached.get(producer, sequence)
        number = (reached & ~SEQUENCE_MAX) | sequence
        if number < reached - SEQUENCE_MAX // 2:
            number += SEQUENCE_MAX + 1
        elif number > reached + SEQUENCE_MAX // 2 and number > SEQUENCE_MAX:
            number -= SEQUENCE_MAX + 1
        self._reached[producer] = max(reached, number)
        return number

    def begins_late(self, partition: int, window_ms: int) -> None:
        """Note that a partition's first records are gone, and in which window the first is now."""
        self.expired_ms[partition] = window_ms

    def is_emptied(self, partition: int) -> None:
        """Note that all that a partition held is gone: of no window can be told what is missing there."""
        self.expired_ms[partition] = 2**63 - 1

    def leave_out_before(self, since_ms: int) -> None:
        """Forget windows that begin earlier: not all of them was read."""
        for window_ms in [each for each in self.counted if each < since_ms]:
            for producer, found in self.counted.pop(window_ms).items():
                self._left_out[producer] = self._left_out.get(producer, 0) + found.records
        self.repeats = [repeat for repeat in self.repeats if repeat.window_ms >= since_ms]
        self._jumps = {place: window_ms for place, window_ms in self._jumps.items() if window_ms >= since_ms}

    def is_expired(self, partition: int, window_ms: int) -> bool:
        """Whether records of this window may be gone from a partition by retention or by request."""
        return window_ms <= self.expired_ms.get(partition, -2)

    def count_of(self, producer: Producer, first: int, records: int) -> int:
        """Return how many of a producer's records are there."""
        ranges = self._ranges.get(producer)
        if ranges is None:
            return 0
        laps = range(first, self._reached.get(producer, first) + 1, SEQUENCE_MAX + 1)
        return sum(ranges.count_in(each, records) for each in laps)

    def has_any_of(self, producer: Producer) -> bool:
        """Whether any record of a producer is there."""
        return producer in self._ranges

    def taken_of(self, producer: Producer, begin: int = 0, left_out: int = 0) -> int:
        """Return how many of a producer's records retention has taken: those before the first number that is left.

        :param begin: its first number; mirrors, whose numbers are source offsets, may begin anywhere.
        :param left_out: how many records it has sent to windows that are left out: what is gone of these counts not.
        """
        ranges = self._ranges.get(producer)
        if producer.partition not in self.expired_ms or ranges is None:
            return 0
        of_others = max(0, left_out - self._left_out.get(producer, 0))
        return max(0, ranges.first - begin - of_others)

    def gaps(self) -> Iterator[Gap]:
        """Yield what is missing of producers that number their records themselves, without gaps."""
        for producer in sorted({producer for producer, _first in self._jumps}):
            for first, records in self.gaps_of(producer):
                window_ms = self._jumps.get((producer, first + records))
                if window_ms is not None:
                    yield Gap(window_ms, producer, first & SEQUENCE_MAX, records)

    def gaps_of(self, producer: Producer) -> list[tuple[int, int]]:
        """Return which sequence numbers of a producer are missing between others, as first and count."""
        ranges = self._ranges.get(producer)
        return [] if ranges is None else ranges.gaps()
