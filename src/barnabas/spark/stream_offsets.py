"""What a streaming query reads next: offsets as Spark's checkpoint has them, limits, and the ranges of a batch. Pure.

An offset of a stream is a mapping from partitions to the offset of the next record, in the checkpoint
`{"clicks": {"0": 42}}`, as Spark's Kafka source writes it. Spark compares the texts of two offsets, so equal ones are
always written alike: topics by name, partitions by number.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from barnabas.clock import Clock
from barnabas.errors import ConfigurationError
from barnabas.model import TopicPartition
from barnabas.spark.offset_ranges import OffsetRange

Offsets = Mapping[TopicPartition, int]
StoredOffsets = dict[str, dict[str, int]]


def store_offsets(offsets: Offsets) -> StoredOffsets:
    """Return offsets as they stand in a checkpoint.

    >>> store_offsets({TopicPartition("clicks", 10): 7, TopicPartition("clicks", 9): 42})
    {'clicks': {'9': 42, '10': 7}}
    """
    stored: StoredOffsets = {}
    for partition, offset in sorted(offsets.items()):
        stored.setdefault(partition.topic, {})[str(partition.partition)] = offset
    return stored


def restore_offsets(stored: object) -> dict[TopicPartition, int]:
    """Return the offsets of a checkpoint.

    :raises ConfigurationError: it has something else; then it is not one of this source.

    >>> restore_offsets({"clicks": {"0": 42}})
    {TopicPartition(topic='clicks', partition=0): 42}
    """
    try:
        assert isinstance(stored, dict)
        return {
            TopicPartition(topic, int(partition)): int(offset)
            for topic, partitions in stored.items()
            for partition, offset in partitions.items()
        }
    except (AssertionError, AttributeError, TypeError, ValueError):
        raise ConfigurationError(
            f"the checkpoint has the offset {stored!r}, not one as {{'clicks': {{'0': 42}}}}: it belongs to a query on "
            "another source; give this query a checkpointLocation of its own"
        ) from None


@dataclass(frozen=True, slots=True)
class LogBounds:
    """Where the logs of the partitions that a query reads begin and end now."""

    first: Offsets
    last: Offsets

    def extended_to(self, offsets: Offsets) -> LogBounds:
        """Return the same with logs that end no earlier than `offsets`."""
        return LogBounds(self.first, {tp: max(end, offsets.get(tp, end)) for tp, end in self.last.items()})


@dataclass(frozen=True, slots=True)
class BatchStart:
    """Where a batch starts, and what is not there any more, a sentence for each partition."""

    offsets: Offsets
    losses: tuple[str, ...]


def find_start(committed: Offsets, logs: LogBounds) -> BatchStart:
    """Return where to go on after `committed`.

    A partition that is new starts with its first record. One that is gone is left out. Where the log begins later than
    the query is, it goes on with the first record; where the log ends earlier, the topic was deleted and made again,
    and all of it is new.
    """
    offsets: dict[TopicPartition, int] = {}
    losses = [f"{tp} is gone, read up to {committed[tp]}" for tp in sorted(committed) if tp not in logs.last]
    for tp in sorted(logs.last):
        first, last = logs.first[tp], logs.last[tp]
        wanted = committed.get(tp, 0)
        offsets[tp] = wanted
        if wanted > last:
            losses.append(f"{tp} ends at {last}, and was read up to {wanted}: it was deleted and made again")
            offsets[tp] = first
        elif wanted < first:
            losses.append(f"{tp} begins at {first}: offsets {wanted} to {first - 1} were deleted before they were read")
            offsets[tp] = first
    return BatchStart(offsets, tuple(losses))


def limit_offsets(start: Offsets, last: Offsets, records_max: int) -> dict[TopicPartition, int]:
    """Return where a batch ends that has at most `records_max` records, in proportion to what each partition has.

    Each partition that has records gives at least one: else the small ones would wait for the large ones. So with
    fewer `records_max` than such partitions, the batch has as many as there are partitions.

    >>> zero, one = TopicPartition("t", 0), TopicPartition("t", 1)
    >>> [*limit_offsets({zero: 0, one: 0}, {zero: 900, one: 100}, 100).values()]
    [89, 11]
    """
    waiting = {tp: last[tp] - start[tp] for tp in sorted(last) if last[tp] > start[tp]}
    total = sum(waiting.values())
    ends = {tp: last[tp] for tp in sorted(last)}
    if total <= records_max:
        return ends
    spare = max(records_max - len(waiting), 0)
    more = total - len(waiting)
    seen = 0
    for tp, count in waiting.items():
        before, seen = seen, seen + count - 1
        ends[tp] = start[tp] + 1 + (spare * seen // more - spare * before // more if more else 0)
    return ends


def count_waiting(start: Offsets, last: Offsets) -> int:
    """Return how many offsets lie between two places."""
    return sum(max(last[tp] - start.get(tp, 0), 0) for tp in last)


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """What a batch reads, and what it cannot read any more, a sentence for each partition."""

    ranges: tuple[OffsetRange, ...]
    losses: tuple[str, ...]


def plan_batch(committed: Offsets, end: Offsets, logs: LogBounds, *, is_first: bool = False) -> BatchPlan:
    """Return the ranges between two offsets of the checkpoint, of which the second was decided some time ago.

    :param is_first: `committed` is where the query began, found out anew for a batch that a crash interrupted. Where it
        is after `end`, the query began at the end of the log and the batch was empty.
    """
    ranges: list[OffsetRange] = []
    losses = [f"{tp} is gone, read up to {committed[tp]}" for tp in sorted(committed) if tp not in end]
    for tp in sorted(end):
        begin, stop = committed.get(tp, 0), end[tp]
        if tp not in logs.last:
            losses.append(f"{tp} is gone, read up to {begin}")
            continue
        first, last = logs.first[tp], logs.last[tp]
        if stop > last:
            # What the log has is of another topic of that name; the next batch starts with it.
            losses.append(f"{tp} ends at {last}, and offsets up to {stop} were to be read: it was made again")
            continue
        if begin > stop:
            if is_first:
                continue
            losses.append(f"{tp} ends at {stop}, and was read up to {begin}: it was deleted and made again")
            begin = first
        if begin < first:
            losses.append(f"{tp} begins at {first}: offsets {begin} to {first - 1} were deleted before they were read")
            begin = min(first, stop)
        ranges.append(OffsetRange(*tp, begin, stop))
    return BatchPlan(tuple(each for each in ranges if each.count), tuple(losses))


class BatchLimiter:
    """Decides where the next batch ends: `maxOffsetsPerTrigger`, `minOffsetsPerTrigger`, `maxTriggerDelay`.

    :param records_max: None for no limit; of the records see `limit_offsets`.
    :param records_min: None for none: a batch with fewer waits until `delay_ms_max` have passed since the last one.
    """

    def __init__(self, records_max: int | None, records_min: int | None, delay_ms_max: int, clock: Clock) -> None:
        self._records_max = records_max
        self._records_min = records_min
        self._delay_s_max = delay_ms_max / 1000
        self._clock = clock
        self._last_s: float | None = None

    def end(self, start: Offsets, last: Offsets, *, waits: bool) -> dict[TopicPartition, int] | None:
        """Return where a batch from `start` ends, None if it is to wait for more records.

        :param waits: whether it may wait; where nothing more will come, it may not.
        """
        if waits and self._is_too_early(count_waiting(start, last)):
            return None
        self._last_s = self._clock.monotonic()
        if self._records_max is None:
            return {tp: last[tp] for tp in sorted(last)}
        return limit_offsets(start, last, self._records_max)

    def _is_too_early(self, waiting: int) -> bool:
        if self._records_min is None or self._last_s is None or waiting >= self._records_min:
            return False
        return self._clock.monotonic() - self._last_s < self._delay_s_max
