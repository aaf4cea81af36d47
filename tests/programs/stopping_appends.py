"""Streams into Iceberg and Delta tables that stop for ever in their second batch, each at another step, to be killed.

`python -m tests.programs.stopping_appends BOOTSTRAP FOLDER`. One process has a stream for each of `STOPS`, in a folder
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
from barnabas.spark.batch_table import BatchTable
from barnabas.spark.delta_batch_table import DeltaBatchTable
from barnabas.spark.iceberg_batch_table import IcebergBatchTable
from barnabas.spark.load_folder import LoadFolder
from barnabas.spark.table_place import DELTA, ICEBERG
from tests.support.numbered_topic import TOPIC
from tests.support.streamed import wait_for_stop

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

PLACES = ("before the files", "files written", "metadata written", "committed", "batch done")
STOPS = (
    *((ICEBERG, place) for place in PLACES),
    *((DELTA, place) for place in PLACES if place != "metadata written"),  # that is a step of Iceberg's catalog
)
TABLE = "kept"
BATCH = 40


def start(
    spark: SparkSession, bootstrap: str, folder: Path, table_format: str, place: str | None = None
) -> StreamingQuery:
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
        append_batch(batch, number, table=TABLE, warehouse=folder / "warehouse", table_format=table_format)
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


def stop_at(place: str, kind: type[BatchTable], folder: Path) -> None:
    """Have the stream in a folder stop at a place that `foreachBatch` does not see."""
    match place:
        case "files written":
            stop_around(kind, "append", folder, after=False, where=lambda table, *_more: table.location().uri)
        case "metadata written":
            stop_around(
                SqlCatalog,
                "_write_metadata",
                folder,
                after=True,
                where=lambda metadata, io, metadata_path: metadata_path,
            )
        case "committed":
            stop_around(LoadFolder, "release", folder, after=False, where=lambda folder: str(folder.data))


def main() -> None:
    """Start the streams, and wait for their end, which does not come."""
    bootstrap, name = sys.argv[1:]
    spark = local_session("stopping appends", master="local[2]")
    register(spark)
    for number, (table_format, place) in enumerate(STOPS):
        folder = Path(name, str(number))
        folder.mkdir()
        stop_at(place, IcebergBatchTable if table_format == ICEBERG else DeltaBatchTable, folder)
        query = start(spark, bootstrap, folder, table_format, place)
        wait_for_stop(query, folder)
    Event().wait()


if __name__ == "__main__":
    main()
