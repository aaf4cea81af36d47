"""Streaming queries that stop for ever in their second batch, each at another step, for a test to kill them.

`python -m tests.programs.stopping_stream BOOTSTRAP FOLDER`. One process has a query for each of `STOPS`, in a folder of
its own; the file `FOLDER/<number>/stopped` appears when one is there. Their first batch is done by then, the second one
is not.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from barnabas.spark import local_session, register
from barnabas.spark.options import parse_stream_options
from barnabas.spark.range_partition import RangePartition, check_columns
from barnabas.spark.source import BarnabasDataSource
from barnabas.spark.stream_reader import BarnabasStreamReader
from tests.support.streamed import BATCH, SINKS, start_query, wait_for_stop

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WRITTEN = "written"
PLACES = ("asked", "planned", "reading")
STOPS = (*((sink, place) for sink in SINKS for place in PLACES), ("foreachBatch", WRITTEN))
""""asked": the end of the batch is known, and in no log; "planned": it is in the log of offsets; "reading": a task has
some of the records; "written": all are in the sink, and the log of commits does not know it."""
CORES = 2 + 2 * sum(place == "reading" for _sink, place in STOPS)
"""The tasks that have stopped, one for each partition of the topic, keep their cores."""


class StoppingReader(BarnabasStreamReader):
    """Stops in the second batch."""

    def __init__(self, folder: str, place: str, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._folder = folder
        self._place = place

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:  # noqa: N802  Spark's name
        """Stop before the second batch is in the log of offsets."""
        end = super().latestOffset(start, limit)
        if self._place == "asked" and sum(start.get("events", {}).values()) >= BATCH:
            self.stop_here()
        return end

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Stop when the second batch is in the log of offsets."""
        if self._place == "planned" and sum(start["events"].values()) >= BATCH:
            self.stop_here()
        return super().partitions(start, end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Stop in a task, after some of its records."""
        assert isinstance(partition, RangePartition)
        for batch in super().read(partition):
            if self._place == "reading" and partition.wanted[0].start_offset > 0:
                yield batch.slice(0, 1)
                self.stop_here()
            yield batch

    def stop_here(self) -> None:
        """Say so, and never return."""
        stop(Path(self._folder))


class StoppingSource(BarnabasDataSource):
    """The data source with a reader that stops."""

    def streamReader(self, schema: StructType) -> BarnabasStreamReader:  # noqa: N802  Spark's name
        """Return the reader; where it stops, an option says that Spark hands on."""
        given = dict(self.options)
        folder, place = given.pop("kafka.client.id").split("|")
        return StoppingReader(folder, place, parse_stream_options(given), check_columns(schema))


def stop(folder: Path) -> None:
    """Say so, and never return."""
    (folder / "stopped").touch()
    Event().wait()


def main() -> None:
    """Start the queries and wait for their end, which does not come."""
    bootstrap, name = sys.argv[1:]
    spark: SparkSession = local_session("stopping streams", master=f"local[{CORES}]")
    register(spark)
    spark.dataSource.register(StoppingSource)
    for number, (sink, place) in enumerate(STOPS):
        folder = Path(name, str(number))
        folder.mkdir()

        def after_batch(batch: int, folder: Path = folder, place: str = place) -> None:
            if batch == 1 and place == WRITTEN:
                stop(folder)

        query = start_query(spark, bootstrap, folder, sink, after_batch, **{"kafka.client.id": f"{folder}|{place}"})
        wait_for_stop(query, folder)
    Event().wait()


if __name__ == "__main__":
    main()
