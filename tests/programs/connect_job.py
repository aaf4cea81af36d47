"""What a client of Spark Connect does, in a process of its own.

`python -m tests.programs.connect_job URL BOOTSTRAP FOLDER`. A line of JSON says what came of each step.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import barnabas.spark

TOPIC, COPIES = "events", "copies"


def main() -> None:
    """Register, read, stream, write and load."""
    url, bootstrap, folder = sys.argv[1:]
    spark = SparkSession.builder.remote(url).getOrCreate()
    barnabas.spark.register(spark)
    broker = {"kafka.bootstrap.servers": bootstrap}
    frame = spark.read.format("barnabas").options(**broker).option("subscribe", TOPIC).load()
    tell("read", [frame.count(), frame.where("partition = 1").count()])
    frame.select("key", "value").write.format("barnabas").mode("append").options(**broker).option(
        "topic", COPIES
    ).save()
    tell("written", spark.read.format("barnabas").options(**broker).option("subscribe", COPIES).load().count())
    stream = spark.readStream.format("barnabas").options(**broker).option("subscribe", TOPIC)
    writer = stream.option("startingOffsets", "earliest").load().writeStream.format("parquet")
    query = (
        writer.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True).start(f"{folder}/rows")
    )
    query.awaitTermination(400)
    tell("streamed", spark.read.parquet(f"{folder}/rows").count())
    warehouse = Path(folder, "warehouse")
    seen: list[int] = []

    def load() -> Any:
        return barnabas.spark.load(
            TOPIC,
            bootstrap=bootstrap,
            warehouse=warehouse,
            spark=spark,
            format="json",
            records_per_task_max=100,
            on_progress=lambda progress: seen.append(progress.records_done),
        )

    tell("loaded", [load().records, max(seen), load().records])
    tell("table", barnabas.spark.read_table(spark, warehouse, TOPIC).count())
    for wrong in ({}, {"startingOffset": "earliest"}):
        try:
            spark.read.format("barnabas").options(**broker, **wrong).load().count()
        except Exception as error:  # noqa: BLE001  # whatever it is, the test looks at it
            tell("refused", str(error).splitlines()[:3])
    spark.stop()


def tell(step: str, result: object) -> None:
    """Print what came of a step."""
    sys.stdout.write(json.dumps({step: result}) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
