"""What conditions leave to read: never less than the records that meet them, and much less where that can be told."""

from __future__ import annotations

import operator
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.formats.times import TIME_TYPE
from barnabas.sql.predicate_pushdown import ReadBounds, referenced_columns, restrict
from barnabas.sql.record_columns import RECORD_COLUMNS
from tests.support.searches import examples

SCHEMA = pa.schema([*RECORD_COLUMNS, ("ms", pa.int64()), ("user name", pa.string())])
WHOLE = ReadBounds(100, 200)
topic_column, offset_column, partition_column, time_column = (
    ds.field(name) for name in ("topic", "offset", "partition", "timestamp")
)
NOON_MS = 1_700_000_000_000


def at(time_ms: float) -> pa.Scalar:
    return pa.scalar(int(time_ms * 1000), TIME_TYPE)


def left_by(condition: ds.Expression | None, partition: int = 0) -> ReadBounds:
    return restrict(condition, SCHEMA, "clicks", partition, WHOLE)


def test_without_a_condition_everything_is_read() -> None:
    assert left_by(None) == WHOLE


@pytest.mark.parametrize(
    ("condition", "start", "end"),
    [
        (offset_column >= 150, 150, 200),
        (offset_column > 150, 151, 200),
        (offset_column < 150, 100, 150),
        (offset_column == 150, 150, 151),
        ((offset_column >= 120) & (offset_column <= 130) & (ds.field("ms") > 5), 120, 131),
        ((offset_column == 110) | (offset_column == 190), 110, 191),
        (offset_column < 100, 100, 100),
        (offset_column >= 200, 200, 200),
        (ds.field("ms") == 5, 100, 200),
        ((offset_column > 150) | (ds.field("ms") == 5), 100, 200),
    ],
)
def test_offsets_narrow_to_those_that_can_meet_the_condition(condition, start: int, end: int) -> None:
    left = left_by(condition)
    assert (left.start_offset, left.end_offset) == (start, end) or left.count == 0 == end - start


def test_partitions_and_topics_that_are_excluded_are_not_read() -> None:
    assert left_by(partition_column == 1).count == 0
    assert left_by(partition_column == 1, partition=1) == WHOLE
    assert left_by(topic_column == "views").count == 0
    # As DuckDB writes `partition in (1, 2)`.
    some = pc.if_else(pc.is_valid(partition_column), partition_column.isin([1, 2]), pa.scalar(None, pa.bool_()))
    assert [left_by(some, partition).count for partition in range(4)] == [0, 100, 100, 0]


@pytest.mark.parametrize(
    ("condition", "least_ms"),
    [
        (time_column >= at(NOON_MS), NOON_MS),
        (time_column > at(NOON_MS), NOON_MS + 1),
        (time_column >= at(NOON_MS + 0.5), NOON_MS + 1),
        (time_column == at(NOON_MS), NOON_MS),
        ((time_column >= at(NOON_MS)) & (time_column < at(NOON_MS + 60_000)), NOON_MS),
        ((time_column >= at(NOON_MS)) & (ds.field("ms") > 5), NOON_MS),
        (time_column < at(NOON_MS), None),
        ((time_column >= at(NOON_MS)) | (ds.field("ms") > 5), None),
        ((time_column >= at(NOON_MS)) | time_column.is_null(), None),
        (time_column.is_null(), None),
    ],
)
def test_only_a_lower_end_of_the_time_narrows_as_times_need_not_ascend(condition, least_ms: int | None) -> None:
    assert left_by(condition).timestamp_ms_min == least_ms


LEAVES = st.one_of(
    st.builds(
        lambda compare, number: compare(offset_column, number),
        st.sampled_from([operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne]),
        st.integers(95, 205),
    ),
    st.builds(
        lambda compare, ms: compare(time_column, at(NOON_MS + ms)),
        st.sampled_from([operator.lt, operator.le, operator.gt, operator.ge, operator.eq]),
        st.integers(-20, 20),
    ),
    st.builds(offset_column.isin, st.lists(st.integers(95, 205), min_size=1, max_size=3)),
    st.sampled_from(
        [
            time_column.is_null(),
            time_column.is_valid(),
            ds.field("ms") > 5,
            partition_column == 0,
            partition_column == 1,
        ]
    ),
)
CONDITIONS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.builds(operator.and_, inner, inner), st.builds(operator.or_, inner, inner), st.builds(operator.invert, inner)
    ),
    max_leaves=6,
)


@given(CONDITIONS, st.lists(st.integers(-25, 25) | st.none(), min_size=100, max_size=100))
@settings(max_examples=examples(60), deadline=None)
def test_no_record_that_meets_a_condition_is_left_out(condition, times: list[int | None]) -> None:
    rows = pa.table(
        [
            pa.repeat("clicks", 100),
            pa.repeat(pa.scalar(0, pa.int32()), 100),
            pa.array(range(100, 200), pa.int64()),
            pa.array([None if ms is None else (NOON_MS + ms) * 1000 for ms in times], pa.int64()).cast(TIME_TYPE),
            pa.nulls(100, pa.string()),
            pa.nulls(100, pa.string()),
            pa.nulls(100, SCHEMA.field("headers").type),
            pa.array([number % 10 for number in range(100)], pa.int64()),
            pa.nulls(100, pa.string()),
        ],
        schema=SCHEMA,
    )
    left = left_by(condition)
    for row in rows.filter(condition).to_pylist():
        assert left.start_offset <= row["offset"] < left.end_offset
        if left.timestamp_ms_min is not None:
            assert row["timestamp"] >= datetime.fromtimestamp(left.timestamp_ms_min / 1000, UTC)


def test_the_columns_of_a_condition_are_told() -> None:
    assert referenced_columns(None, SCHEMA) == []
    assert referenced_columns((ds.field("user name") == "ms") & (offset_column > 5), SCHEMA) == ["offset", "user name"]
