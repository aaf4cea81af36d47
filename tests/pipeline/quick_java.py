"""Lets the Java of tests' Sparks start in a third of the time: most of what they do is to start.

Two options. What is compiled is compiled fast and not well, since nothing runs for long. And the classes of Spark come
out of an archive that an earlier start has left (class data sharing, JEP 350), which is made once for each Java and
each PySpark, by `python -m tests.pipeline.quick_java`, and is of no use to others.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import pyspark

from barnabas.java import release_of
from barnabas.spark import local_session, stop_session
from barnabas.spark.java import find_java_home
from tests.cache import cached

ROOT = Path(__file__).resolve().parents[2]
OPTIONS = "-XX:+IgnoreUnrecognizedVMOptions -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto -Xlog:disable"
OF_SPARK = "SPARK_SUBMIT_OPTS"
OF_LAUNCHER = "SPARK_LAUNCHER_OPTS"
"""Spark's script starts a Java that does nothing but find out how the real one is to be started."""
MAKING_S_MAX = 300.0


def quick_environment() -> dict[str, str]:
    """Return the variables for Sparks that start fast; the first who asks makes the archive.

    :raises JavaNotFoundError: no Java runtime that Spark can use.
    """
    java = find_java_home(os.environ)
    of_whom = f"{pyspark.__version__} {pyspark.__file__} {java} {release_of(java)} {OPTIONS}"
    folder = cached(f"spark-classes-{hashlib.sha256(of_whom.encode()).hexdigest()[:16]}", _make)
    archive = folder / "classes.jsa"
    sharing = f" -XX:SharedArchiveFile={archive}" if archive.exists() else ""
    return {OF_SPARK: OPTIONS + sharing, OF_LAUNCHER: OPTIONS}


def _make(folder: Path) -> None:
    """Fill a folder with the archive; without one Sparks only start more slowly."""
    folder.mkdir()
    environment = os.environ | {
        OF_SPARK: f"{OPTIONS} -XX:ArchiveClassesAtExit={folder}/classes.jsa",
        OF_LAUNCHER: OPTIONS,
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
    }
    command = [sys.executable, "-m", "tests.pipeline.quick_java"]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=2 * MAKING_S_MAX, check=False
    )
    if not (folder / "classes.jsa").exists():
        warnings.warn(f"no archive of Spark's classes, starts are slow: {done.stderr[-500:]}", stacklevel=2)


def _use_spark(folder: Path) -> None:
    """Do what tests do, so that the classes for it are in the archive, which Java writes at its end."""
    spark = local_session("tests' classes", master="local[2]")
    spark.sparkContext.parallelize(range(4), 2).map(str).collect()
    rows, copied = str(folder / "rows"), str(folder / "copied")
    spark.range(10).selectExpr("id", "CAST(id AS STRING) AS value", "id % 2 AS part").write.parquet(rows)
    stream = spark.readStream.schema("id bigint, value string, part bigint").parquet(rows).writeStream
    stream = stream.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True)
    stream = stream.foreachBatch(lambda batch, number: batch.write.parquet(f"{copied}/batch={number}"))
    stream.start().awaitTermination()
    spark.read.parquet(copied).groupBy("part").count().collect()
    stop_session(spark, MAKING_S_MAX)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as used:
        _use_spark(Path(used))
