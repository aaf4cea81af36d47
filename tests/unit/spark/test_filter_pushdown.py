"""Conditions on partition, offset and timestamp: what they leave to read, and what Spark still has to check."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from barnabas.model import OffsetAndTimestamp, TopicPartition
from barnabas.spark.filter_pushdown import push_filters, restrict_ranges
from barnabas.spark.offset_ranges import OffsetRange

RANGES = [OffsetRange("a", 0, 10, 20), OffsetRange("a", 1, 0, 100), OffsetRange("b", 0, 5, 6)]
NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
NOON_MS = int(NOON.timestamp()) * 1000


class Times:
    """Answers questions for times; a question that a test does not expect is an error."""

    def __init__(self, found: Mapping[TopicPartition, int | None] | None = None) -> None:
        self.found = found
        self.asked_ms: set[int] = set()

    def beginning_offsets(self, partitions: list[TopicPartition]) -> Mapping[TopicPartition, int]:
        raise AssertionError

    def end_offsets(self, partitions: list[TopicPartition]) -> Mapping[TopicPartition, int]:
        raise AssertionError

    def offsets_for_times(
        self, timestamps_ms: Mapping[tuple[str, int], int]
    ) -> Mapping[TopicPartition, OffsetAndTimestamp | None]:
        assert self.found is not None, "nothing was to be asked"
        self.asked_ms |= set(timestamps_ms.values())
        places = {TopicPartition(*tp): self.found.get(TopicPartition(*tp)) for tp in timestamps_ms}
        return {tp: None if at is None else OffsetAndTimestamp(at, 0) for tp, at in places.items()}


def left(*conditions: Filter) -> list[str]:
    narrowing, _ = push_filters(conditions)
    return [str(each) for each in restrict_ranges(RANGES, narrowing, Times()) if each.count]


def test_conditions_on_a_partition_leave_the_others_unread() -> None:
    assert left(EqualTo(("partition",), 1)) == ["a-1 [0, 100)"]
    assert left(In(("partition",), (0, None))) == ["a-0 [10, 20)", "b-0 [5, 6)"]
    assert left(GreaterThan(("partition",), 0), LessThan(("partition",), 2)) == ["a-1 [0, 100)"]
    assert left(EqualTo(("partition",), 0), EqualTo(("topic",), "b")) == ["b-0 [5, 6)"]
    assert left(EqualNullSafe(("partition",), None)) == []


def test_conditions_on_an_offset_narrow_each_range() -> None:
    assert left(GreaterThanOrEqual(("offset",), 12), LessThanOrEqual(("offset",), 15)) == [
        "a-0 [12, 16)",
        "a-1 [12, 16)",
    ]
    assert left(EqualTo(("OFFSET",), 5)) == ["a-1 [5, 6)", "b-0 [5, 6)"]
    assert left(In(("offset",), (7, 3, 4)), LessThan(("offset",), 7)) == ["a-1 [3, 5)"]
    assert left(EqualTo(("offset",), 5), EqualTo(("offset",), 6)) == []
    assert left(LessThan(("offset",), -5)) == []
    assert left(GreaterThan(("offset",), 2**63 - 1)) == []


def test_what_is_exact_is_not_checked_again_and_all_else_is() -> None:
    exact = [
        EqualTo(("partition",), 1),
        IsNotNull(("offset",)),
        LessThan(("offset",), 7),
        In(("topic",), ("a", "b")),
    ]
    rest = [
        IsNotNull(("timestamp",)),
        GreaterThan(("timestamp",), NOON),
        In(("offset",), (1, 9)),
        Not(EqualTo(("partition",), 1)),
        StringStartsWith(("topic",), "a"),
        IsNull(("key",)),
        EqualTo(("value",), b"x"),
        EqualTo(("headers", "key"), "x"),
    ]
    assert push_filters([*exact, *rest])[1] == rest


@pytest.mark.parametrize(
    ("condition", "asked_ms"),
    [
        (GreaterThanOrEqual(("timestamp",), NOON), NOON_MS),
        (GreaterThan(("timestamp",), NOON), NOON_MS + 1),
        (GreaterThanOrEqual(("timestamp",), NOON + timedelta(microseconds=1)), NOON_MS + 1),
        (GreaterThan(("timestamp",), NOON + timedelta(microseconds=1)), NOON_MS + 1),
        (EqualTo(("timestamp",), NOON.astimezone(timezone(timedelta(hours=3)))), NOON_MS),
        (In(("timestamp",), (NOON + timedelta(days=1), None, NOON)), NOON_MS),
    ],
)
def test_a_time_to_start_at_is_looked_up_in_the_brokers_index(condition: Filter, asked_ms: int) -> None:
    narrowing, rest = push_filters([condition])
    times = Times({TopicPartition("a", 0): 15, TopicPartition("a", 1): 0, TopicPartition("b", 0): None})
    ranges = restrict_ranges(RANGES, narrowing, times)
    assert [str(each) for each in ranges if each.count] == ["a-0 [15, 20)", "a-1 [0, 100)"]
    assert times.asked_ms == {asked_ms}
    assert rest == [condition]


@pytest.mark.parametrize(
    "condition",
    [
        LessThan(("timestamp",), NOON),
        GreaterThan(("timestamp",), NOON.replace(tzinfo=None)),
        GreaterThan(("timestamp",), datetime(1960, 1, 1, tzinfo=UTC)),
        GreaterThan(("timestamp",), datetime(9999, 12, 31, tzinfo=UTC)),
        EqualTo(("timestamp",), None),
        EqualTo(("partition",), 1.0),
        EqualTo(("offset",), True),
    ],
)
def test_a_condition_that_says_nothing_about_ranges_narrows_none(condition: Filter) -> None:
    assert left(condition) == [str(each) for each in RANGES]


RECORDS = [
    (each.topic, each.partition, offset) for each in RANGES for offset in range(each.start_offset, each.end_offset)
]
NUMBERS = st.integers(-3, 25)
KINDS = st.sampled_from([EqualTo, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual])
COMPARISONS = st.builds(
    lambda kind, column, value: kind((column,), value), KINDS, st.sampled_from(["partition", "offset"]), NUMBERS
)
CHOICES = st.builds(
    lambda column, values: In((column,), tuple(values)), st.sampled_from(["partition", "offset"]), st.lists(NUMBERS)
)


def holds(condition: Filter, record: tuple[str, int, int]) -> bool:
    assert isinstance(condition, (EqualTo, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual, In))
    number = record[1] if condition.attribute == ("partition",) else record[2]
    match condition:
        case EqualTo():
            return number == condition.value
        case GreaterThan():
            return number > condition.value
        case GreaterThanOrEqual():
            return number >= condition.value
        case LessThan():
            return number < condition.value
        case LessThanOrEqual():
            return number <= condition.value
    return number in condition.value


@given(st.lists(COMPARISONS | CHOICES, max_size=4))
def test_what_is_read_and_then_checked_is_what_the_conditions_say(conditions: list[Filter]) -> None:
    narrowing, rest = push_filters(conditions)
    ranges = restrict_ranges(RANGES, narrowing, Times())
    read = [(each.topic, each.partition, n) for each in ranges for n in range(each.start_offset, each.end_offset)]
    expected = [record for record in RECORDS if all(holds(condition, record) for condition in conditions)]
    assert [record for record in read if all(holds(condition, record) for condition in rest)] == expected
