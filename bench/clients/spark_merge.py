"""Merges changes into an Iceberg table with Spark's MERGE INTO, for `bench.upserts`. It needs PySpark alone.

    python -m bench.clients.spark_merge make FOLDER JAR ROWS
    python -m bench.clients.spark_merge merge FOLDER JAR

`FOLDER` has the rows and the changes as JSON lines. The last change of each key is found with a window, as the table of
Barnabas finds it: Iceberg allows one change of each key in a MERGE. The program prints figures as one line of JSON.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession

from bench import processes

SCHEMA = "id BIGINT, shop STRING, state STRING, amount DOUBLE, items INT, note STRING, updated_at BIGINT, op STRING"
COLUMNS = "id, shop, state, amount, items, note, updated_at"
CHANGES = f"""
    SELECT {COLUMNS}, op FROM (
        SELECT *, row_number() OVER (PARTITION BY id ORDER BY updated_at DESC) AS place FROM changes
    ) WHERE place = 1
"""
MERGE = f"""
    MERGE INTO lake.bench.orders AS target USING ({CHANGES}) AS source ON target.id = source.id
    WHEN MATCHED AND source.op = 'd' THEN DELETE
    WHEN MATCHED THEN UPDATE SET {", ".join(f"{name} = source.{name}" for name in COLUMNS.split(", "))}
    WHEN NOT MATCHED AND source.op <> 'd' THEN INSERT ({COLUMNS})
        VALUES ({", ".join(f"source.{name}" for name in COLUMNS.split(", "))})
"""


def session(folder: Path, jar: str) -> SparkSession:
    """Return a session with a catalog in the folder."""
    settings = {
        "spark.jars": jar,
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "hadoop",
        "spark.sql.catalog.lake.warehouse": str(folder / "spark"),
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.memory": "3g",
    }
    builder = SparkSession.builder.master("local[2]").appName("bench.upserts")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def main() -> None:
    """Run the command line."""
    work, where, jar = sys.argv[1:4]
    folder = Path(where)
    spark = session(folder, jar)
    before_s, begun_s = processes.cpu_s(os.getpid()), time.perf_counter()
    spark.read.schema(SCHEMA).json(
        str(folder / "rows.json" if work == "make" else folder / "changes.json")
    ).createOrReplaceTempView("changes")
    if work == "make":
        spark.sql(f"CREATE TABLE lake.bench.orders USING iceberg AS SELECT {COLUMNS} FROM changes ORDER BY id")
    else:
        spark.sql(MERGE)
    seconds, own_s = (
        time.perf_counter() - begun_s,
        processes.cpu_s(os.getpid()) - before_s,
    )
    whole_s = processes.cpu_s(os.getpid())
    state = spark.sql("SELECT count(*), sum(amount), sum(updated_at) FROM lake.bench.orders").collect()[0]
    summary = spark.sql("SELECT summary FROM lake.bench.orders.snapshots ORDER BY committed_at DESC LIMIT 1").collect()
    figures = {
        "seconds": seconds,
        "cpu_s": own_s,
        "whole_cpu_s": whole_s,
        "rewritten_files": int(dict(summary[0][0]).get("deleted-data-files", 0)),
        "state": [int(state[0]), round(float(state[1]), 2), int(state[2])],
    }
    spark.stop()
    sys.stdout.write(json.dumps(figures) + "\n")


if __name__ == "__main__":
    main()
