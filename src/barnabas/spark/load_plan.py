"""Decides what a load reads: from where the table's last commit ended to the end of the log. Pure.

Never silently: a topic that is not the one loaded before, a log that ends before the table does, and records
deleted before they could be loaded are errors that say which.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from barnabas.errors import BarnabasError, ConfigurationError
from barnabas.model import TopicPartition
from barnabas.spark.errors import DataLossError, HistoryExpiredError, RecreatedTopicError
from barnabas.spark.ledger import Ledger, LoadedTopic
from barnabas.spark.offset_ranges import OffsetRange, split_ranges

SAMPLE_RECORDS = 2_000
"""So many records at each end of a range are enough to guess what the others look like."""


@dataclass(frozen=True, slots=True)
class TopicState:
    """A topic as the brokers describe it: its id ("" where they give none), the ends of its partitions' logs."""

    name: str
    topic_id: str
    first_offsets: Mapping[int, int]
    end_offsets: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class TopicLoadPlan:
    """What to read of a topic, and what the table will never have.

    `lost`: what was deleted from the log between the last load and this one.
    `before_first_load`: what was deleted before the first load of a partition; that is nobody's fault.
    """

    ranges: tuple[OffsetRange, ...]
    lost: tuple[OffsetRange, ...] = ()
    before_first_load: tuple[OffsetRange, ...] = ()

    @property
    def missing(self) -> tuple[OffsetRange, ...]:
        """All that is missing."""
        return self.before_first_load + self.lost

    @classmethod
    def merged(cls, plans: Sequence[TopicLoadPlan]) -> TopicLoadPlan:
        """Return the plan for several topics."""
        return cls(
            tuple(wanted for plan in plans for wanted in plan.ranges),
            tuple(gap for plan in plans for gap in plan.lost),
            tuple(gap for plan in plans for gap in plan.before_first_load),
        )


def plan_topic(now: TopicState, loaded: LoadedTopic | None, starts: Mapping[TopicPartition, int]) -> TopicLoadPlan:
    """Return the ranges to read.

    :param loaded: how far the table has the topic, None for a first load.
    :param starts: offsets to start from where the table says nothing; else the log's first.
    :raises RecreatedTopicError: the topic was deleted and created again, or its log ends before the table's.
    :raises ConfigurationError: an offset to start from is beyond the end of the log.
    """
    if loaded is not None:
        _check_same_topic(now, loaded)
    ranges, lost, before_first_load = [], [], []
    for partition, end in sorted(now.end_offsets.items()):
        first = now.first_offsets[partition]
        known = loaded.next_offsets.get(partition) if loaded else None
        given = starts.get(TopicPartition(now.name, partition))
        start = known if known is not None else given
        if start is None:
            before_first_load.append(OffsetRange(now.name, partition, 0, first))
            start = first
        elif start < first:
            lost.append(OffsetRange(now.name, partition, start, first))
        if start > end:
            raise _beyond_the_end(now.name, partition, start, end, is_loaded=known is not None)
        ranges.append(OffsetRange(now.name, partition, max(start, first), end))
    return TopicLoadPlan(tuple(ranges), tuple(lost), tuple(gap for gap in before_first_load if gap.count))


RECORDS_WORTH_A_TASK = 100_000
"""Fewer records are not spread over more tasks: each would write a file a day of its own."""
RECORDS_WORTH_A_CUT = 10_000
"""A range of fewer records is read by one task: to begin to read a partition takes a request or two."""


