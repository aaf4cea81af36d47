"""What a user's program does on a standalone cluster: `python -m tests.programs.cluster_job MASTER BOOTSTRAP FOLDER`.

It loads a topic, streams it into an Iceberg table, and reports. In the middle of the load and of the stream it says so
in a line and waits for one: meanwhile the test kills a worker.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import barnabas.spark
from barnabas.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TOPIC = "events"
STREAMED = "streamed"
OFFSETS_PER_BATCH = 2_000
PATIENCE_S = 400


def main() -> None:
    """Do it all in one session."""
    master, bootstrap, folder = sys.argv[1:]
    spark = barnabas.spark.local_session("cluster", master=master, log_file=Path(folder, "driver.log"))
    try:
        try:
            barnabas.spark.register(spark)
        except ConfigurationError as error:
            tell("refused", str(error))
            return
        warehouse = Path(folder, "warehouse")
        load(bootstrap, warehouse, spark)
        stream(bootstrap, folder, warehouse, spark)
        report(bootstrap, warehouse, spark)
    finally:
        barnabas.spark.stop_session(spark)


def load(bootstrap: str, warehouse: Path, spark: SparkSession) -> None:
    """Load in many small tasks; in the middle is where the first of them are done."""
    asked = False

    def on_progress(progress: barnabas.spark.LoadProgress) -> None:
        nonlocal asked
        if progress.step == "writing" and not asked and 0 < progress.records_done < progress.records_total:
            asked = True
            ask("loading")

    loaded = barnabas.spark.load(
        TOPIC, bootstrap=bootstrap, warehouse=warehouse, spark=spark, records_per_task_max=250, on_progress=on_progress
    )
    tell("loaded", loaded.records)


def stream(bootstrap: str, folder: str, warehouse: Path, spark: SparkSession) -> None:
    """Stream what there is in several batches; in the middle is before the second one."""

    def keep(batch: DataFrame, number: int) -> None:
        if number == 1:
            ask("streaming")
        barnabas.spark.append_batch(batch, number, table=STREAMED, warehouse=warehouse)

    reader = spark.readStream.format("barnabas").option("kafka.bootstrap.servers", bootstrap).option("subscribe", TOPIC)
    reader = reader.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", str(OFFSETS_PER_BATCH))
    values = reader.load().selectExpr("partition", "offset", "CAST(value AS STRING) AS value")
    writer = values.writeStream.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True)
    query = writer.foreachBatch(keep).start()
    query.awaitTermination(PATIENCE_S)
    tell("streamed", sum(int(progress["numInputRows"]) for progress in query.recentProgress))


def report(bootstrap: str, warehouse: Path, spark: SparkSession) -> None:
    """Count by partition: in the log, in the table that was loaded and in the one that was streamed into."""
    log = spark.read.format("barnabas").option("kafka.bootstrap.servers", bootstrap).option("subscribe", TOPIC).load()
    frames = [log, *(barnabas.spark.read_table(spark, warehouse, name) for name in (TOPIC, STREAMED))]
    for frame in frames:
        rows = frame.groupBy("partition").count().orderBy("partition").collect()
        tell("counted", [row["count"] for row in rows])


def ask(place: str) -> None:
    """Say where it is, and wait until it may go on."""
    tell("at", place)
    sys.stdin.readline()


def tell(step: str, result: object) -> None:
    """Print what came of a step."""
    sys.stdout.write(json.dumps({step: result}) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
