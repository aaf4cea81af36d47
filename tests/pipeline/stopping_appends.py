"""Streams into Iceberg tables that stop for ever in their second batch, each at another step, for a test to kill them.

`python -m tests.pipeline.stopping_appends BOOTSTRAP FOLDER`. One process has a stream for each of `PLACES`, in a folder
of its own; the file `FOLDER/<number>/stopped` appears when one is there. Their first batch is in the table by then.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

from pyiceberg.catalog.sql import SqlCatalog

from barnabas.spark import append_batch, local_session, register
from barnabas.spark.leftovers import LoadFolder
from barnabas.spark.streamed_table import StreamedTable
from tests.pipeline.numbered_topic import TOPIC

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

PLACES = ("before the files", "files written", "metadata written", "committed", "batch done")
TABLE = "kept"
BATCH = 40


def start(spark: SparkSession, bootstrap: str, folder: Path, place: str | None = None) -> StreamingQuery:
    """Start a stream that appends what there is, `BATCH` records at a time, and ends.

    :param place: where its second batch stops.
    """
    reader = spark.readStream.format("barnabas").option("kafka.bootstrap.servers", bootstrap).option("subscribe", TOPIC)
    reader = reader.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", str(BATCH))
    frame = reader.load().selectExpr(
        "CAST(CAST(value AS STRING) AS INT) AS number", "timestamp", "topic", "CAST(1 AS SMALLINT) AS one"
    )

    def keep(batch: DataFrame, number: int) -> None:
        if number == 1 and place == "before the files":
            stop(folder)
        append_batch(batch, number, table=TABLE, warehouse=folder / "warehouse")
        if number == 1 and place == "batch done":
            stop(folder)

    writer = frame.writeStream.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True)
    return writer.foreachBatch(keep).start()


def stop(folder: Path) -> None:
    """Say so, and never return."""
    (folder / "stopped").touch()
    Event().wait()


def stop_around(owner: Any, name: str, folder: Path, *, after: bool, where: Callable[..., str]) -> None:
    """Have a function stop before or after its call that is about the second batch of the stream in a folder.

    :param where: from its arguments to a path of the table that it is about.
    """
    function = getattr(owner, name)
    is_static = isinstance(inspect.getattr_static(owner, name), staticmethod)

    def stopping(*arguments: Any, **named: Any) -> Any:
        of_this = f"{folder}/" in where(*arguments, **named)
        is_second = of_this and bool(list((folder / "checkpoint" / "commits").glob("[0-9]*")))
        if is_second and not after:
            stop(folder)
        result = function(*arguments, **named)
        if is_second:
            stop(folder)
        return result

    setattr(owner, name, staticmethod(stopping) if is_static else stopping)


def main() -> None:
    """Start the streams, and wait for their end, which does not come."""
    bootstrap, name = sys.argv[1:]
    spark = local_session("stopping appends", master="local[2]")
    register(spark)
    folders = [Path(name, str(number)) for number in range(len(PLACES))]
    stop_around(StreamedTable, "append", folders[1], after=False, where=lambda table, *_more: table.location().uri)
    stop_around(
        SqlCatalog, "_write_metadata", folders[2], after=True, where=lambda metadata, io, metadata_path: metadata_path
    )
    stop_around(LoadFolder, "release", folders[3], after=False, where=lambda folder: str(folder.data))
    for folder, place in zip(folders, PLACES, strict=True):
        folder.mkdir()
        start(spark, bootstrap, folder, place)
    spark.streams.awaitAnyTermination()


if __name__ == "__main__":
    main()
