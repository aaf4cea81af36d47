"""The reader of a batch query. The driver plans the query once, and the executors read the records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from barnabas.spark.error_summaries import hide_traceback
from barnabas.spark.filter_pushdown import PushedFilters, push_filters, restrict_ranges
from barnabas.spark.options import SourceOptions
from barnabas.spark.range_partition import make_partitions, read_partition
from barnabas.spark.range_reading import check_reachable, open_admin
from barnabas.spark.range_resolution import count_partitions, describe_visible, resolve_ranges, select_partitions
from barnabas.spark.worker_gc import freeze_imports

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter


class BarnabasReader(DataSourceReader):
    """Plans one query on the driver, and reads its partitions on the executors, which get a pickled copy.

    :param columns: The columns of the query, in this order.
    :param cores: The number of tasks that run at a time; None if unknown.
    """

    def __init__(self, options: SourceOptions, columns: Sequence[str], cores: int | None = None) -> None:
        self._options = options
        self._columns = columns
        self._cores = cores
        self._narrowing = PushedFilters()

    def partitions(self) -> list[InputPartition]:
        """Return the tasks of the query, from the current offsets of the brokers."""
        freeze_imports()
        options = self._options
        with hide_traceback():
            check_reachable(options.bootstrap, options.client_options)
            with open_admin(options.bootstrap, options.client_options) as admin:
                counts = count_partitions(options.selection, describe_visible(options.selection, admin))
                ranges = resolve_ranges(options, select_partitions(options.selection, counts), admin)
                ranges = restrict_ranges(ranges, self._narrowing, admin)
        return make_partitions(ranges, options, self._cores, cuts=True)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of one task as Arrow batches of bounded size."""
        return read_partition(partition, self._options, self._columns)


class PushdownReader(BarnabasReader):
    """A reader that skips records excluded by the query's filters (filter_pushdown.py)."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802  Spark's name
        """Push filters down, and return those that Spark still has to evaluate."""
        self._narrowing, rest = push_filters(filters)
        return rest
