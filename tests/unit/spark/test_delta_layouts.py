"""Partition columns of Delta tables by choice: their values in the log, and every reader sees all rows."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from barnabas.clock import SYSTEM_CLOCK
from barnabas.errors import ConfigurationError
from barnabas.spark.errors import WarehouseError
from barnabas.spark.layout_syntax import parse_partition, parse_sort
from barnabas.spark.ledger import Ledger
from barnabas.spark.partition_transforms import Transform
from barnabas.spark.table_formats import format_of
from barnabas.spark.table_store import maintain
from barnabas.spark.tables import scan_table
from tests.support.loads_without_spark import Lake
from tests.unit.spark.test_layouts_of_loads import clicks

pytest.importorskip("deltalake")
TIME_MS = 1_400_000_000_000


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    made = Lake(tmp_path, "delta")
    made.stand_in(monkeypatch)
    made.ms_between = 1_200_000  # three records an hour
    return made


def load(lake: Lake, partition_by: str | None = None, **more: Any) -> Any:
    chosen = None if partition_by is None else parse_partition(partition_by)
    return lake.load(bad=None, partition_by=chosen, **more)


def rows(lake: Lake, *columns: str, where: str | None = None) -> list[tuple[Any, ...]]:
    names = ["offset", *columns]
    found = scan_table(lake.folder, "t", columns=names, where=where, table_format="delta")
    return sorted((tuple(row.values()) for batch in found for row in batch.to_pylist()), key=lambda row: row[0])


def partitions(lake: Lake) -> list[dict[str, Any]]:
    actions = pa.table(lake.open().current_table("t").table.get_add_actions(flatten=True))
    names = [name for name in actions.column_names if name.startswith("partition.")]
    return [{name.removeprefix("partition."): row[name] for name in names} for row in actions.to_pylist()]


@pytest.mark.parametrize("kind", ["year", "month", "day", "hour"])
def test_times_are_partition_columns_with_the_form_of_iceberg(lake: Lake, kind: Any) -> None:
    lake.values = clicks(0, 10)
    load(lake, f"{kind}(event_time)")
    column = f"event_{kind}"
    lake.values += clicks(10, 10)
    load(lake, f"{kind}(timestamp)")
    for offset, value in rows(lake, column):
        time_ms = TIME_MS + offset * lake.ms_between
        number = {"year": 44, "month": 44 * 12 + 4, "day": time_ms // 86_400_000, "hour": time_ms // 3_600_000}[kind]
        assert str(value) == Transform(kind).label(number)
    assert len(rows(lake)) == 20
    (some, *_rest) = partitions(lake)
    assert list(some) == [column]
    shape = lake.open().current_table("t").shape()
    assert shape is not None
    assert set(shape.fields or {}) == {"user_id", "country", "at"}


def test_columns_of_the_rows_are_partitions_and_empty_texts_are_kept_whole(lake: Lake) -> None:
    lake.values = clicks(0, 10)
    done = load(lake, "country, user_id, hour(event_time)")
    assert done.kept_values == 2
    found = rows(lake, "country", "user_id", "value")
    assert [row[1:] for row in found[:5]] == [
        ("nl", 0, None),
        ("de", 7, None),
        (None, 14, None),
        ("fr", 21, None),
        (None, 5, lake.values[4]),
    ]
    assert [row[0] for row in rows(lake, where="country = 'de'")] == [1, 6]
    assert all(set(each) == {"country", "user_id", "event_hour"} for each in partitions(lake))


def test_a_new_column_keeps_all_rows_whatever_the_partitions_are(lake: Lake) -> None:
    for chosen in ("country", "user_id, country", "b, partition", "day(event_time), country", "d"):
        lake.values = [value.replace(b"{", b'{"b": true, "d": "2026-11-28", ') for value in clicks(0, 5)]
        table = chosen[:3].strip("(,")
        load(lake, chosen, table=table)
        lake.values += [b'{"user_id": 1, "city": "x", "country": "nl", "b": false, "d": "x"}']
        load(lake, table=table)
        stored = lake.open().current_table(table)
        found = scan_table(lake.folder, table, columns=["offset", "city", "topic"], table_format="delta")
        got = sorted((row["offset"], row["city"], row["topic"]) for batch in found for row in batch.to_pylist())
        assert got == [*((number, None, "t") for number in range(5)), (5, "x", "t")]
        assert stored.next_offsets_of_rows() == {("t", 0): 6}
        assert stored.ledger() == Ledger.parse('{"t": {"id": "one", "next": [6]}}')


def test_maintenance_keeps_rows_and_partitions(lake: Lake) -> None:
    for first in (0, 5, 10, 15):
        lake.values += clicks(first, 5)
        load(lake, "country")
    before = rows(lake, "country", "user_id", "at")
    done = maintain(format_of(lake.place).maintainer(lake.open(), "t", SYSTEM_CLOCK))
    assert done.compacted_files == 20
    assert done.new_files == len(partitions(lake)) == 4
    assert rows(lake, "country", "user_id", "at") == before
    lake.values += clicks(20, 5)
    load(lake)
    assert [row[0] for row in rows(lake)] == list(range(25))


def test_a_table_of_another_tool_is_loaded_with_its_partition_columns(lake: Lake) -> None:
    from deltalake import DeltaTable, write_deltalake  # noqa: PLC0415  # it may not be installed

    lake.values = clicks(0, 5)
    load(lake, "day(event_time)", value_format="raw", table="other")
    source = lake.open().current_table("other").table
    copy = source.to_pyarrow_dataset().to_table().drop_columns(["event_day"])
    write_deltalake(str(lake.folder / "default" / "t"), copy.slice(0, 0), partition_by=["topic"])
    done = load(lake, value_format="raw")
    assert done.records == 5
    assert partitions(lake) == [{"topic": "t"}]
    assert DeltaTable(str(lake.folder / "default" / "t")).to_pyarrow_table().num_rows == 5


@pytest.mark.parametrize("kind", ["date", "int", "long", "string"])
@pytest.mark.parametrize("value", [None, "0001-01-01", "0"])
def test_no_row_is_replaced_when_a_column_is_added(lake: Lake, kind: str, value: str | None) -> None:
    lake.values = [json.dumps({"c": value}).encode()]
    load(lake, "c", fields={"c": kind}, takes_new_fields=True)
    lake.values += [b'{"c": null, "new": 1}', b"{}"]
    load(lake)
    assert [row[0] for row in rows(lake, "new")] == [0, 1, 2]


@pytest.mark.parametrize(
    ("chosen", "words"),
    [
        ("bucket(4, user_id)", r"Delta tables have no bucket partitions \(bucket\(4, user_id\)\); use a column"),
        ("truncate(4, user_id)", "Delta tables have no truncate partitions"),
        ("", "a Delta table needs a partition column that is not a boolean"),
        ("key", "a Delta table cannot be partitioned by key, which is binary"),
        ("timestamp", "cannot be partitioned by timestamp, which is timestamp"),
    ],
)
def test_partitions_that_delta_does_not_have_are_refused(lake: Lake, chosen: str, words: str) -> None:
    lake.values = clicks(0, 5)
    with pytest.raises(ConfigurationError, match=words):
        load(lake, chosen)
    with pytest.raises(ConfigurationError, match="Delta tables record no sort order"):
        load(lake, sort_by=parse_sort("user_id"))
    assert lake.files() == (set(), 0)


def test_partition_columns_that_loads_cannot_write_are_refused(lake: Lake) -> None:
    from deltalake import write_deltalake  # noqa: PLC0415  # it may not be installed

    lake.values = clicks(0, 5)
    load(lake, value_format="raw", table="other")
    source = lake.open().current_table("other").table
    copy = source.to_pyarrow_dataset().to_table().slice(0, 0)
    write_deltalake(str(lake.folder / "default" / "t"), copy, partition_by=["key"])
    with pytest.raises(WarehouseError, match=r"table default\.t is partitioned by key, which loads cannot write"):
        load(lake, value_format="raw")


def test_dates_and_booleans_are_texts_in_the_log(lake: Lake) -> None:
    lake.values = [b'{"d": "2026-11-28", "p": 1.50, "b": true}', b'{"d": null, "p": null, "b": false}', b"{}"]
    fields = {"d": "date", "p": "decimal(9,2)", "b": "boolean"}
    load(lake, "d, b", fields=fields)
    found = [row[1:] for row in rows(lake, "d", "b")]
    assert found[1:] == [(None, False), (None, None)]
    assert found[0] in {(datetime.date(2026, 11, 28), True), (None, True)}
