"""Reads, streams or loads a topic several times with Spark on two cores, for workload W13.

    python -m bench.spark_job read --bootstrap HOST:PORT --topic NAME

One Spark session runs all rounds after a warm-up round. `first` measures the first query of a session and has one
round. The program prints the durations as one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from collections.abc import Callable
from functools import cached_property
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

import barnabas.spark
from barnabas import Admin
from bench import processes
from bench.spark_kafka_source import kafka_source_jars

MASTER = "local[2]"
KAFKA_SOURCE_JARS = ("spark-sql-kafka-*", "spark-token-provider-kafka-*", "kafka-clients-*", "commons-pool2-*")
NO_SOURCE = "rate-micro-batch"
"""Spark's own generator of rows: a stream whose source costs almost no time."""
SOURCES = ("barnabas", "kafka", NO_SOURCE)
MADE_ROWS = (
    "CAST(NULL AS BINARY) AS key",
    "CAST(rpad(concat('record ', value % 10000), 100, ' of those that Spark makes itself') AS BINARY) AS value",
    "'made' AS topic",
    "CAST(value % 6 AS INT) AS partition",
    "value AS offset",
    "timestamp",
    "0 AS timestampType",
)
"""The columns of a source of records. Each value occurs as often as in the measured topic."""
LAST_SHARE = 100
"""The share of records that the job `last` reads: the latest hundredth of each partition by time."""


def add_kafka_source() -> None:
    """Add the jars of Spark's own Kafka source to the session that is created next."""
    chosen = ",".join(str(jar) for pattern in KAFKA_SOURCE_JARS for jar in kafka_source_jars().glob(f"{pattern}.jar"))
    os.environ["PYSPARK_SUBMIT_ARGS"] = f"--jars {chosen} pyspark-shell"


class SparkJob:
    """The measured jobs. Each job gets the number of the round, and returns the number of its records."""

    def __init__(self, spark: SparkSession, asked: argparse.Namespace) -> None:
        self._spark = spark
        self._asked = asked
        self._topic: str = asked.topic
        self._folder = Path(asked.folder)

    def read(self, _round: int) -> int:
        """Count all records, and add up the lengths of their values."""
        return _count(self._frame())

    def one_partition(self, _round: int) -> int:
        """Do the same as `read` for one partition, selected by a filter."""
        return _count(self._frame().where("partition = 0"))

    def last(self, _round: int) -> int:
        """Do the same as `read` for the last hundredth of the records, selected by a filter on the timestamp."""
        return _count(self._frame().where(f"timestamp >= timestamp_millis({self._late_ms})"))

    def stream(self, number: int) -> int:
        """Copy the topic to Parquet files with a stream that ends when it has read all records."""
        folder = self._folder / str(number)
        records = self._endless_frame()
        writer = records.writeStream.format("parquet").option("checkpointLocation", str(folder / "checkpoint"))
        query = writer.trigger(availableNow=True).start(str(folder / "rows"))
        query.awaitTermination()
        count = sum(int(progress["numInputRows"]) for progress in query.recentProgress)
        shutil.rmtree(folder)
        return count

    def load(self, number: int) -> int:
        """Load the whole topic into a new table."""
        return self._load(f"round{number}")

    def nothing(self, _round: int) -> int:
        """Load into a table that already has all records, because the warm-up round has loaded them."""
        return self._load("whole")

    def _load(self, table: str) -> int:
        asked = self._asked
        result = barnabas.spark.load(
            self._topic,
            bootstrap=asked.bootstrap,
            warehouse=self._folder,
            table=table,
            spark=self._spark,
            format=asked.format,
            registry=asked.registry,
        )
        return result.records

    def _frame(self) -> DataFrame:
        return self._spark.read.format(self._asked.source).options(**self._options()).load()

    def _endless_frame(self) -> DataFrame:
        if self._asked.source == NO_SOURCE:
            made = self._spark.readStream.format(NO_SOURCE).option("rowsPerBatch", self._asked.records)
            return made.load().selectExpr(*MADE_ROWS)
        return self._spark.readStream.format(self._asked.source).options(**self._options()).load()

    def _options(self) -> dict[str, str]:
        asked = self._asked
        return {"kafka.bootstrap.servers": asked.bootstrap, "subscribe": self._topic, "startingOffsets": "earliest"}

    @cached_property
    def _late_ms(self) -> int:
        """Return the timestamp at which the last hundredth of partition 0 starts. The query for this timestamp is not
        measured."""
        with Admin(self._asked.bootstrap) as admin:
            end = admin.end_offsets([(self._topic, 0)])
        first = max(end.values()) * (LAST_SHARE - 1) // LAST_SHARE
        row = self._frame().where(f"partition = 0 AND offset = {first}").selectExpr("unix_millis(timestamp)").collect()
        return int(row[0][0])


WORKS = {
    "read": SparkJob.read,
    "first": SparkJob.read,
    "partition": SparkJob.one_partition,
    "last": SparkJob.last,
    "stream": SparkJob.stream,
    "load": SparkJob.load,
    "nothing": SparkJob.nothing,
}


def _count(frame: DataFrame) -> int:
    row = frame.selectExpr("count(*) AS records", "sum(length(value)) AS bytes").collect()[0]
    return int(row["records"])


def timed_rounds(work: Callable[[int], int], rounds: int, *, warms_up: bool = True) -> dict[str, object]:
    """Run the work once for warm-up and then `rounds` times. Return the fields of the report."""
    records = work(0) if warms_up else 0
    cpu_before_s = processes.cpu_s(os.getpid())
    seconds = []
    for number in range(1, rounds + 1):
        begun_s = time.perf_counter()
        records = max(records, work(number))
        seconds.append(time.perf_counter() - begun_s)
    return {"records": records, "seconds": seconds, "cpu_s": processes.cpu_s(os.getpid()) - cpu_before_s}


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("work", choices=WORKS)
    parser.add_argument("--source", choices=SOURCES, default="barnabas")
    parser.add_argument("--format", default="raw", help="format of the values, for loads")
    parser.add_argument("--registry", help="URL of the registry with the schemas of Avro values")
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--records", type=int, default=0, help=f"number of records that `{NO_SOURCE}` generates")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", default="", help="folder for the output of streams and loads")
    asked = parser.parse_args()
    if asked.source == "kafka":
        add_kafka_source()
    spark = barnabas.spark.local_session("bench", master=MASTER)
    is_first = asked.work == "first"
    try:
        job = SparkJob(spark, asked)
        if not is_first:
            # Create a new data frame for each query, because the filter is pushed down when the frame is read.
            barnabas.spark.register(spark, pushdown=asked.work in ("partition", "last") or None)

        def work(number: int) -> int:
            if is_first and asked.source == "barnabas":
                barnabas.spark.register(spark)
            return WORKS[asked.work](job, number)

        report = timed_rounds(work, 1 if is_first else asked.rounds, warms_up=not is_first)
    finally:
        barnabas.spark.stop_session(spark)
    sys.stdout.write(json.dumps(report) + "\n")


if __name__ == "__main__":
    main()
