"""The offsets of a streaming query: their format in Spark's checkpoint, limits, and the ranges of a micro-batch. Pure.

The offset of a stream maps each partition to the offset of its next record, as `{"clicks": {"0": 42}}` in the
checkpoint. Spark's Kafka source uses the same format. Spark compares offsets as texts, so equal offsets must have equal
texts: topics are ordered by name and partitions by number.
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
    """Return offsets in the format of a checkpoint.

    >>> store_offsets({TopicPartition("clicks", 10): 7, TopicPartition("clicks", 9): 42})
    {'clicks': {'9': 42, '10': 7}}
    """
    stored: StoredOffsets = {}
    for partition, offset in sorted(offsets.items()):
        stored.setdefault(partition.topic, {})[str(partition.partition)] = offset
    return stored


def restore_offsets(stored: object) -> dict[TopicPartition, int]:
    """Return the offsets of a checkpoint.

    :raises ConfigurationError: The checkpoint has another format, so another source has written it.

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
            f"the checkpoint has the offset {stored!r}, unlike {{'clicks': {{'0': 42}}}}: it belongs to a query on "
            "another source; give this query another checkpointLocation"
        ) from None


@dataclass(frozen=True, slots=True)
class LogBounds:
    """The current log start and log end offsets of a query's partitions."""

    first: Offsets
    last: Offsets

    def extended_to(self, offsets: Offsets) -> LogBounds:
        """Return bounds whose ends are at least `offsets`."""
        return LogBounds(self.first, {tp: max(end, offsets.get(tp, end)) for tp, end in self.last.items()})


@dataclass(frozen=True, slots=True)
class BatchStart:
    """The start offsets of a micro-batch, and a sentence for each partition with deleted records."""

    offsets: Offsets
    losses: tuple[str, ...]


def find_start(committed: Offsets, logs: LogBounds) -> BatchStart:
    """Return the start offsets of the next micro-batch.

    A new partition starts at its log start offset, and a deleted one is left out. If the log starts after the committed
    offset, the query continues at the log start. If the log ends before it, the topic was created again, and the query
    reads all of it.
    """
    offsets: dict[TopicPartition, int] = {}
    losses = [
        f"{tp} was deleted; the query had read up to {committed[tp]}" for tp in sorted(committed) if tp not in logs.last
    ]
    for tp in sorted(logs.last):
        first, last = logs.first[tp], logs.last[tp]
        wanted = committed.get(tp, 0)
        offsets[tp] = wanted
        if wanted > last:
            losses.append(f"{tp} ends at {last}, but the query had read up to {wanted}: the topic was created again")
            offsets[tp] = first
        elif wanted < first:
            losses.append(f"{tp} begins at {first}: offsets {wanted} to {first - 1} were deleted before they were read")
            offsets[tp] = first
    return BatchStart(offsets, tuple(losses))


def limit_offsets(start: Offsets, last: Offsets, records_max: int) -> dict[TopicPartition, int]:
    """Return the ends of a batch of at most `records_max` records, in proportion to the backlog of each partition.

    Each partition with a backlog gets at least one record, so that large partitions do not delay small ones. The batch
    may therefore have more than `records_max` records if there are more such partitions.

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
    """Return the number of offsets between two positions of a stream."""
    return sum(max(last[tp] - start.get(tp, 0), 0) for tp in last)


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """The ranges of a micro-batch, and a sentence for each partition with deleted records."""

    ranges: tuple[OffsetRange, ...]
    losses: tuple[str, ...]


def plan_batch(committed: Offsets, end: Offsets, logs: LogBounds, *, is_first: bool = False) -> BatchPlan:
    """Return the ranges between two offsets of the checkpoint. The end may have been decided some time ago.

    :param is_first: True if `committed` is the start of the query, resolved again after a crash in the first batch. A
        start after `end` then means that the query started at the log end, and the batch is empty.
    """
    ranges: list[OffsetRange] = []
    losses = [
        f"{tp} was deleted; the query had read up to {committed[tp]}" for tp in sorted(committed) if tp not in end
    ]
    for tp in sorted(end):
        begin, stop = committed.get(tp, 0), end[tp]
        if tp not in logs.last:
            losses.append(f"{tp} was deleted; the query had read up to {begin}")
            continue
        first, last = logs.first[tp], logs.last[tp]
        if stop > last:
            # The log belongs to a new topic of the same name; the next batch reads it from its start.
            losses.append(f"{tp} ends at {last}, but the batch ends at {stop}: the topic was created again")
            continue
        if begin > stop:
            if is_first:
                continue
            losses.append(f"{tp} ends at {stop}, but the query had read up to {begin}: the topic was created again")
            begin = first
        if begin < first:
            losses.append(f"{tp} begins at {first}: offsets {begin} to {first - 1} were deleted before they were read")
            begin = min(first, stop)
        ranges.append(OffsetRange(*tp, begin, stop))
    return BatchPlan(tuple(each for each in ranges if each.count), tuple(losses))


class BatchLimiter:
    """Decides the end of the next batch by `maxOffsetsPerTrigger`, `minOffsetsPerTrigger` and `maxTriggerDelay`.

    :param records_max: The limit of a batch (`limit_offsets`); None for no limit.
    :param records_min: A batch with fewer records waits until `delay_ms_max` after the last batch; None never waits.
    :param delay_ms_max: The longest wait, in milliseconds.
    """

    def __init__(self, records_max: int | None, records_min: int | None, delay_ms_max: int, clock: Clock) -> None:
        self._records_max = records_max
        self._records_min = records_min
        self._delay_s_max = delay_ms_max / 1000
        self._clock = clock
        self._last_s: float | None = None

    def end(self, start: Offsets, last: Offsets, *, waits: bool) -> dict[TopicPartition, int] | None:
        """Return the end of a batch from `start`; None if the batch waits for more records.

        :param waits: False if the batch must not wait, because no more records will come.
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
