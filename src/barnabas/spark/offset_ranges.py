"""Offset ranges, and their division into Spark tasks. Pure.

The meaning of `minPartitions` and `maxRecordsPerPartition` is that of Spark's Kafka source: the first is a
hint that splits large ranges more than small ones, the second a limit. Where neither is given, and it is known how many
tasks run at a time, small ranges share a task, and one that would keep a single core busy while others wait is cut.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heapreplace
from math import floor

from barnabas.model import TopicPartition

TASK_RECORDS = 2**20
"""Records of ranges that share a task, about. Spark takes some 30 ms to begin and to end one, and half a second to read
so many."""

CUT_RECORDS = 2**18
"""A range that has fewer is not cut for the sake of idle cores."""


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
        """How many offsets; compaction and transactions may leave fewer records."""
        return self.end_offset - self.start_offset

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} [{self.start_offset}, {self.end_offset})"


def split_ranges(
    ranges: Iterable[OffsetRange], *, partitions_min: int | None = None, records_max: int | None = None
) -> list[OffsetRange]:
    """Split ranges into tasks; empty ranges vanish, order and coverage stay.

    Args:
        partitions_min: at least about so many tasks, None for one per range.
        records_max: no task has more offsets than this, None for no limit.

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
    """Put small ranges together into tasks of about the same size; order and coverage stay within each.

    The tasks are so many that all cores have the same number of them, and fewer only where the ranges are fewer.

    :param cores: how many tasks run at a time; None where nobody knows: each range is a task.

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
    """Return how many records a range may have that is one task: more, and other cores would wait for it.

    >>> records_per_core([OffsetRange("t", 0, 0, 4_000_000), OffsetRange("t", 1, 0, 1_000)], cores=4)
    1000250
    """
    return max(CUT_RECORDS, -(-sum(wanted.count for wanted in ranges) // cores))


def _shares(pieces: list[OffsetRange], partitions_min: int) -> Iterator[tuple[OffsetRange, int]]:
    """Yield each range with the number of tasks that it gets.

    A range that is smaller than the average task is one of its own; the others share what is left by their sizes.
    Otherwise the many small ones would count as next to nothing, and be tasks all the same.
    """
    average = sum(piece.count for piece in pieces) / partitions_min
    large = [piece for piece in pieces if piece.count >= average]
    total = sum(piece.count for piece in large)
    left = partitions_min - (len(pieces) - len(large))
    for piece in pieces:
        yield piece, max(1, floor(piece.count * left / total + 0.5)) if piece.count >= average else 1


def _cut(piece: OffsetRange, parts: int) -> Iterator[OffsetRange]:
    """Cut a range into `parts` of nearly the same size, none of them empty."""
    parts = min(parts, piece.count)
    for index in range(parts):
        start = piece.start_offset + piece.count * index // parts
        end = piece.start_offset + piece.count * (index + 1) // parts
        yield OffsetRange(piece.topic, piece.partition, start, end)
