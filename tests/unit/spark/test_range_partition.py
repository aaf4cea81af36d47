"""The columns of a query: those that it names, in its order, with the types that they have."""

from __future__ import annotations

import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

from barnabas.errors import ConfigurationError
from barnabas.spark.columns import SPARK_TYPES
from barnabas.spark.offset_ranges import OffsetRange
from barnabas.spark.options import parse_options
from barnabas.spark.range_partition import RangePartition, check_columns, make_partitions, make_schema


def test_every_column_has_the_type_that_spark_writes() -> None:
    schema = make_schema(list(SPARK_TYPES))
    assert {field.name: field.dataType.simpleString() for field in schema.fields} == SPARK_TYPES
    assert check_columns(schema) == list(SPARK_TYPES)


def test_a_query_may_name_some_columns() -> None:
    assert check_columns(make_schema(["offset", "value"])) == ["offset", "value"]


@pytest.mark.parametrize(
    ("field", "told"),
    [
        (StructField("value", StringType()), "column 'value' has the type binary, not string"),
        (StructField("valu", LongType()), "no column 'valu'"),
    ],
)
def test_a_column_that_cannot_be_is_told(field: StructField, told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        check_columns(StructType([field]))


@pytest.mark.parametrize(
    ("option", "tasks"), [({}, 2), ({"minPartitions": "2"}, 5), ({"maxRecordsPerPartition": "10"}, 5)]
)
def test_small_ranges_share_a_task_unless_an_option_speaks_of_tasks(option: dict[str, str], tasks: int) -> None:
    ranges = [OffsetRange("t", number, 0, 10) for number in range(5)]
    options = parse_options({"kafka.bootstrap.servers": "localhost:9092", "subscribe": "t", **option})
    made = make_partitions(ranges, options, cores=2)
    assert len(made) == tasks
    assert sorted(each for task in made if isinstance(task, RangePartition) for each in task.wanted) == ranges


@pytest.mark.parametrize(
    ("counts", "cores", "cuts", "tasks"),
    [
        ([3_000_000], 2, True, 2),
        ([3_000_000], 2, False, 1),
        ([3_000_000], None, True, 1),
        ([300_000], 8, True, 2),
        ([200_000], 8, True, 1),
        ([3_000_000] * 6, 2, True, 6),
        ([9_000_000, 10, 10], 2, True, 2),
    ],
)
def test_one_long_range_keeps_all_cores_busy(counts: list[int], cores: int | None, cuts: bool, tasks: int) -> None:
    ranges = [OffsetRange("t", number, 0, count) for number, count in enumerate(counts)]
    options = parse_options({"kafka.bootstrap.servers": "localhost:9092", "subscribe": "t"})
    made = make_partitions(ranges, options, cores, cuts=cuts)
    sizes = [sum(each.count for each in task.wanted) for task in made if isinstance(task, RangePartition)]
    assert sum(sizes) == sum(counts)
    assert len(made) >= tasks if len(counts) > 1 else len(made) == tasks
    assert not cuts or cores is None or max(sizes) <= max(2**18, sum(counts) / cores + 20)


def test_a_limit_that_was_given_is_kept_to() -> None:
    options = parse_options(
        {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "t", "maxRecordsPerPartition": "1000000"}
    )
    assert len(make_partitions([OffsetRange("t", 0, 0, 3_000_000)], options, 8, cuts=True)) == 3
