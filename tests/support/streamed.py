"""A streaming query of the topic `events` into files, and what the files have."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.numbered_topic import TOPIC
from tests.support.reading import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

BATCH = 40
PATIENCE_S = 400
SINKS = ("files", "foreachBatch")


def start_query(
    spark: SparkSession,
    bootstrap: str,
    folder: Path,
    sink: str,
    after_batch: Callable[[int], None] = lambda _number: None,
    **options: str,
) -> StreamingQuery:
    """Start a query that reads what there is, `BATCH` records at a time, and ends.

    :param after_batch: called by `foreachBatch` with the number of a batch that it has written.
    """
    reader = spark.readStream.format("barnabas").option("kafka.bootstrap.servers", bootstrap).option("subscribe", TOPIC)
    reader = reader.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", str(BATCH)).options(**options)
    values = reader.load().selectExpr("CAST(value AS STRING) AS value")
    writer = values.writeStream.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True)
    if sink == "files":
        return writer.format("parquet").start(f"{folder}/rows")

    def keep(batch: DataFrame, number: int) -> None:
        batch.write.mode("overwrite").parquet(f"{folder}/rows/batch={number}")
        after_batch(number)

    return writer.foreachBatch(keep).start()


def wait_for_stop(query: StreamingQuery, folder: Path) -> None:
    """Wait until a query has stopped for ever; many that start at once are too much for a slow machine.

    :raises StreamingQueryException: it has failed before.
    """
    wait_until(lambda: (folder / "stopped").exists() or not query.isActive, "it stopped", PATIENCE_S)
    if not query.isActive:
        query.awaitTermination()


def values_in(spark: SparkSession, folder: Path) -> list[int]:
    """Return all that the query has written, sorted."""
    rows = spark.read.parquet(f"{folder}/rows").select("value").collect()
    return sorted(int(row["value"]) for row in rows)
