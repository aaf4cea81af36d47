"""The plan of a load: the offsets from the end of the table's last commit to the end of the log. Pure.

The plan rejects a topic that was created again, a log that ends before the table's offsets, and records that were
deleted before they were loaded. Each error names the topic and the offsets.
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
"""The number of records to sample at each end of a range when the fields of all records are inferred."""


@dataclass(frozen=True, slots=True)
class TopicState:
    """The description of a topic by the brokers: id ("" without topic ids), log start and end offsets."""

    name: str
    topic_id: str
    first_offsets: Mapping[int, int]
    end_offsets: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class TopicLoadPlan:
    """The offset ranges to read from a topic, and the offsets that the table will never have."""

    ranges: tuple[OffsetRange, ...]
    lost: tuple[OffsetRange, ...] = ()
    """The offsets deleted from the log between the last load and this one."""
    before_first_load: tuple[OffsetRange, ...] = ()
    """The offsets deleted before the first load of a partition. They do not fail a load."""

    @property
    def missing(self) -> tuple[OffsetRange, ...]:
        """All deleted offsets that no load has read."""
        return self.before_first_load + self.lost

    @classmethod
    def merged(cls, plans: Sequence[TopicLoadPlan]) -> TopicLoadPlan:
        """Return one plan for several topics."""
        return cls(
            tuple(wanted for plan in plans for wanted in plan.ranges),
            tuple(gap for plan in plans for gap in plan.lost),
            tuple(gap for plan in plans for gap in plan.before_first_load),
        )


def plan_topic(now: TopicState, loaded: LoadedTopic | None, starts: Mapping[TopicPartition, int]) -> TopicLoadPlan:
    """Return the ranges to read.

    :param loaded: The loaded part of the topic; None for a first load.
    :param starts: The first offset of partitions without loaded offsets; by default the log start offset.
    :raises RecreatedTopicError: The topic was deleted and created again, or its log ends before the table's offsets.
    :raises ConfigurationError: A start offset is greater than the log end offset.
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
"""The minimum number of records per task. Each task writes a file per day, so more tasks would write more small files.
"""
RECORDS_WORTH_A_CUT = 10_000
"""The minimum number of records in a range that is split between tasks. Each part costs one or two extra requests."""


def plan_tasks(ranges: Sequence[OffsetRange], parallelism: int, records_max: int) -> list[tuple[OffsetRange, ...]]:
    """Return the ranges that each task reads, one after the other: few tasks of about the same size.

    If the ranges are long, each task reads a slice of every partition. Records at similar positions have similar
    timestamps, so about one task writes to each event day, and the day gets one file. Otherwise a task reads whole
    partitions, and only a partition larger than the share of a task is split.

    :param parallelism: The number of tasks that run at a time.
    :param records_max: The approximate largest number of records of a task with several ranges.

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
    """Yield slice `number` of `count` equal slices of a range; nothing if the slice is empty."""
    first, length = wanted.start_offset, wanted.count
    start, end = first + length * number // count, first + length * (number + 1) // count
    if start < end:
        yield replace(wanted, start_offset=start, end_offset=end)


def _by_partition(pieces: Sequence[OffsetRange], tasks: int, total: int) -> list[list[OffsetRange]]:
    shares: list[list[OffsetRange]] = [[] for _ in range(tasks)]
    done = 0
    for piece in pieces:
        # Choose the task by the middle of a piece. If it were chosen by the start, rounding could give most pieces to
        # the last task.
        shares[min(tasks - 1, (2 * done + piece.count) * tasks // (2 * total))].append(piece)
        done += piece.count
    return shares


def sampled(shares: Sequence[tuple[OffsetRange, ...]], records_max: int) -> list[tuple[OffsetRange, ...]]:
    """Return the first and the last records of each partition, as a sample for the inference of fields.

    The fields of a topic change over time, so both ends are read. A range that is little longer than the sample is read
    whole.

    :param shares: The ranges of each task. The sample has as many shares, or fewer.
    :param records_max: A longer range is split into pieces of this many records, and each piece is sampled.

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
    """Check that a table that is named after a topic by default contains no other topics.

    :raises ConfigurationError: The table was loaded from other topics.
    """
    if ledger.topics and topic not in ledger.topics:
        others = ", ".join(repr(other) for other in sorted(ledger.topics))
        raise ConfigurationError(
            f"topic {topic!r} would be loaded into table {table}, which has records of {others}: choose another table "
            "with table=... (--table NAME), or pass this name to load both topics into one table"
        )


def check_all_starts_given(topics: Iterable[TopicState], starts: Mapping[TopicPartition, int]) -> None:
    """Check that every partition has a start offset. Without one, a load would read a log from its start again.

    :raises HistoryExpiredError: `starts` lacks partitions.
    """
    partitions = (TopicPartition(now.name, each) for now in topics for each in sorted(now.end_offsets))
    without = [str(partition) for partition in partitions if partition not in starts]
    if without:
        raise HistoryExpiredError(
            "the end of the last load is unknown because the history of the table expired, so starting_offsets "
            f"(--starting-offsets) must name every partition; without {', '.join(without)} their records would be "
            "loaded twice"
        )


def check_nothing_twice(starts: Mapping[TopicPartition, int], ends_of_rows: Mapping[TopicPartition, int]) -> None:
    """Check that start offsets do not load records that the table already has.

    :param ends_of_rows: The offset after the last row of each partition in the table.
    :raises HistoryExpiredError: A start offset is too low.
    """
    twice = [
        f"{each} from {start} (the table has offsets up to {ends_of_rows[each] - 1})"
        for each, start in sorted(starts.items())
        if start < ends_of_rows.get(each, 0)
    ]
    if twice:
        raise HistoryExpiredError(
            f"starting_offsets (--starting-offsets) would load records that the table already has: {', '.join(twice)}"
        )


def check_nothing_missing(missing: tuple[OffsetRange, ...]) -> None:
    """Check that no records were deleted before they were loaded.

    :raises DataLossError: Records were deleted.
    """
    if missing:
        lost = ", ".join(f"{gap} ({gap.count} offsets)" for gap in missing)
        raise DataLossError(
            f"deleted from the log before they were loaded: {lost}. To load the remaining records: "
            "fail_on_data_loss=False (--no-fail-on-data-loss). To prevent data loss, load more often or increase "
            "retention.ms"
        )


def _check_same_topic(now: TopicState, loaded: LoadedTopic) -> None:
    if now.topic_id and loaded.topic_id and now.topic_id != loaded.topic_id:
        raise RecreatedTopicError(
            f"topic {now.name!r} was deleted and created again since the last load (id {loaded.topic_id}, now "
            f"{now.topic_id}): its offsets start again at 0; load it into another table"
        )
    gone = sorted(set(loaded.next_offsets) - set(now.end_offsets))
    if gone:
        raise RecreatedTopicError(
            f"topic {now.name!r} no longer has partition {gone[0]}, and the table has records of it: the topic was "
            "deleted and created again; load it into another table"
        )