def plan_tasks(ranges: Sequence[OffsetRange], parallelism: int, records_max: int) -> list[tuple[OffsetRange, ...]]:
    """Return which ranges each task reads, one after the other: few tasks, of about the same size.

    Each has the same stretch of all partitions where these are long enough. What was sent at about the same time is
    there, so that there is about one task for each event day, which then has one file. Else each has whole partitions,
    but for those that are more than a task's share.

    :param parallelism: how many tasks run at once.
    :param records_max: about so many records a task, where it has several ranges.

    >>> ranges = [OffsetRange("t", partition, 0, 60_000) for partition in range(6)]
    >>> [str(part) for part in plan_tasks(ranges, 2, 1_000_000)[1]][:2]
    ['t-0 [30000, 60000)', 't-1 [30000, 60000)']
    >>> ranges = [OffsetRange("t", partition, 0, 100) for partition in range(200)]
    >>> [len(task) for task in plan_tasks(ranges, 2, 1_000_000)]
    [200]
    """
    ranges = [wanted for wanted in ranges if wanted.count]
    total = sum(wanted.count for wanted in ranges)
    tasks = max(-(-total // records_max), min(parallelism, -(-total // RECORDS_WORTH_A_TASK)), 1)
    if total >= RECORDS_WORTH_A_CUT * tasks * len(ranges):
        shares = [[part for wanted in ranges for part in _stretch(wanted, number, tasks)] for number in range(tasks)]
    else:
        shares = _by_partition(split_ranges(ranges, records_max=min(records_max, -(-total // tasks))), tasks, total)
    return [tuple(share) for share in shares if share]


def _stretch(wanted: OffsetRange, number: int, count: int) -> Iterator[OffsetRange]:
    """Yield one of `count` stretches of a range, if it has any offset."""
    first, length = wanted.start_offset, wanted.count
    start, end = first + length * number // count, first + length * (number + 1) // count
    if start < end:
        yield replace(wanted, start_offset=start, end_offset=end)


def _by_partition(pieces: Sequence[OffsetRange], tasks: int, total: int) -> list[list[OffsetRange]]:
    shares: list[list[OffsetRange]] = [[] for _ in range(tasks)]
    done = 0
    for piece in pieces:
        # By where its middle is, so that no rounding leaves the last task with everything.
        shares[min(tasks - 1, (2 * done + piece.count) * tasks // (2 * total))].append(piece)
        done += piece.count
    return shares


def sampled(shares: Sequence[tuple[OffsetRange, ...]], records_max: int) -> list[tuple[OffsetRange, ...]]:
    """Return the first and the last records of each partition, for those who want to know what records look like: what
    changes in a topic changes with time. A range that has little more than that stays whole.

    :param shares: what tasks read; there are as many shares of the sample, or fewer.
    :param records_max: of a longer range these are the first and the last of each so many.

    >>> first = (OffsetRange("t", 0, 0, 500_000), OffsetRange("t", 1, 0, 3_000))
    >>> second = (OffsetRange("t", 0, 500_000, 900_000),)
    >>> [[str(part) for part in share] for share in sampled([first, second], 1_000_000)]
    [['t-0 [0, 2000)', 't-0 [898000, 900000)'], ['t-1 [0, 3000)']]
    """
    whole: dict[TopicPartition, OffsetRange] = {}
    for wanted in (wanted for share in shares for wanted in share):
        known = whole.setdefault(wanted.topic_partition, wanted)
        start, end = min(known.start_offset, wanted.start_offset), max(known.end_offset, wanted.end_offset)
        whole[wanted.topic_partition] = replace(wanted, start_offset=start, end_offset=end)
    ends = [part for piece in split_ranges(whole.values(), records_max=records_max) for part in _ends(piece)]
    return [tuple(share) for share in _by_partition(ends, len(shares), sum(part.count for part in ends)) if share]


def _ends(wanted: OffsetRange) -> Iterator[OffsetRange]:
    if wanted.count <= 2 * SAMPLE_RECORDS:
        yield wanted
        return
    yield replace(wanted, end_offset=wanted.start_offset + SAMPLE_RECORDS)
    yield replace(wanted, start_offset=wanted.end_offset - SAMPLE_RECORDS)


def _beyond_the_end(topic: str, partition: int, start: int, end: int, *, is_loaded: bool) -> BarnabasError:
    if is_loaded:
        return RecreatedTopicError(
            f"{topic}-{partition}: the table has offsets up to {start - 1}, but the log ends at {end - 1}: "
            "the topic was deleted and created again, or its log was cut; load it into another table"
        )
    return ConfigurationError(
        f"starting_offsets (--starting-offsets) has {start} for {topic}-{partition}, but its log ends at {end}"
    )


def check_table_is_of_topic(table: str, topic: str, ledger: Ledger) -> None:
    """Raise where a table that nobody named, and that is only named after a topic, has other topics.

    :raises ConfigurationError: it says which, and how to choose a table.
    """
    if ledger.topics and topic not in ledger.topics:
        others = ", ".join(repr(other) for other in sorted(ledger.topics))
        raise ConfigurationError(
            f"topic {topic!r} would go into table {table}, which has records of {others}: give it a table of its own "
            "name, table=... (--table NAME); or name this one, if you want both in one table"
        )


def check_all_starts_given(topics: Iterable[TopicState], starts: Mapping[TopicPartition, int]) -> None:
    """Raise where a table that has lost its history would be loaded again from the start of a log.

    :raises HistoryExpiredError: it names the partitions that `starts` does not.
    """
    partitions = (TopicPartition(now.name, each) for now in topics for each in sorted(now.end_offsets))
    without = [str(partition) for partition in partitions if partition not in starts]
    if without:
        raise HistoryExpiredError(
            "no snapshot that is left says how far the table is loaded, so starting_offsets (--starting-offsets) must "
            f"name every partition; it does not name {', '.join(without)}, whose records would be loaded twice"
        )


def check_nothing_twice(starts: Mapping[TopicPartition, int], ends_of_rows: Mapping[TopicPartition, int]) -> None:
    """Raise where offsets that somebody gave would load records again that the table has.

    :param ends_of_rows: the offset after the last row of each partition in the table.
    :raises HistoryExpiredError: it names the partitions, and where they could go on.
    """
    twice = [
        f"{each} from {start} (it has rows up to {ends_of_rows[each] - 1})"
        for each, start in sorted(starts.items())
        if start < ends_of_rows.get(each, 0)
    ]
    if twice:
        raise HistoryExpiredError(
            f"starting_offsets (--starting-offsets) would load records again that the table has: {', '.join(twice)}"
        )


def check_nothing_missing(missing: tuple[OffsetRange, ...]) -> None:
    """Raise for records that were deleted before they were loaded.

    :raises DataLossError: it names each range.
    """
    if missing:
        lost = ", ".join(f"{gap} ({gap.count} offsets)" for gap in missing)
        raise DataLossError(
            f"deleted from the log before they were loaded: {lost}. To load what is left: "
            "fail_on_data_loss=False (--no-fail-on-data-loss). Load more often or keep the log longer (retention.ms) "
            "to lose none"
        )


def _check_same_topic(now: TopicState, loaded: LoadedTopic) -> None:
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
