"""`append_batch`: a stream into an Iceberg table has each record once, whatever was killed at which step."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from barnabas.errors import ConfigurationError
from barnabas.spark import LoadError, WarehouseError, append_batch, open_table, register, scan_table
from barnabas.spark.batch_table import EPOCH_ID
from barnabas.spark.table_place import DELTA, ICEBERG
from tests.programs.stopping_appends import BATCH, STOPS, TABLE, start
from tests.support.broker_process import BrokerProcess
from tests.support.numbered_topic import produce_numbers
from tests.support.spark_processes import kill_when_there
from tests.support.table_contents import data_files, named_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PATIENCE_S = 400


def numbers_in(warehouse: Path, table_format: str = ICEBERG) -> list[int]:
    rows = (row for batch in scan_table(warehouse, TABLE, table_format=table_format) for row in batch.to_pylist())
    return sorted(row["number"] for row in rows)


def batches_in(warehouse: Path, table_format: str) -> list[str]:
    """Return the numbers of the batches that were committed, in their order."""
    table = open_table(warehouse, TABLE, table_format=table_format)
    if table_format == DELTA:
        return [entry[EPOCH_ID] for entry in reversed(table.history())]
    return [snapshot.summary[EPOCH_ID] for snapshot in table.snapshots()]


def files_of(warehouse: Path, table_format: str) -> set[str]:
    """Return the files that the table names."""
    if table_format == DELTA:
        return set(open_table(warehouse, TABLE, table_format=DELTA).file_uris())
    return named_files(warehouse, TABLE)


@pytest.mark.timeout(900)
def test_a_stream_that_is_killed_at_any_step_has_each_record_once(
    spark: SparkSession, numbered_topic: BrokerProcess, tmp_path: Path
) -> None:
    folders = [tmp_path / str(number) for number in range(len(STOPS))]
    command = [sys.executable, "-m", "tests.programs.stopping_appends", numbered_topic.bootstrap, str(tmp_path)]
    kill_when_there(command, [folder / "stopped" for folder in folders])
    for folder, stop in zip(folders, STOPS, strict=True):
        table_format, place = stop
        is_there = place in ("committed", "batch done")
        assert len(numbers_in(folder / "warehouse", table_format)) == BATCH * (2 if is_there else 1), stop
    produce_numbers(numbered_topic.bootstrap, range(100, 110))
    register(spark)
    for folder, stop in zip(folders, STOPS, strict=True):
        assert start(spark, numbered_topic.bootstrap, folder, stop[0]).awaitTermination(PATIENCE_S), stop
        warehouse, table_format = folder / "warehouse", stop[0]
        assert numbers_in(warehouse, table_format) == list(range(110)), stop
        assert batches_in(warehouse, table_format) == ["0", "1", "2"], stop
        assert data_files(warehouse) == files_of(warehouse, table_format), stop
        assert list(warehouse.glob(f"**/default/{TABLE}/loads/*")) == [], stop


@pytest.fixture
def frame(spark: SparkSession) -> DataFrame:
    return spark.sql(
        "SELECT id AS number, timestamp_millis(id) AS at, named_struct('a', array(id)) AS more FROM range(5)"
    )


@pytest.fixture
def warehouse(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "warehouse"
    assert data_files(tmp_path) == named_files(tmp_path / "warehouse", TABLE), "files are left"


@pytest.mark.timeout(900)
def test_what_cannot_be_appended_is_told_in_a_line_and_leaves_nothing(frame: DataFrame, warehouse: Path) -> None:
    assert append_batch(frame, 0, table=TABLE, warehouse=warehouse, query_id="a")
    assert not append_batch(frame, 0, table=TABLE, warehouse=warehouse, query_id="a")
    with pytest.raises(ConfigurationError, match="pass query_id"):
        append_batch(frame, 1, table=TABLE, warehouse=warehouse)
    with pytest.raises(WarehouseError, match="has the column number, which SQL cannot distinguish from NUMBER"):
        append_batch(frame.selectExpr("1 AS NUMBER"), 1, table=TABLE, warehouse=warehouse, query_id="a")
    with pytest.raises(LoadError, match="a Spark task failed, and the table is unchanged") as caught:
        append_batch(frame.selectExpr("'x' AS number"), 1, table=TABLE, warehouse=warehouse, query_id="a")
    assert "\n" not in str(caught.value)
    assert not append_batch(frame.where("number < 0"), 1, table=TABLE, warehouse=warehouse, query_id="a")
    assert numbers_in(warehouse) == list(range(5))


@pytest.mark.parametrize("table_format", [ICEBERG, DELTA])
def test_columns_that_a_later_batch_brings_are_in_the_table(
    frame: DataFrame, tmp_path: Path, table_format: str
) -> None:
    append = partial(append_batch, table=TABLE, warehouse=tmp_path, table_format=table_format, query_id="a")
    later = frame.selectExpr("number + 5 AS number", "'/' AS page", "named_struct('b', 1, 'a', array(number)) AS more")
    assert append(frame, 0)
    assert append(later, 1)
    assert append(frame.selectExpr("number + 10 AS number"), 2)
    found = scan_table(tmp_path, TABLE, columns=["number", "page", "more"], table_format=table_format)
    rows = sorted((row for batch in found for row in batch.to_pylist()), key=lambda row: row["number"])
    assert [row["page"] for row in rows] == [None] * 5 + ["/"] * 5 + [None] * 5
    assert [rows[number]["more"] for number in (1, 6, 11)] == [{"a": [1], "b": None}, {"a": [1], "b": 1}, None]
