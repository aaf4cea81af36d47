"""Partitions and sort orders by choice, and tables whose layout other tools have changed: each file fits the table."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest
from pyiceberg.table import Table
from pyiceberg.table.sorting import NullOrder, SortDirection
from pyiceberg.transforms import BucketTransform, HourTransform, IdentityTransform, TruncateTransform
from pyiceberg.types import StringType

from barnabas.clock import SYSTEM_CLOCK
from barnabas.errors import ConfigurationError
from barnabas.formats.json_fields import JsonRules
from barnabas.formats.upsert_rules import UpsertRules
from barnabas.spark import table_load
from barnabas.spark.errors import TooManyPartitionsError, WarehouseError
from barnabas.spark.iceberg_layout import layout_of_table
from barnabas.spark.layout_syntax import parse_partition, parse_sort
from barnabas.spark.table_formats import format_of
from barnabas.spark.table_layout import layout_of_terms
from barnabas.spark.table_store import maintain
from barnabas.spark.tables import scan_table
from tests.support.loads_without_spark import Lake

COUNTRIES = ["nl", "de", None, "fr", ""]


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    made = Lake(tmp_path, "iceberg")
    made.stand_in(monkeypatch)
    made.ms_between = 1_200_000  # three records an hour
    return made


def clicks(first: int, count: int) -> list[bytes]:
    return [
        json.dumps({"user_id": number * 7 % 23, "country": COUNTRIES[number % 5], "at": (-1) ** number * 0.5}).encode()
        for number in range(first, first + count)
    ]


def load(lake: Lake, **more: Any) -> Any:
    for option, parse in (("partition_by", parse_partition), ("sort_by", parse_sort)):
        if option in more:
            more[option] = parse(more[option])
    return lake.load(bad=None, **more)


def table_of(lake: Lake) -> Table:
    table: Table = lake.open().current_table("t").table
    return table


def check_files(table: Table, rows: int) -> int:
    """Check that each file has one partition, which is that of its rows, in its own spec, and the sort order."""
    found = 0
    for task in table.scan().plan_files():
        part = pq.read_table(task.file.file_path.removeprefix("file://"))
        spec = table.specs()[task.file.spec_id]
        schema = table.schema()
        for number, field in enumerate(spec.fields):
            source = schema.find_field(field.source_id)
            transform = field.transform.transform(source.field_type)
            (value,) = {transform(_internal(each)) for each in part.column(source.name).to_pylist()}
            assert task.file.partition[number] == value
        if task.file.sort_order_id:
            layout = layout_of_table(table.metadata)
            assert layout.sort
            assert layout.sorted(part).column("offset").to_pylist() == part.column("offset").to_pylist()
        found += part.num_rows
    assert found == rows
    return len(list(table.scan().plan_files()))


def _internal(value: Any) -> Any:
    return (
        (value - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
        if isinstance(value, datetime)
        else value
    )


def offsets(lake: Lake, where: str | None = None) -> list[int]:
    batches = scan_table(lake.folder, "t", columns=["offset"], where=where, table_format=lake.place.table_format)
    return sorted(offset for batch in batches for offset in batch.column("offset").to_pylist())


def test_a_new_table_has_the_partitions_and_the_order_of_choice(lake: Lake) -> None:
    lake.values = clicks(0, 24)
    done = load(lake, partition_by="hour(event_time), bucket(4, user_id), country", sort_by="user_id desc, at")
    table = table_of(lake)
    assert [f"{field.name} {field.transform}" for field in table.spec().fields] == [
        "event_hour hour",
        "user_id_bucket_4 bucket[4]",
        "country identity",
    ]
    assert [(field.direction, field.null_order) for field in table.sort_order().fields] == [
        (SortDirection.DESC, NullOrder.NULLS_LAST),
        (SortDirection.ASC, NullOrder.NULLS_FIRST),
    ]
    assert check_files(table, 24) == done.files == done.partitions
    assert all(task.file.sort_order_id == 1 for task in table.scan().plan_files())
    lake.values += clicks(24, 8)
    load(lake, partition_by="hours(timestamp), bucket(4, user_id), identity(country)", sort_by="user_id desc, at asc")
    load(lake)
    check_files(table_of(lake), 32)
    assert offsets(lake) == list(range(32))
    assert offsets(lake, "user_id = 7") == [number for number in range(32) if number * 7 % 23 == 7]


@pytest.mark.parametrize(("partition_by", "files"), [("", 1), ("truncate(10, user_id)", 3), ("country", 5), ("key", 1)])
def test_each_choice_gives_as_many_files_as_partitions(lake: Lake, partition_by: str, files: int) -> None:
    lake.values = clicks(0, 50)
    assert load(lake, partition_by=partition_by).files == files
    assert check_files(table_of(lake), 50) == files
    assert offsets(lake) == list(range(50))


def test_a_choice_that_the_table_does_not_have_is_refused(lake: Lake) -> None:
    lake.values = clicks(0, 5)
    with pytest.raises(ConfigurationError, match=r"no column 'city'; the table has topic, .*, country, at"):
        load(lake, partition_by="city")
    assert lake.files() == (set(), 0)
    load(lake)
    lake.values += clicks(5, 5)
    with pytest.raises(ConfigurationError, match=r"by day\(timestamp\), not by nothing: omit partition_by"):
        load(lake, partition_by="")
    with pytest.raises(ConfigurationError, match="is sorted by nothing, not in the order of sort_by"):
        load(lake, sort_by="at")
    load(lake, partition_by="day(event_time)", sort_by="")
    assert offsets(lake) == list(range(10))


def test_an_excessive_number_of_partitions_creates_no_table(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_load, "NEW_PARTITIONS_MAX", 20)
    lake.values = clicks(0, 40)
    with pytest.raises(TooManyPartitionsError, match="23 partitions of user_id, more than 20: choose larger"):
        load(lake, partition_by="user_id")
    lake.partitions = [clicks(0, 10), clicks(10, 10), clicks(20, 10)]
    with pytest.raises(TooManyPartitionsError, match=r"table default.t is not created: .* 23 partitions of user_id"):
        load(lake, partition_by="user_id", records_per_task=10)
    assert lake.files() == (set(), 0)
    assert not lake.open().current_table("t").exists
    assert load(lake, partition_by="bucket(20, user_id)").records == 30


def test_a_field_with_the_name_of_a_partition_gets_another_column(lake: Lake) -> None:
    lake.values = [b'{"event_hour": 5, "n": 1}']
    load(lake, partition_by="hour(event_time), bucket(3, n)")
    lake.values += [b'{"event_hour": 6, "n": 1, "n_bucket_3": 7}']
    load(lake)
    table = table_of(lake)
    assert [field.name for field in table.spec().fields] == ["event_hour_part", "n_bucket_3"]
    assert {"event_hour", "value_n_bucket_3"} <= set(table.schema().column_names)
    check_files(table, 2)


def test_files_of_a_merge_are_in_one_partition_and_in_order(lake: Lake) -> None:
    lake.partitions = [clicks(number, 6) for number in range(20)]
    done = load(lake, partition_by="bucket(2, user_id)", sort_by="at desc, user_id", records_per_task=6)
    assert done.files == check_files(table_of(lake), 120) == 2
    assert all(task.file.sort_order_id == 1 for task in table_of(lake).scan().plan_files())


@pytest.mark.parametrize("text", ["key, timestamp, b, p", "bucket(4, key), truncate(70, p), bucket(3, timestamp), n"])
def test_partition_values_of_all_types_are_committed_and_found_by_readers(lake: Lake, text: str) -> None:
    prices = ["-1.51", "null", "0.00", "12.34"]
    lake.values = [
        f'{{"p": {prices[number % 4]}, "b": {"true" if number % 3 else "false"}, "n": {number % 2 - 1}}}'.encode()
        for number in range(8)
    ]
    fields = {"p": "decimal(9,2)", "b": "boolean", "n": "int"}
    load(lake, partition_by=text, fields=fields, rules=JsonRules(decimals=True))
    check_files(table_of(lake), 8)
    assert offsets(lake, "p = -1.51") == [0, 4]
    assert offsets(lake, "p is null") == [1, 5]
    assert offsets(lake, "b = false and p > 0") == [3]
    assert offsets(lake, "n < 0") == [0, 2, 4, 6]
    assert offsets(lake, "timestamp >= '2014-05-13T17:53:20+00:00'") == [3, 4, 5, 6, 7]


def evolve(table: Table) -> None:
    with table.update_spec() as spec:
        spec.remove_field("event_day")
        spec.add_field("timestamp", HourTransform(), "by_hour")
        spec.add_field("user_id", BucketTransform(3), "by_user")
    with table.update_sort_order() as order:
        order.desc("user_id", IdentityTransform(), NullOrder.NULLS_LAST)


def test_a_table_that_pyiceberg_evolved_is_loaded_merged_and_read(lake: Lake) -> None:
    lake.values = clicks(0, 30)
    load(lake)
    evolve(table_of(lake))
    lake.values += clicks(30, 30)
    load(lake)
    with table_of(lake).update_spec() as spec:
        spec.remove_field("by_hour")
        spec.add_field("country", TruncateTransform(1), "by_country")
    for first in (60, 75, 90):
        lake.values += clicks(first, 15)
        load(lake)
    table = table_of(lake)
    files = check_files(table, 105)
    assert {task.file.spec_id for task in table.scan().plan_files()} == {0, 1, 2}
    maintain(format_of(lake.place).maintainer(lake.open(), "t", SYSTEM_CLOCK))
    table = table_of(lake)
    assert check_files(table, 105) < files
    lake.values += clicks(105, 5)
    load(lake)
    table = table_of(lake)
    check_files(table, 110)
    assert offsets(lake) == list(range(110))
    assert sorted(table.scan().to_arrow().column("offset").to_pylist()) == list(range(110))
    assert offsets(lake, "country = 'de' and user_id > 10") == [
        number for number in range(110) if number % 5 == 1 and number * 7 % 23 > 10
    ]
    paths = [task.file.file_path.removeprefix("file://") for task in table.scan().plan_files()]
    rows = duckdb.read_parquet(paths, union_by_name=True).aggregate('count(*), count(distinct "offset")').fetchall()
    assert rows == [(110, 110)]


def test_files_of_an_older_spec_are_merged_where_that_makes_fewer(lake: Lake) -> None:
    for first in (0, 5, 10, 15):
        lake.values += clicks(first, 5)
        load(lake, partition_by="country")
    with table_of(lake).update_spec() as spec:
        spec.remove_field("country")
    maintain(format_of(lake.place).maintainer(lake.open(), "t", SYSTEM_CLOCK))
    table = table_of(lake)
    assert check_files(table, 20) == 5
    assert {task.file.spec_id for task in table.scan().plan_files()} == {1}
    assert offsets(lake) == list(range(20))


def test_a_column_of_another_tool_that_loads_do_not_fill_is_one_partition(lake: Lake) -> None:
    lake.values = clicks(0, 5)
    load(lake)
    with table_of(lake).update_schema() as schema:
        schema.add_column("region", StringType())
    with table_of(lake).update_spec() as spec:
        spec.add_identity("region")
    lake.values += clicks(5, 5)
    load(lake)
    assert offsets(lake, "region is null") == list(range(10))


def test_a_renamed_partition_column_stays_the_partition_column(lake: Lake) -> None:
    lake.values = clicks(0, 5)
    load(lake, partition_by="bucket(2, user_id)")
    with table_of(lake).update_schema() as schema:
        schema.rename_column("user_id", "account")
    lake.values += [value.replace(b"user_id", b"account") for value in clicks(5, 5)]
    load(lake)
    table = table_of(lake)
    layout = layout_of_table(table.metadata)
    assert str(layout) == "bucket(2, account)"
    assert offsets(lake, "account = 14") == [2]
    assert offsets(lake, "account = 12") == [5]


def test_the_layout_of_a_table_is_that_of_its_choice(lake: Lake) -> None:
    lake.values = clicks(0, 5)
    chosen = parse_partition("month(event_time), truncate(3, country)"), parse_sort("country, user_id desc nulls first")
    load(lake, partition_by=", ".join(map(str, chosen[0])), sort_by="country, user_id desc nulls first")
    shape = lake.open().current_table("t").shape()
    assert shape is not None
    assert shape.layout == layout_of_terms(*chosen, shape.column_types(), "timestamp")


def test_a_state_table_that_another_tool_partitioned_is_refused_before_work(lake: Lake) -> None:
    lake.values = [b'{"id": 1, "n": "a"}']
    load(lake, upsert=UpsertRules.of("id"))
    with table_of(lake).update_spec() as spec:
        spec.add_identity("n")
    lake.values += [b'{"id": 1, "n": "b"}']
    files = lake.files()
    with pytest.raises(WarehouseError, match=r"table default.t is a state table with partitions \(n\), .*\('n'\)"):
        load(lake, upsert=UpsertRules.of("id"))
    assert lake.files() == files
    with table_of(lake).update_spec() as spec:
        spec.remove_field("n")
    load(lake, upsert=UpsertRules.of("id"))
    assert [row["n"] for batch in scan_table(lake.folder, "t") for row in batch.to_pylist()] == ["b"]
