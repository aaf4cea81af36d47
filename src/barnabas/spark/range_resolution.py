"""Resolves the offsets that a query or load names to offset ranges. Pure apart from calls of `OffsetLookup`.

Invariant of the result: `log start <= start <= end <= log end` at the time of planning, for each range.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from barnabas.client.admin import Admin
from barnabas.client.admin.topics import TopicDescription, check_visible, require
from barnabas.errors import ConfigurationError
from barnabas.model import OffsetAndTimestamp, TopicPartition
from barnabas.spark.errors import DataLossError
from barnabas.spark.offset_ranges import OffsetRange
from barnabas.spark.options import (
    EARLIEST_OFFSET,
    LATEST_OFFSET,
    Assign,
    AtOffsets,
    AtTimestamp,
    AtTimestamps,
    Boundary,
    Earliest,
    Latest,
    Selection,
    SourceOptions,
    Subscribe,
    SubscribePattern,
)

Offsets = Mapping[TopicPartition, int]


class OffsetLookup(Protocol):
    """The calls that read offsets from a cluster; `barnabas.Admin` implements them."""

    def beginning_offsets(self, partitions: list[TopicPartition], /) -> Offsets: ...

    def end_offsets(self, partitions: list[TopicPartition], /) -> Offsets: ...

    def offsets_for_times(
        self, timestamps_ms: Mapping[tuple[str, int], int], /
    ) -> Mapping[TopicPartition, OffsetAndTimestamp | None]: ...


def count_partitions(selection: Selection, topics: Sequence[TopicDescription]) -> dict[str, int]:
    """Return the number of partitions of each topic, without topics that the brokers cannot describe.

    :raises ApiError: The brokers cannot describe a selected topic.
    """
    require(topic for topic in topics if _names(selection, topic.name))
    return {topic.name: len(topic.partitions) for topic in topics if not topic.error}


def describe_visible(selection: Selection, admin: Admin) -> list[TopicDescription]:
    """Return all topics that the principal of the client may describe.

    :raises ApiError: It may not describe a topic that the selection names.
    """
    topics = admin.describe_topics()
    if not isinstance(selection, SubscribePattern):
        named = selection.topics if isinstance(selection, Subscribe) else [tp.topic for tp in selection.partitions]
        check_visible(admin, sorted(set(named) - {topic.name for topic in topics}))
    return topics


def _names(selection: Selection, topic: str) -> bool:
    if isinstance(selection, SubscribePattern):
        return selection.pattern.fullmatch(topic) is not None
    if isinstance(selection, Subscribe):
        return topic in selection.topics
    return any(topic == tp.topic for tp in selection.partitions)


def select_partitions(selection: Selection, partition_counts: Mapping[str, int]) -> list[TopicPartition]:
    """Return the selected partitions.

    :param partition_counts: The number of partitions of every topic in the cluster.
    :raises ConfigurationError: A topic or partition does not exist.
    """
    if isinstance(selection, Assign):
        for topic, partition in selection.partitions:
            if partition >= _count(topic, partition_counts):
                raise ConfigurationError(
                    f"topic {topic!r} has no partition {partition}: it has {partition_counts[topic]} partitions"
                )
        return list(selection.partitions)
    if isinstance(selection, Subscribe):
        topics: Iterable[str] = sorted(set(selection.topics))
    else:
        topics = sorted(topic for topic in partition_counts if selection.pattern.fullmatch(topic))
    return [TopicPartition(topic, number) for topic in topics for number in range(_count(topic, partition_counts))]


def _count(topic: str, partition_counts: Mapping[str, int]) -> int:
    if topic not in partition_counts:
        raise ConfigurationError(f"topic {topic!r} does not exist: see `barnabas topic list`")
    return partition_counts[topic]


def resolve_ranges(options: SourceOptions, partitions: list[TopicPartition], lookup: OffsetLookup) -> list[OffsetRange]:
    """Return the range to read of each partition, in the order of the partitions.

    :raises ConfigurationError: The boundaries do not name exactly these partitions, or a start is after its end.
    :raises DataLossError: Records of a range were deleted, and `failOnDataLoss` is set.
    """
    if not partitions:
        return []
    log = _Log(lookup, partitions)
    starts = log.resolve("starting", options.starting, or_latest=options.start_at_latest_if_no_later_record)
    ends = log.resolve("ending", options.ending, or_latest=True)
    ranges = [OffsetRange(*partition, starts[partition], ends[partition]) for partition in partitions]
    return [_inside_log(wanted, log, options) for wanted in ranges]


class _Log:
    """The partitions to read, with their current log start and log end offsets."""

    def __init__(self, lookup: OffsetLookup, partitions: list[TopicPartition]) -> None:
        self._lookup = lookup
        self.partitions = partitions
        self.first = lookup.beginning_offsets(partitions)
        self.last = lookup.end_offsets(partitions)

    def resolve(self, side: str, boundary: Boundary, *, or_latest: bool) -> dict[TopicPartition, int]:
        """Return the offset of each partition.

        :param or_latest: True uses the log end offset if no record has the timestamp or a later one.
        """
        match boundary:
            case Earliest():
                return dict(self.first)
            case Latest():
                return dict(self.last)
            case AtOffsets(offsets, topics):
                offsets = {**offsets, **self._of_topics(f"{side}Offsets", topics)}
                _check_covers(f"{side}Offsets", offsets, self.partitions)
                named = {EARLIEST_OFFSET: self.first, LATEST_OFFSET: self.last}
                return {p: named[offset][p] if offset < 0 else offset for p, offset in offsets.items()}
            case AtTimestamp(timestamp_ms):
                times = dict.fromkeys(self.partitions, timestamp_ms)
            case AtTimestamps(timestamps_ms):
                _check_covers(f"{side}OffsetsByTimestamp", timestamps_ms, self.partitions)
                times = dict(timestamps_ms)
        found = self._lookup.offsets_for_times({(p.topic, p.partition): time for p, time in times.items()})
        return {p: _offset_at(p, times[p], found.get(p), self.last[p] if or_latest else None) for p in times}

    def _of_topics(self, name: str, topics: Mapping[str, int]) -> Offsets:
        """Return the offset of each partition of topics for which one offset applies to all partitions."""
        unknown = sorted(set(topics) - {partition.topic for partition in self.partitions})
        if unknown:
            raise ConfigurationError(f"option {name!r} names {', '.join(unknown)}, but no partition of it is selected")
        return {partition: topics[partition.topic] for partition in self.partitions if partition.topic in topics}


def _offset_at(
    partition: TopicPartition, timestamp_ms: int, found: OffsetAndTimestamp | None, otherwise: int | None
) -> int:
    if found is not None and found.offset >= 0:
        return found.offset
    if otherwise is None:
        raise ConfigurationError(
            f"{partition} has no record at or after {timestamp_ms} ms to start at: choose an earlier time, "
            "or set startingOffsetsByTimestampStrategy to latest"
        )
    return otherwise


def _check_covers(name: str, given: Mapping[TopicPartition, int], partitions: list[TopicPartition]) -> None:
    missing, unknown = sorted(set(partitions) - set(given)), sorted(set(given) - set(partitions))
    if missing or unknown:
        what = [f"without {', '.join(map(str, missing))}"] if missing else []
        what += [f"with {', '.join(map(str, unknown))}, not selected"] if unknown else []
        raise ConfigurationError(f"option {name!r} must name exactly the partitions read, but is {'; '.join(what)}")


def _inside_log(wanted: OffsetRange, log: _Log, options: SourceOptions) -> OffsetRange:
    if wanted.start_offset > wanted.end_offset:
        if not isinstance(options.starting, AtOffsets) and not isinstance(options.ending, AtOffsets):
            # Timestamps need not increase in a log, so the end found by timestamp may be before the start. The range is
            # then empty.
            return OffsetRange(wanted.topic, wanted.partition, wanted.end_offset, wanted.end_offset)
        raise ConfigurationError(f"{wanted}: the query starts after its end")
    log_start, log_end = log.first[wanted.topic_partition], log.last[wanted.topic_partition]
    if wanted.start_offset >= log_start and wanted.end_offset <= log_end:
        return wanted
    if options.fail_on_data_loss:
        raise DataLossError(
            f"{wanted}: the log only has offsets {log_start} to {log_end - 1}. "
            "Choose other offsets, or set failOnDataLoss to false to read the existing ones"
        )
    start = min(max(wanted.start_offset, log_start), log_end)
    end = max(min(wanted.end_offset, log_end), start)
    return OffsetRange(wanted.topic, wanted.partition, start, end)
