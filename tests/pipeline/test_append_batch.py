"""`append_batch`: a stream into an Iceberg table has each record once, whatever was killed at which step."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from barnabas.errors import ConfigurationError
from barnabas.spark import LoadError, WarehouseError, append_batch, open_table, register, scan_table
from barnabas.spark.streamed_table import EPOCH_ID
from tests.conftest import BrokerProcess
from tests.interop.reading import wait_until
from tests.pipeline.numbered_topic import produce_numbers
from tests.pipeline.spark_processes import ROOT, environment
from tests.pipeline.stopping_appends import BATCH, PLACES, TABLE, start
from tests.pipeline.table_contents import data_files, named_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PATIENCE_S = 400


def numbers_in(warehouse: Path) -> list[int]:
    rows = (row for batch in scan_table(warehouse, TABLE) for row in batch.to_pylist())
    return sorted(row["number"] for row in rows)


def batches_in(warehouse: Path) -> list[str]:
    summaries = [snapshot.summary for snapshot in open_table(warehouse, TABLE).snapshots()]
    return [summary[EPOCH_ID] for summary in summaries if summary]  # type: ignore[misc]


@pytest.mark.timeout(900)
def test_a_stream_that_is_killed_at_any_step_has_each_record_once(
    spark: SparkSession, numbered_topic: BrokerProcess, tmp_path: Path
) -> None:
    folders = [tmp_path / str(number) for number in range(len(PLACES))]
    command = [sys.executable, "-m", "tests.pipeline.stopping_appends", numbered_topic.bootstrap, str(tmp_path)]
    with subprocess.Popen(
        command, cwd=ROOT, env=environment(), stderr=subprocess.PIPE, start_new_session=True
    ) as process:
        try:
            wait_until(
                lambda: all((each / "stopped").exists() for each in folders) or process.poll() is not None,
                lambda: f"not all are there: {[(each / 'stopped').exists() for each in folders]}",
                PATIENCE_S,
            )
        finally:
            os.killpg(process.pid, signal.SIGKILL)
        assert process.stderr
        assert all((each / "stopped").exists() for each in folders), process.stderr.read().decode()
    for folder, place in zip(folders, PLACES, strict=True):
        is_there = place in ("committed", "batch done")
        assert len(numbers_in(folder / "warehouse")) == BATCH * (2 if is_there else 1), place
    produce_numbers(numbered_topic.bootstrap, range(100, 110))
    register(spark)
    queries = [start(spark, numbered_topic.bootstrap, folder) for folder in folders]
    for folder, place, query in zip(folders, PLACES, queries, strict=True):
        assert query.awaitTermination(PATIENCE_S), place
        warehouse = folder / "warehouse"
        assert numbers_in(warehouse) == list(range(110)), place
        assert batches_in(warehouse) == ["0", "1", "2"], place
        assert data_files(warehouse) == named_files(warehouse, TABLE), place
        assert list(warehouse.glob(f"tables/default/{TABLE}/loads/*")) == [], place


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
    with pytest.raises(ConfigurationError, match="give query_id"):
        append_batch(frame, 1, table=TABLE, warehouse=warehouse)
    with pytest.raises(WarehouseError, match="has no column other"):
        append_batch(frame.selectExpr("1 AS other"), 1, table=TABLE, warehouse=warehouse, query_id="a")
    with pytest.raises(LoadError, match="a Spark task failed, and the table is as before") as caught:
        append_batch(frame.selectExpr("'x' AS number"), 1, table=TABLE, warehouse=warehouse, query_id="a")
    assert "\n" not in str(caught.value)
    assert not append_batch(frame.where("number < 0"), 1, table=TABLE, warehouse=warehouse, query_id="a")
    assert numbers_in(warehouse) == list(range(5))
