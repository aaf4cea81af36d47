"""Offset ranges, and their division into Spark tasks. Pure.

`minPartitions` and `maxRecordsPerPartition` have the meaning of Spark's Kafka source: the first is a hint that splits
large ranges more than small ones, the second is a limit. Without both, and with a known number of cores, small ranges
share a task. A range that would keep one core busy while others are idle is split.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heapreplace
from math import floor

from barnabas.model import TopicPartition

TASK_RECORDS = 2**20
"""The approximate number of records in a task with several ranges. Spark needs about 30 ms to start and end a task, and
half a second to read this many records."""

CUT_RECORDS = 2**18
"""The smallest range that is split to use idle cores."""


@dataclass(frozen=True, slots=True, order=True)
class OffsetRange:
    """The records of one partition from `start_offset` up to, not including, `end_offset`."""

    topic: str
    partition: int
    start_offset: int
    end_offset: int

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def count(self) -> int:
        """The number of offsets. Compacted or transactional topics may have fewer records."""
        return self.end_offset - self.start_offset

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} [{self.start_offset}, {self.end_offset})"


def split_ranges(
    ranges: Iterable[OffsetRange], *, partitions_min: int | None = None, records_max: int | None = None
) -> list[OffsetRange]:
    """Split ranges into tasks. Empty ranges are dropped; order and coverage are kept.

    :param partitions_min: The approximate smallest number of tasks; None makes one task per range.
    :param records_max: The maximum number of offsets per task; None for no limit.

    >>> split_ranges([OffsetRange("t", 0, 0, 100), OffsetRange("t", 1, 0, 10)], partitions_min=4)[0]
    OffsetRange(topic='t', partition=0, start_offset=0, end_offset=33)
    """
    pieces = [piece for piece in ranges if piece.count > 0]
    if records_max is not None:
        pieces = [part for piece in pieces for part in _cut(piece, -(-piece.count // records_max))]
    if partitions_min is not None and partitions_min > len(pieces):
        pieces = [part for piece, parts in _shares(pieces, partitions_min) for part in _cut(piece, parts)]
    return pieces


def combine_ranges(pieces: Sequence[OffsetRange], cores: int | None) -> list[tuple[OffsetRange, ...]]:
    """Combine small ranges into tasks of about the same size. Each task keeps the order of its ranges.

    The number of tasks is a multiple of the cores, or the number of ranges if that is smaller.

    :param cores: The number of tasks that run at a time; None, if unknown, makes each range a task.

    >>> ranges = [OffsetRange("t", number, 0, 10) for number in range(5)]
    >>> [[each.partition for each in task] for task in combine_ranges(ranges, cores=2)]
    [[0, 2, 4], [1, 3]]
    """
    alone: list[tuple[OffsetRange, ...]] = [(piece,) for piece in pieces]
    if cores is None:
        return alone
    count = cores * -(-sum(piece.count for piece in pieces) // (cores * TASK_RECORDS))
    if len(pieces) <= count:
        return alone
    tasks: list[list[OffsetRange]] = [[] for _ in range(count)]
    loads = [(0, number) for number in range(count)]
    for piece in sorted(pieces, key=lambda piece: -piece.count):
        load, number = loads[0]
        tasks[number].append(piece)
        heapreplace(loads, (load + piece.count, number))
    return sorted(tuple(sorted(task)) for task in tasks)


def records_per_core(ranges: Iterable[OffsetRange], cores: int) -> int:
    """Return the largest number of records in a range without a split. A larger range would leave other cores idle.

    >>> records_per_core([OffsetRange("t", 0, 0, 4_000_000), OffsetRange("t", 1, 0, 1_000)], cores=4)
    1000250
    """
    return max(CUT_RECORDS, -(-sum(wanted.count for wanted in ranges) // cores))


def _shares(pieces: list[OffsetRange], partitions_min: int) -> Iterator[tuple[OffsetRange, int]]:
    """Yield each range with its number of tasks.

    A range smaller than the average task is one task. The large ranges divide the other tasks in proportion to their
    sizes. A purely proportional division would ignore that each small range needs a whole task.
    """
    average = sum(piece.count for piece in pieces) / partitions_min
    large = [piece for piece in pieces if piece.count >= average]
    total = sum(piece.count for piece in large)
    left = partitions_min - (len(pieces) - len(large))
    for piece in pieces:
        yield piece, max(1, floor(piece.count * left / total + 0.5)) if piece.count >= average else 1


def _cut(piece: OffsetRange, parts: int) -> Iterator[OffsetRange]:
    """Split a range into `parts` non-empty parts of nearly the same size."""
    parts = min(parts, piece.count)
    for index in range(parts):
        start = piece.start_offset + piece.count * index // parts
        end = piece.start_offset + piece.count * (index + 1) // parts
        yield OffsetRange(piece.topic, piece.partition, start, end)
