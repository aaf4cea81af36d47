"""Decides what a load reads: from where the table's last commit ended to the end of the log. Pure.

Never silently: a topic that is not the one loaded before, a log that ends before the table does, and records
deleted before they could be loaded are errors that say which.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from barnabas.model import TopicPartition
from barnabas.spark.errors import DataLossError, HistoryExpiredError, RecreatedTopicError
from barnabas.spark.ledger import LoadedTopic
from barnabas.spark.planning import OffsetRange


@dataclass(frozen=True, slots=True)
class TopicNow:
    """A topic as the brokers describe it: its id ("" where they give none), the ends of its partitions' logs."""

    name: str
    topic_id: str
    first_offsets: Mapping[int, int]
    end_offsets: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """What to read of a topic, and what is missing from the log between the last load and this one."""

    ranges: tuple[OffsetRange, ...]
    missing: tuple[OffsetRange, ...] = ()


def plan_topic(now: TopicNow, loaded: LoadedTopic | None, starts: Mapping[TopicPartition, int]) -> TopicPlan:
    """Return the ranges to read.

    :param loaded: how far the table has the topic, None for a first load.
    :param starts: offsets to start from where the table says nothing; else the log's first.
    :raises RecreatedTopicError: the topic was deleted and created again, or its log ends before the table's.
    """
    if loaded is not None:
        _check_same_topic(now, loaded)
    ranges, missing = [], []
    for partition, end in sorted(now.end_offsets.items()):
        first = now.first_offsets[partition]
        known = loaded.next_offsets.get(partition) if loaded else None
        start = known if known is not None else starts.get(TopicPartition(now.name, partition), first)
        if start > end:
            raise RecreatedTopicError(
                f"{now.name}-{partition}: the table has offsets up to {start - 1}, but the log ends at {end - 1}: "
                "the topic was deleted and created again, or its log was cut; load it into another table"
            )
        if start < first:
            missing.append(OffsetRange(now.name, partition, start, first))
        ranges.append(OffsetRange(now.name, partition, max(start, first), end))
    return TopicPlan(tuple(ranges), tuple(missing))


def check_all_starts_given(topics: Iterable[TopicNow], starts: Mapping[TopicPartition, int]) -> None:
    """Raise where a table that has lost its history would be loaded again from the start of a log.

    :raises HistoryExpiredError: it names the partitions that `starts` does not.
    """
    partitions = (TopicPartition(now.name, each) for now in topics for each in sorted(now.end_offsets))
    without = [str(partition) for partition in partitions if partition not in starts]
    if without:
        raise HistoryExpiredError(
            "no snapshot that is left says how far the table is loaded, so starting_offsets must name every "
            f"partition; it does not name {', '.join(without)}, whose records would be loaded twice"
        )


def check_nothing_missing(missing: tuple[OffsetRange, ...]) -> None:
    """Raise for records that were deleted before they were loaded.

    :raises DataLossError: it names each range.
    """
    if missing:
        lost = ", ".join(f"{gap} ({gap.count} records)" for gap in missing)
        raise DataLossError(
            f"deleted from the log before they were loaded: {lost}. Set fail_on_data_loss to false to load "
            "what is left; load more often or keep the log longer (retention.ms) to lose none"
        )


def _check_same_topic(now: TopicNow, loaded: LoadedTopic) -> None:
    if now.topic_id and loaded.topic_id and now.topic_id != loaded.topic_id:
        raise RecreatedTopicError(
            f"topic {now.name!r} was deleted and created again since the last load (id {loaded.topic_id}, now "
            f"{now.topic_id}): its offsets began anew; load it into another table"
        )
    gone = sorted(set(loaded.next_offsets) - set(now.end_offsets))
    if gone:
        raise RecreatedTopicError(
            f"topic {now.name!r} has no partition {gone[0]} any more, which the table has records of: it was "
            "deleted and created again; load it into another table"
        )
