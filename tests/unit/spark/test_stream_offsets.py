"""What a stream reads next, without Spark and without a broker: limits, delays, new, deleted and recreated topics."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.clock import ManualClock
from barnabas.errors import ConfigurationError
from barnabas.model import TopicPartition
from barnabas.spark.offset_ranges import OffsetRange
from barnabas.spark.stream_offsets import (
    BatchLimiter,
    LogBounds,
    find_start,
    limit_offsets,
    plan_batch,
    restore_offsets,
    store_offsets,
)

ZERO, ONE, TWO = (TopicPartition("t", number) for number in range(3))
PARTITIONS = [TopicPartition(topic, number) for topic in "ab" for number in range(11)]
COUNTS = st.dictionaries(st.sampled_from(PARTITIONS), st.integers(0, 10**9), min_size=1)


def logs(**last: int) -> LogBounds:
    """Return logs from offset 10 on of partitions t0, t1 ..."""
    ends = {TopicPartition(name[0], int(name[1:])): end for name, end in last.items()}
    return LogBounds(dict.fromkeys(ends, 10), ends)


@given(COUNTS)
def test_offsets_come_back_from_the_checkpoint_and_equal_ones_are_written_alike(
    offsets: dict[TopicPartition, int],
) -> None:
    assert restore_offsets(store_offsets(offsets)) == offsets
    backwards = dict(reversed(list(offsets.items())))
    assert str(store_offsets(offsets)) == str(store_offsets(backwards))


@pytest.mark.parametrize("stored", [None, 7, {"t": 7}, {"t": {"x": 1}}, {"index": {"0": None}}])
def test_a_checkpoint_of_another_source_is_told(stored: object) -> None:
    with pytest.raises(ConfigurationError, match="checkpointLocation"):
        restore_offsets(stored)


@given(COUNTS, st.integers(1, 10**6))
def test_a_limited_batch_has_as_many_records_as_it_may_and_some_of_each_partition(
    waiting: dict[TopicPartition, int], records_max: int
) -> None:
    start = dict.fromkeys(waiting, 100)
    last = {tp: 100 + count for tp, count in waiting.items()}
    ends = limit_offsets(start, last, records_max)
    taken = {tp: ends[tp] - 100 for tp in waiting}
    assert all(min(1, waiting[tp]) <= taken[tp] <= waiting[tp] for tp in waiting)
    filled = sum(count > 0 for count in waiting.values())
    assert sum(taken.values()) == min(sum(waiting.values()), max(records_max, filled))


@given(COUNTS, st.integers(1, 10**6))
def test_batches_end_when_all_is_read(waiting: dict[TopicPartition, int], records_max: int) -> None:
    small = {tp: count % 50 for tp, count in waiting.items()}
    at = dict.fromkeys(small, 0)
    for _ in range(sum(small.values()) + 1):
        at = limit_offsets(at, small, min(records_max, 20))
    assert at == small


def test_a_new_partition_starts_with_its_first_record() -> None:
    found = find_start({ZERO: 20}, LogBounds({ZERO: 10, ONE: 0}, {ZERO: 30, ONE: 5}))
    assert found.offsets == {ZERO: 20, ONE: 0}
    assert not found.losses


def test_what_is_gone_is_told_for_each_partition() -> None:
    found = find_start({ZERO: 5, ONE: 40, TWO: 7}, logs(t0=30, t1=30))
    assert found.offsets == {ZERO: 10, ONE: 10}
    assert [loss.split(":")[0] for loss in found.losses] == [
        "t-2 was deleted; the query had read up to 7",
        "t-0 begins at 10",
        "t-1 ends at 30, but the query had read up to 40",
    ]


def test_a_batch_is_what_lies_between_two_offsets_and_empty_ranges_are_none() -> None:
    plan = plan_batch({ZERO: 10, ONE: 12}, {ZERO: 20, ONE: 12, TWO: 11}, logs(t0=30, t1=30, t2=30))
    assert plan.ranges == (OffsetRange("t", 0, 10, 20), OffsetRange("t", 2, 10, 11))
    assert len(plan.losses) == 1  # a partition that is new, and of which the first records were deleted


def test_deleted_records_and_partitions_are_left_out_of_a_batch() -> None:
    plan = plan_batch({ZERO: 4, ONE: 12}, {ZERO: 20, TWO: 30}, logs(t0=30))
    assert plan.ranges == (OffsetRange("t", 0, 10, 20),)
    assert [loss.split(" ")[0] for loss in plan.losses] == ["t-1", "t-0", "t-2"]


def test_a_topic_that_was_made_again_is_read_from_its_first_record_once() -> None:
    before, after = {ZERO: 100}, {ZERO: 50}
    first = plan_batch(before, after, logs(t0=120))
    assert first.ranges == (OffsetRange("t", 0, 10, 50),)
    assert "created again" in first.losses[0]
    # A batch that was planned before the topic was made again reads nothing of the new one, the next one does.
    assert plan_batch({ZERO: 20}, {ZERO: 100}, logs(t0=50)).ranges == ()
    assert find_start({ZERO: 100}, logs(t0=50)).offsets == {ZERO: 10}


def test_the_first_batch_planned_again_after_a_crash_has_nothing_where_the_query_began_at_the_end() -> None:
    plan = plan_batch({ZERO: 70}, {ZERO: 50}, logs(t0=80), is_first=True)
    assert (plan.ranges, plan.losses) == ((), ())


def test_few_records_wait_but_not_for_ever() -> None:
    clock = ManualClock()
    admission = BatchLimiter(None, 10, 60_000, clock)
    assert admission.end({ZERO: 0}, {ZERO: 1}, waits=True) == {ZERO: 1}  # the first batch does not wait
    assert admission.end({ZERO: 1}, {ZERO: 10}, waits=True) is None
    assert admission.end({ZERO: 1}, {ZERO: 11}, waits=True) == {ZERO: 11}
    clock.advance(59)
    assert admission.end({ZERO: 11}, {ZERO: 12}, waits=True) is None
    assert admission.end({ZERO: 11}, {ZERO: 12}, waits=False) == {ZERO: 12}
    clock.advance(61)
    assert admission.end({ZERO: 12}, {ZERO: 13}, waits=True) == {ZERO: 13}


def test_many_records_are_limited_after_they_waited() -> None:
    admission = BatchLimiter(20, 10, 60_000, ManualClock())
    assert admission.end({ZERO: 0}, {ZERO: 100}, waits=True) == {ZERO: 20}
