"""The records of a topic's log, counted from batch headers and record timestamps.

Each producer numbers its records in a partition without gaps, so the audit finds all duplicates, wherever they are in
the log.
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
"""The maximum number of distinct combinations of producer id, epoch and partition."""


class NotAuditableError(BarnabasError):
    """A log cannot be audited, for example because it is compacted."""


class Repeat(NamedTuple):
    """Records that the log contains a second time."""

    window_ms: int
    producer: Producer
    records: int
    offset: int
    """The offset of the first duplicate record."""


class Gap(NamedTuple):
    """Sequence numbers of a producer that are missing between lower and higher numbers in the log."""

    window_ms: int
    """The window of the record after the gap."""
    producer: Producer
    first: int
    records: int


class SequenceRanges:
    """The sequence numbers seen so far, as sorted ranges without gaps."""

    __slots__ = ("_begins", "_ends")

    def __init__(self) -> None:
        self._begins: list[int] = []
        self._ends: list[int] = []

    def add(self, first: int, count: int) -> list[tuple[int, int]]:
        """Add a range, and return its parts that were not seen before, as pairs of first number and count."""
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
        """The lowest number; 0 if there is none."""
        return self._begins[0] if self._begins else 0

    @property
    def next(self) -> int | None:
        """The highest number plus one; None if there are no numbers."""
        return self._ends[-1] if self._ends else None

    def count_in(self, first: int, count: int) -> int:
        """Return the number of sequence numbers in a range that were seen."""
        end = first + count
        at = bisect_right(self._ends, first)
        seen = 0
        while at < len(self._begins) and self._begins[at] < end:
            seen += min(end, self._ends[at]) - max(first, self._begins[at])
            at += 1
        return seen

    def gaps(self) -> list[tuple[int, int]]:
        """Return the missing ranges between the lowest and the highest number, as pairs of first number and count."""
        return [(end, begin - end) for end, begin in zip(self._ends, self._begins[1:], strict=False)]


@dataclass(slots=True)
class StoredLog:
    """The counts of the stored records in all partitions of a topic.

    :param width_ms: width of a window in ms.
    :param on_range: called for each range of records in one window, with the producer and the offset of the first
        record.
    """

    width_ms: int
    on_range: Callable[[Producer, int, RecordRange], None] | None = None
    counted: dict[int, dict[Producer, Tally]] = field(default_factory=dict)
    """The counts by window and producer; duplicates count once."""
    repeats: list[Repeat] = field(default_factory=list)
    expired_ms: dict[int, int] = field(default_factory=dict)
    """The window of the first remaining record, for each partition whose first records were removed.

    In this window and earlier ones, the log cannot show which records are missing.
    """
    _ranges: dict[Producer, SequenceRanges] = field(default_factory=dict)
    _reached: dict[Producer, int] = field(default_factory=dict)
    _jumps: dict[tuple[Producer, int], int] = field(default_factory=dict)
    """The window of the first sequence number after each gap, by producer and number."""
    _left_out: dict[Producer, int] = field(default_factory=dict)
    """The number of records counted in ignored windows, by producer."""

    def add(self, partition: int, header: BatchHeader, windows: Iterable[RecordRange]) -> None:
        """Count a batch. The batches of a partition arrive in offset order.

        :param windows: the windows of the batch's records, in record order.
        :raises NotAuditableError: the log is compacted, or has too many producers.
        """
        if header.is_control:
            return
        if header.record_count != header.last_offset_delta + 1:
            raise NotAuditableError(
                f"partition {partition}, offset {header.base_offset}: the log is compacted; the audit cannot "
                "distinguish compacted records from lost ones"
            )
        producer, first = identity_of(header, partition)
        wraps = producer.is_known and not producer.is_mirror
        if wraps:
            first = self._unwrapped(producer, first)
        ranges = self._ranges.get(producer)
        if ranges is None:
            if len(self._ranges) >= PRODUCERS_MAX:
                raise NotAuditableError(f"more than {PRODUCERS_MAX} producers have written to this topic")
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
        """Return the sequence number that the record would have if numbers did not wrap around to 0."""
        reached = self._reached.get(producer, sequence)
        number = (reached & ~SEQUENCE_MAX) | sequence
        if number < reached - SEQUENCE_MAX // 2:
            number += SEQUENCE_MAX + 1
        elif number > reached + SEQUENCE_MAX // 2 and number > SEQUENCE_MAX:
            number -= SEQUENCE_MAX + 1
        self._reached[producer] = max(reached, number)
        return number

    def begins_late(self, partition: int, window_ms: int) -> None:
        """Store the window of the first remaining record of a partition whose first records are deleted."""
        self.expired_ms[partition] = window_ms

    def is_emptied(self, partition: int) -> None:
        """Record that all records of a partition are deleted. The log then shows no losses in any window of the
        partition.
        """
        self.expired_ms[partition] = 2**63 - 1

    def leave_out_before(self, since_ms: int) -> None:
        """Drop earlier windows, because the log was not read completely for them."""
        for window_ms in [each for each in self.counted if each < since_ms]:
            for producer, found in self.counted.pop(window_ms).items():
                self._left_out[producer] = self._left_out.get(producer, 0) + found.records
        self.repeats = [repeat for repeat in self.repeats if repeat.window_ms >= since_ms]
        self._jumps = {place: window_ms for place, window_ms in self._jumps.items() if window_ms >= since_ms}

    def is_expired(self, partition: int, window_ms: int) -> bool:
        """Return whether retention or DeleteRecords may have removed records of this window from a partition."""
        return window_ms <= self.expired_ms.get(partition, -2)

    def count_of(self, producer: Producer, first: int, records: int) -> int:
        """Return the number of stored records of a producer in a range of sequence numbers."""
        ranges = self._ranges.get(producer)
        if ranges is None:
            return 0
        laps = range(first, self._reached.get(producer, first) + 1, SEQUENCE_MAX + 1)
        return sum(ranges.count_in(each, records) for each in laps)

    def has_any_of(self, producer: Producer) -> bool:
        """Return whether any record of a producer is stored."""
        return producer in self._ranges

    def taken_of(self, producer: Producer, begin: int = 0, left_out: int = 0) -> int:
        """Return the number of a producer's records that retention removed: all records before the first remaining
        number.

        :param begin: the producer's first number; a mirror uses source offsets, which may start anywhere.
        :param left_out: number of records that the producer sent to ignored windows. Removed records among them are not
            included in the result.
        """
        ranges = self._ranges.get(producer)
        if producer.partition not in self.expired_ms or ranges is None:
            return 0
        of_others = max(0, left_out - self._left_out.get(producer, 0))
        return max(0, ranges.first - begin - of_others)

    def gaps(self) -> Iterator[Gap]:
        """Yield the gaps in the sequence numbers of idempotent producers."""
        for producer in sorted({producer for producer, _first in self._jumps}):
            for first, records in self.gaps_of(producer):
                window_ms = self._jumps.get((producer, first + records))
                if window_ms is not None:
                    yield Gap(window_ms, producer, first & SEQUENCE_MAX, records)

    def gaps_of(self, producer: Producer) -> list[tuple[int, int]]:
        """Return the missing sequence numbers of a producer, as pairs of first number and count."""
        ranges = self._ranges.get(producer)
        return [] if ranges is None else ranges.gaps()
