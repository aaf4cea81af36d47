"""A batch query: planned once on the driver, read on the executors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from barnabas.spark.error_summaries import hide_traceback
from barnabas.spark.filter_pushdown import PushedFilters, push_filters, restrict_ranges
from barnabas.spark.options import SourceOptions
from barnabas.spark.range_partition import make_partitions, read_partition
from barnabas.spark.range_reading import check_reachable, open_admin
from barnabas.spark.range_resolution import count_partitions, resolve_ranges, select_partitions
from barnabas.spark.worker_gc import freeze_imports


class BarnabasReader(DataSourceReader):
    """Plans one query on the driver and reads its parts on the executors, where a copy of it is sent.

    :param columns: those that the query has, in this order.
    :param cores: how many tasks run at a time, None where nobody knows.
    """

    def __init__(self, options: SourceOptions, columns: Sequence[str], cores: int | None = None) -> None:
        self._options = options
        self._columns = columns
        self._cores = cores
        self._narrowing = PushedFilters()

    def partitions(self) -> list[InputPartition]:
        """Ask the brokers for the offsets and split them into tasks."""
        freeze_imports()
        options = self._options
        with hide_traceback():
            check_reachable(options.bootstrap, options.client_options)
            with open_admin(options.bootstrap, options.client_options) as admin:
                counts = count_partitions(options.selection, admin.describe_topics())
                ranges = resolve_ranges(options, select_partitions(options.selection, counts), admin)
                ranges = restrict_ranges(ranges, self._narrowing, admin)
        return make_partitions(ranges, options, self._cores, cuts=True)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of one task as Arrow batches of bounded size."""
        return read_partition(partition, self._options, self._columns)


class PushdownReader(BarnabasReader):
    """Leaves unread what the query's conditions exclude. Where that is safe, filter_pushdown.py says."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802  Spark's name
        """Take note of what the query's conditions leave to read; return those that Spark still has to check."""
        self._narrowing, rest = push_filters(filters)
        return rest
