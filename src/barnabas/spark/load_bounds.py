"""The bounds of a load: `--until`, and the range of a backfill (`--from`, `--to`). Pure apart from `TimeLookup`.

A bound is a time in ms, or offsets of partitions. A time becomes the offset of the first record with this timestamp or
a later one, or the log end offset. Partitions that offsets do not name are not read.

A backfill loads a range into a table, and leaves the table's ledger unchanged. So that no record is loaded twice, the
range must end where the ledger of its partitions ends, and the table must have no rows of these offsets. A partition
without a ledger may have any range; a later load of this partition then needs start offsets.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from barnabas.errors import ConfigurationError
from barnabas.model import OffsetAndTimestamp, TopicPartition
from barnabas.spark.ledger import Ledger, dump_offsets
from barnabas.spark.load_plan import TopicLoadPlan, TopicState
from barnabas.spark.load_types import Backfill, Bound
from barnabas.spark.offset_ranges import OffsetRange

Offsets = Mapping[TopicPartition, int]


class TimeLookup(Protocol):
    """The call that finds offsets by time; `barnabas.Admin` implements it."""

    def offsets_for_times(
        self, timestamps_ms: Mapping[tuple[str, int], int], /
    ) -> Mapping[TopicPartition, OffsetAndTimestamp | None]: ...


def check_bounds(
    until: Bound | None, backfill_from: Bound | None, backfill_to: Bound | None, topics: Sequence[str], now_ms: int
) -> Backfill | None:
    """Check the bounds of a load; return the range of a backfill, or None.

    :raises ConfigurationError: The bounds contradict each other, or name other topics.
    """
    named = {"until (--until)": until, "backfill_from (--from)": backfill_from, "backfill_to (--to)": backfill_to}
    for name, bound in named.items():
        if bound is not None and not isinstance(bound, int):
            _check_offsets(name, bound, topics)
    if backfill_from is None and backfill_to is None:
        return None
    if backfill_from is None or backfill_to is None:
        raise ConfigurationError("a backfill needs both ends: backfill_from (--from) and backfill_to (--to)")
    if until is not None:
        raise ConfigurationError("a backfill has its own end, backfill_to (--to): omit until (--until)")
    if isinstance(backfill_to, int) and backfill_to > now_ms:
        raise ConfigurationError("backfill_to (--to) is in the future, so its range is not complete: run it later")
    if isinstance(backfill_from, int) and isinstance(backfill_to, int) and backfill_from >= backfill_to:
        raise ConfigurationError("backfill_from (--from) is not before backfill_to (--to): swap them")
    if not isinstance(backfill_from, int) and not isinstance(backfill_to, int):
        only = ", ".join(map(str, sorted(set(backfill_from) ^ set(backfill_to))))
        if only:
            raise ConfigurationError(f"only one end of the backfill names {only}: name it in --from and --to")
    return Backfill(backfill_from, backfill_to)


def _check_offsets(name: str, bound: Offsets, topics: Sequence[str]) -> None:
    if not bound:
        raise ConfigurationError(f"{name} names no partition")
    for partition, offset in bound.items():
        if partition[0] not in topics:
            raise ConfigurationError(f"{name} names topic {partition[0]!r}, which is not loaded")
        if offset < 0:
            raise ConfigurationError(f"{name}: invalid offset {offset} of {partition}; use 0 or more")


def resolve(bound: Bound, states: Sequence[TopicState], lookup: TimeLookup) -> dict[TopicPartition, int]:
    """Return the offset of each bounded partition. Offsets of other topics are left out.

    :raises ConfigurationError: Offsets name a partition that does not exist.
    """
    ends = {TopicPartition(now.name, each): end for now in states for each, end in now.end_offsets.items()}
    if isinstance(bound, int):
        found = lookup.offsets_for_times({(each.topic, each.partition): bound for each in ends})
        return {each: _offset_of(found.get(each), end) for each, end in ends.items()}
    topics = {now.name for now in states}
    own = {TopicPartition(*each): offset for each, offset in bound.items() if each[0] in topics}
    unknown = sorted(set(own) - set(ends))
    if unknown:
        raise ConfigurationError(
            f"there is no partition {unknown[0]}: see `barnabas topic describe {unknown[0].topic}`"
        )
    return own


def _offset_of(found: OffsetAndTimestamp | None, log_end: int) -> int:
    """Return the offset of a record, or the log end offset if the record did not exist when that was read."""
    return log_end if found is None or found.offset < 0 else min(found.offset, log_end)


def limited(plan: TopicLoadPlan, ends: Offsets) -> TopicLoadPlan:
    """Return a plan that ends at `ends` at the latest.

    >>> plan = TopicLoadPlan((OffsetRange("t", 0, 5, 9), OffsetRange("t", 1, 0, 4)))
    >>> [str(each) for each in limited(plan, {TopicPartition("t", 0): 7}).ranges]
    ['t-0 [5, 7)', 't-1 [0, 0)']
    """
    ranges = (
        replace(each, end_offset=max(each.start_offset, min(each.end_offset, ends.get(each.topic_partition, 0))))
        for each in plan.ranges
    )
    return replace(plan, ranges=tuple(ranges))


def plan_backfill(now: TopicState, ledger: Ledger | None, starts: Offsets, ends: Offsets) -> TopicLoadPlan:
    """Return the ranges of a topic that a backfill reads.

    :param ledger: The ledger of the table; None if it has expired.
    :raises ConfigurationError: A range ends after the log, or after the ledger of its partition.
    """
    loaded = None if ledger is None else ledger.topics.get(now.name)
    ranges, lost = [], []
    for partition, log_end in sorted(now.end_offsets.items()):
        place = TopicPartition(now.name, partition)
        if place not in starts or place not in ends:
            continue
        start, end, first = starts[place], max(ends[place], starts[place]), now.first_offsets[partition]
        if end > log_end:
            raise ConfigurationError(f"the backfill of {place} ends at offset {end}, but its log ends at {log_end}")
        known = None if loaded is None else loaded.next_offsets.get(partition, 0)
        if known is not None and end > max(known, start):
            raise ConfigurationError(
                f"the backfill of {place} ends at offset {end}, but loads of the table have only reached {known}: end "
                "the backfill there, and load the rest with a load (--until limits it)"
            )
        if start < min(first, end):
            lost.append(OffsetRange(now.name, partition, start, min(first, end)))
        if max(start, first) < end:
            ranges.append(OffsetRange(now.name, partition, max(start, first), end))
    return TopicLoadPlan(tuple(ranges), tuple(lost))


def check_has_no_rows(table: str, wanted: Sequence[OffsetRange], rows: Iterable[pa.RecordBatch]) -> None:
    """Check that a table has no rows of the ranges of a topic.

    :param rows: The columns `partition` and `offset` of the topic's rows.
    :raises ConfigurationError: The table has such rows.
    """
    found: dict[OffsetRange, tuple[int, int, int]] = {}
    for batch in rows:
        partitions, offsets = batch.column("partition"), batch.column("offset")
        for each in wanted:
            is_inside = pc.and_(
                pc.equal(partitions, each.partition),
                pc.and_(pc.greater_equal(offsets, each.start_offset), pc.less(offsets, each.end_offset)),
            )
            inside = offsets.filter(is_inside)
            if len(inside):
                lowest, highest = pc.min(inside).as_py(), pc.max(inside).as_py()
                count, low, high = found.get(each, (0, lowest, highest))
                found[each] = count + len(inside), min(low, lowest), max(high, highest)
    if found:
        counts = "; ".join(
            f"{count:,} of {each} (offsets {low} to {high})" for each, (count, low, high) in sorted(found.items())
        )
        raise ConfigurationError(
            f"table {table} already has rows of the backfill: {counts}. A backfill would add them twice: choose "
            "another range, or delete these rows first"
        )


def check_starts_after_rows(table: str, topic: str, starts: Offsets, ends: Offsets) -> None:
    """Check the first load of a topic into a table that has rows of it, from backfills.

    :param ends: The offset after the last row of each partition.
    :raises ConfigurationError: A partition with rows has no start offset, or a lower one.
    """
    lower = {each: end for each, end in ends.items() if starts.get(each, 0) < end}
    if lower:
        raise ConfigurationError(
            f"table {table} has rows of {topic!r} from backfills only, and a load from the start of the log would add "
            f"them twice: pass starting_offsets (--starting-offsets), for example {dump_offsets(ends)}"
        )
