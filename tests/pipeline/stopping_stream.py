"""A streaming query in a process of its own that stops for ever at a given place, so that a test can kill it there.

`python -m tests.pipeline.stopping_stream BOOTSTRAP FOLDER SINK PLACE`; the file `FOLDER/stopped` appears when it is
there. The first batch of the query is done by then, the second one is not.
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
from tests.pipeline.streamed import BATCH, start_query

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PLACES = ("asked", "planned", "reading")


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
            if self._place == "reading" and partition.wanted.start_offset > 0:
                yield batch.slice(0, 1)
                self.stop_here()
            yield batch

    def stop_here(self) -> None:
        """Say so, and never return."""
        Path(self._folder, "stopped").touch()
        Event().wait()


class StoppingSource(BarnabasDataSource):
    """The data source with a reader that stops."""

    def streamReader(self, schema: StructType) -> BarnabasStreamReader:  # noqa: N802  Spark's name
        """Return the reader; where it stops, an option says that Spark hands on."""
        given = dict(self.options)
        folder, place = given.pop("kafka.client.id").split("|")
        return StoppingReader(folder, place, parse_stream_options(given), check_columns(schema))


def main() -> None:
    """Start the query and wait for its end, which does not come."""
    bootstrap, folder, sink, place = sys.argv[1:]
    spark: SparkSession = local_session("stopping stream", master="local[2]")
    register(spark)
    spark.dataSource.register(StoppingSource)
    start_query(spark, bootstrap, Path(folder), sink, **{"kafka.client.id": f"{folder}|{place}"}).awaitTermination()


if __name__ == "__main__":
    main()
