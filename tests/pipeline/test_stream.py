"""`spark.readStream.format("barnabas")` into files and into foreachBatch, against a real broker."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql.functions import expr

from barnabas import Admin
from barnabas.spark import offsets_behind, register
from tests.programs.stopping_stream import STOPS, WRITTEN
from tests.support.broker_process import BrokerProcess
from tests.support.numbered_topic import TOPIC, produce_numbers
from tests.support.spark_processes import kill_when_there
from tests.support.streamed import BATCH, SINKS, start_query, values_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
def test_a_stream_killed_at_any_step_of_a_batch_writes_each_record_once(
    spark: SparkSession, numbered_topic: BrokerProcess, tmp_path: Path
) -> None:
    folders = [tmp_path / str(number) for number in range(len(STOPS))]
    command = [sys.executable, "-m", "tests.programs.stopping_stream", numbered_topic.bootstrap, str(tmp_path)]
    kill_when_there(command, [folder / "stopped" for folder in folders])
    for folder, (sink, place) in zip(folders, STOPS, strict=True):
        is_there = place == WRITTEN
        assert values_in(spark, folder) == list(range(BATCH * (2 if is_there else 1))), (sink, place)
    produce_numbers(numbered_topic.bootstrap, range(100, 110))
    register(spark)
    for folder, stop in zip(folders, STOPS, strict=True):
        assert start_query(spark, numbered_topic.bootstrap, folder, stop[0]).awaitTermination(PATIENCE_S), stop
        assert values_in(spark, folder) == list(range(110)), stop


@pytest.mark.timeout(900)
def test_a_stream_that_is_joined_with_itself_reads_the_same_records_on_both_sides(
    one_shuffle: SparkSession, numbered_topic: BrokerProcess, tmp_path: Path
) -> None:
    register(one_shuffle)
    reader = one_shuffle.readStream.format("barnabas").option("kafka.bootstrap.servers", numbered_topic.bootstrap)
    reader = (
        reader.option("subscribe", TOPIC).option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", "40")
    )
    values = reader.load().withWatermark("timestamp", "1 hour")
    one = values.selectExpr("CAST(CAST(value AS STRING) AS INT) AS value", "timestamp AS at")
    other = one.selectExpr("value AS other", "at AS other_at")
    close = "other_at BETWEEN at - INTERVAL 1 HOUR AND at + INTERVAL 1 HOUR"
    pairs = one.join(other, expr(f"value % 50 = other % 50 AND {close}")).writeStream.trigger(availableNow=True)
    query = pairs.option("checkpointLocation", f"{tmp_path}/checkpoint").format("parquet").start(f"{tmp_path}/rows")
    assert query.awaitTermination(PATIENCE_S)
    assert query.lastProgress["eventTime"]["watermark"] > "2020"
    rows = one_shuffle.read.parquet(f"{tmp_path}/rows").collect()
    found = sorted((row["value"], row["other"]) for row in rows)
    assert found == sorted((a, b) for a in range(100) for b in range(100) if a % 50 == b % 50)


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
