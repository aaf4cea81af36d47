"""`spark.readStream.format("barnabas")` into files and into foreachBatch, against a real broker."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from barnabas import Admin
from barnabas.spark import offsets_behind, register
from tests.conftest import BrokerProcess
from tests.interop.reading import wait_until
from tests.pipeline.numbered_topic import produce_numbers
from tests.pipeline.streamed import BATCH, SINKS, start_query, values_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 400


@pytest.mark.timeout(900)
@pytest.mark.parametrize("sink", SINKS)
def test_a_stream_goes_on_where_its_checkpoint_says(
    spark: SparkSession, numbered_topic: BrokerProcess, tmp_path: Path, sink: str
) -> None:
    register(spark)
    query = start_query(spark, numbered_topic.bootstrap, tmp_path, sink)
    assert query.awaitTermination(PATIENCE_S)
    assert values_in(spark, tmp_path) == list(range(100))
    progress = [each for each in query.recentProgress if each["numInputRows"]]
    assert [each["numInputRows"] for each in progress] == [40, 40, 20]
    assert [offsets_behind(each).total for each in progress] == [60, 20, 0]
    produce_numbers(numbered_topic.bootstrap, range(100, 130))
    query = start_query(spark, numbered_topic.bootstrap, tmp_path, sink, commitToGroup="reports")
    assert query.awaitTermination(PATIENCE_S)
    assert values_in(spark, tmp_path) == list(range(130))
    with Admin(numbered_topic.bootstrap) as admin:
        assert {tp.partition: at.offset for tp, at in admin.group_offsets("reports").items()} == {0: 65, 1: 65}
    last = sorted((tmp_path / "checkpoint" / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))[-1]
    assert last.read_text().splitlines()[-1].replace(" ", "") == '{"events":{"0":65,"1":65}}'


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("sink", "place"), [("files", "planned"), ("foreachBatch", "reading")])
def test_a_stream_killed_in_the_middle_of_a_batch_writes_each_record_once(
    spark: SparkSession, numbered_topic: BrokerProcess, tmp_path: Path, sink: str, place: str
) -> None:
    command = [
        sys.executable,
        "-m",
        "tests.pipeline.stopping_stream",
        numbered_topic.bootstrap,
        str(tmp_path),
        sink,
        place,
    ]
    paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    with subprocess.Popen(
        command, cwd=ROOT, env=os.environ | {"PYTHONPATH": paths}, stderr=subprocess.PIPE, start_new_session=True
    ) as process:
        try:
            wait_until(
                lambda: (tmp_path / "stopped").exists() or process.poll() is not None, "it is not there", PATIENCE_S
            )
        finally:
            os.killpg(process.pid, signal.SIGKILL)
        assert (tmp_path / "stopped").exists(), process.stderr and process.stderr.read().decode()
    assert values_in(spark, tmp_path) == list(range(BATCH))
    produce_numbers(numbered_topic.bootstrap, range(100, 110))
    register(spark)
    assert start_query(spark, numbered_topic.bootstrap, tmp_path, sink).awaitTermination(PATIENCE_S)
    assert values_in(spark, tmp_path) == list(range(110))


@pytest.mark.timeout(900)
def test_a_stream_that_cannot_be_is_told_in_a_line(
    spark: SparkSession, numbered_topic: BrokerProcess, tmp_path: Path
) -> None:
    register(spark)
    query = start_query(spark, numbered_topic.bootstrap, tmp_path, "foreachBatch", endingOffsets="latest")
    with pytest.raises(Exception, match="endingOffsets") as caught:
        query.awaitTermination(PATIENCE_S)
    first = str(caught.value).split("=== Streaming Query ===")[0]
    assert "a stream has no end" in first
    assert "Traceback" not in first
