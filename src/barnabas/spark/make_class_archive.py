"""`python -m barnabas.spark.make_class_archive`: makes local Spark sessions start in half of the time.

The command starts Spark, runs a few small jobs, and has the JVM write an archive of the loaded classes at its end. This
takes half a minute or more, and 200 MB of disk space.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from subprocess import SubprocessError

from pyspark.errors import PySparkException

from barnabas.errors import BarnabasError
from barnabas.spark.class_archive import JAVA_OPTIONS, archive_path, is_current, java_option, prune_archives
from barnabas.spark.fast_worker_start import environment_set
from barnabas.spark.java import find_java_home
from barnabas.spark.session import local_session, stop_session

WRITING_S_MAX = 300.0


def make_class_archive() -> Path:
    """Create or replace the archive, and return its path.

    :raises JavaNotFoundError: This machine has no Java runtime that Spark supports.
    :raises BarnabasError: The JVM wrote no archive; the message has the end of its output.
    """
    java = find_java_home(os.environ)
    archive = archive_path(java)
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f"{archive.stem}-", dir=archive.parent) as name:
        folder = Path(name)
        given = os.environ.get(JAVA_OPTIONS, "")
        options = f"{given} {java_option('ArchiveClassesAtExit', folder / archive.name)}".lstrip()
        with environment_set(os.environ, {JAVA_OPTIONS: options}):
            _use_spark(folder)
        try:
            # A rename is atomic: other processes see the whole archive or none.
            (folder / archive.name).replace(archive)
        except FileNotFoundError:
            said = (folder / "java.log").read_text(errors="replace")[-500:].strip()
            raise BarnabasError(f"{java} wrote no archive: {said}") from None
    prune_archives(archive.parent)
    return archive


def _use_spark(folder: Path) -> None:
    """Run a query, a load and a stream, so that the archive contains their classes."""
    spark = local_session("barnabas class archive", master="local[2]", log_file=folder / "java.log")
    try:
        spark.sparkContext.parallelize(range(4), 2).map(str).collect()
        rows, copied = str(folder / "rows"), str(folder / "copied")
        spark.range(10).selectExpr("id", "CAST(id AS STRING) AS value", "id % 2 AS part").write.parquet(rows)
        stream = spark.readStream.schema("id bigint, value string, part bigint").parquet(rows).writeStream
        stream = stream.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True)
        stream = stream.foreachBatch(lambda batch, number: batch.write.parquet(f"{copied}/batch={number}"))
        stream.start().awaitTermination()
        spark.read.parquet(copied).groupBy("part").count().collect()
    finally:
        stop_session(spark, WRITING_S_MAX)


def main(arguments: Sequence[str]) -> int:
    """Create the archive, and print its path. `--if-missing` keeps an existing archive of the current versions."""
    parser = argparse.ArgumentParser(
        "python -m barnabas.spark.make_class_archive", description=__doc__.partition(":")[2]
    )
    parser.add_argument("--if-missing", action="store_true", help="do nothing if a current archive exists")
    options = parser.parse_args(arguments)
    try:
        if options.if_missing and is_current(archive_path(find_java_home(os.environ))):
            return 0
        sys.stderr.write("making an archive of Spark's classes, once; Spark then starts in half of the time\n")
        archive = make_class_archive()
    except (BarnabasError, OSError, PySparkException, SubprocessError) as error:
        sys.stderr.write(f"cannot make an archive of Spark's classes, so Spark starts as slowly as before: {error}\n")
        return 1
    sys.stdout.write(f"{archive} ({archive.stat().st_size / 1e6:.0f} MB)\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
