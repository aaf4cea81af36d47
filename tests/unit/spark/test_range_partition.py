"""The columns of a query: those that it names, in its order, with the types that they have."""

from __future__ import annotations

import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

from barnabas.errors import ConfigurationError
from barnabas.spark.columns import SPARK_TYPES
from barnabas.spark.options import parse_options
from barnabas.spark.planning import OffsetRange
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
