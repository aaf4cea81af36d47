"""`df.writeStream.format("barnabas")`: the sink of streaming queries. Needs Spark 4.1; `sink.py` sends the rows."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamArrowWriter

from barnabas.spark.sink import Written, write_rows
from barnabas.spark.sink_options import SinkOptions


class BarnabasStreamWriter(DataSourceStreamArrowWriter):
    """The writer of a streaming query, on the executors."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Send the rows of one task."""
        return write_rows(self._options, iterator)
