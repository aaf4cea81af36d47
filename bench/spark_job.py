"""Reads, streams or loads a topic with Spark on two cores, several times over; a program of W13.

    python -m bench.spark_job barnabas --bootstrap HOST:PORT --topic NAME

One session does all rounds, after one that warms it up. One line of JSON says how long they took.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession

import barnabas.spark
from bench import processes
from bench.spark_kafka_source import kafka_source_jars

MASTER = "local[2]"
KAFKA_SOURCE_JARS = ("spark-sql-kafka-*", "spark-token-provider-kafka-*", "kafka-clients-*", "commons-pool2-*")


def add_kafka_source() -> None:
    """Give the session that is to come the jars of Spark's own Kafka source."""
    chosen = ",".join(str(jar) for pattern in KAFKA_SOURCE_JARS for jar in kafka_source_jars().glob(f"{pattern}.jar"))
    os.environ["PYSPARK_SUBMIT_ARGS"] = f"--jars {chosen} pyspark-shell"


def read(spark: SparkSession, source: str, bootstrap: str, topic: str) -> int:
    """Count the records and add up the lengths of their values."""
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
    records = spark.read.format(source).options(**options).load()
    row = records.selectExpr("count(*) AS records", "sum(length(value)) AS bytes").collect()[0]
    return int(row["records"])


def stream(spark: SparkSession, source: str, bootstrap: str, topic: str, folder: Path) -> int:
    """Copy what the topic has into Parquet files, as a stream that ends when it has all."""
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
    records = spark.readStream.format(source).options(**options).load()
    writer = records.writeStream.format("parquet").option("checkpointLocation", str(folder / "checkpoint"))
    query = writer.trigger(availableNow=True).start(str(folder / "rows"))
    query.awaitTermination()
    count = sum(int(progress["numInputRows"]) for progress in query.recentProgress)
    shutil.rmtree(folder)
    return count


def load(spark: SparkSession, warehouse: str, bootstrap: str, topic: str, number: int) -> int:
    """Load the whole topic into a new table."""
    result = barnabas.spark.load(topic, bootstrap=bootstrap, warehouse=warehouse, table=f"round{number}", spark=spark)
    return result.records


def timed_rounds(work: Callable[[int], int], rounds: int) -> dict[str, object]:
    """Do the work once to warm up and then `rounds` times; return what the report says."""
    records = work(0)
    cpu_before_s = processes.cpu_s(os.getpid())
    seconds = []
    for number in range(1, rounds + 1):
        begun_s = time.perf_counter()
        work(number)
        seconds.append(time.perf_counter() - begun_s)
    return {"records": records, "seconds": seconds, "cpu_s": processes.cpu_s(os.getpid()) - cpu_before_s}


def main() -> None:
    """Do what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("action", choices=["barnabas", "kafka", "load"])
    parser.add_argument("--stream", action="store_true", help="into Parquet files, instead of count and sum")
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--warehouse", default="")
    asked = parser.parse_args()
    if asked.action == "kafka":
        add_kafka_source()
    spark = barnabas.spark.local_session("bench", master=MASTER)
    try:
        barnabas.spark.register(spark)
        if asked.stream:
            folder = Path(asked.warehouse)
            report = timed_rounds(
                lambda number: stream(spark, asked.action, asked.bootstrap, asked.topic, folder / str(number)),
                asked.rounds,
            )
        elif asked.action == "load":
            report = timed_rounds(
                lambda number: load(spark, asked.warehouse, asked.bootstrap, asked.topic, number), asked.rounds
            )
        else:
            report = timed_rounds(lambda _: read(spark, asked.action, asked.bootstrap, asked.topic), asked.rounds)
    finally:
        barnabas.spark.stop_session(spark)
    sys.stdout.write(json.dumps(report) + "\n")


if __name__ == "__main__":
    main()
