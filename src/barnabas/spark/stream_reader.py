"""A streaming query: Spark's driver asks where a batch ends, its checkpoint keeps the answer, executors read the batch.

One reader lives on the driver as long as the query runs; tasks get copies of another one that has asked nothing.
Spark calls, for each batch, `latestOffset(start)`, writes the answer to its log of offsets, calls `partitions`, runs
the tasks, and writes to its log of commits. After a crash in between it plans the last batch of the log of offsets
again. So a batch is the same each time, but for what was deleted from the topic meanwhile.

Where a new query starts is not in Spark's log: after a crash in the first batch Spark asks `initialOffset` again. A
query that starts at the end of the log would lose what came since, so its first batch is empty and puts the place
into the log.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from barnabas.clock import SYSTEM_CLOCK
from barnabas.errors import BarnabasError, ConfigurationError
from barnabas.spark.error_summaries import hide_traceback
from barnabas.spark.errors import DataLossError
from barnabas.spark.options import StreamOptions, starts_at_end
from barnabas.spark.range_partition import make_partitions, read_partition
from barnabas.spark.stream_log_ends import StreamLogEnds, is_permanent
from barnabas.spark.stream_offsets import (
    BatchLimiter,
    LogBounds,
    Offsets,
    StoredOffsets,
    find_start,
    plan_batch,
    restore_offsets,
    store_offsets,
)

log = logging.getLogger(__name__)


class BarnabasStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans the batches of one query on the driver and reads their parts on the executors.

    :param columns: those that the query has, in this order.
    :param cores: how many tasks run at a time, None where nobody knows.
    """

    def __init__(self, options: StreamOptions, columns: Sequence[str], cores: int | None = None) -> None:
        self._options = options
        self._columns = columns
        self._cores = cores
        self._logs = StreamLogEnds(options.source)
        self._admission = BatchLimiter(options.records_max, options.records_min, options.delay_ms_max, SYSTEM_CLOCK)
        self._initial: Offsets | None = None
        self._begins = False
        self._target: LogBounds | None = None
        self._last: Offsets | None = None
        self._reached: Offsets | None = None
        """The offsets that the group has."""
        self._told = ""

    # --- on the driver ----------------------------------------------------------------------------------

    def initialOffset(self) -> StoredOffsets:  # noqa: N802  Spark's name, as those below
        """Return where a new query starts."""
        with hide_traceback():
            self._initial = self._logs.initial()
            self._begins = True
            return store_offsets(self._initial)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return a limit that says that there is one; the reader knows its options."""
        if self._options.records_max is not None:
            return ReadMaxRows(self._options.records_max)
        if self._options.records_min is not None:
            return ReadMinRows(self._options.records_min)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Take what is there now for all that will ever be there."""
        with hide_traceback():
            self._target = self._logs.ends({}, fresh=True)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Return where the next batch ends; `start` where there is nothing to read, or not enough yet."""
        with hide_traceback():
            committed = restore_offsets(start)
            self._commit_to_group(committed)
            begins, self._begins = self._begins, False
            if begins and self._target is not None:
                # What came between the two questions is before the query's start, and so is no end for it.
                self._target = self._target.extended_to(committed)
            logs = self._target or self._logs.ends(committed)
            self._last = logs.last
            if begins and starts_at_end(self._options.source):
                return start
            found = find_start(committed, logs)
            self._log_losses(found.losses)
            if not logs.last:
                # All topics are gone, or a broker that starts does not know them yet. Without its place in the
                # checkpoint the query would read them from their start when they are there again.
                return start
            if isinstance(limit, ReadAllAvailable):
                return store_offsets(logs.last)
            end = self._admission.end(found.offsets, logs.last, waits=self._target is None)
            return start if end is None else store_offsets(end)

    def reportLatestOffset(self) -> StoredOffsets | None:  # noqa: N802
        """Return where the logs ended when the last batch was planned, for the query's progress."""
        return None if self._last is None else store_offsets(self._last)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Split a batch into tasks."""
        with hide_traceback():
            committed, stop = restore_offsets(start), restore_offsets(end)
            self._begins = False
            if committed == stop:
                return []
            plan = plan_batch(committed, stop, self._logs.ends(stop), is_first=committed == self._initial)
            self._log_losses(plan.losses)
        return make_partitions(plan.ranges, self._options.source, self._cores)

    def commit(self, end: dict[str, Any]) -> None:
        """Take note that a batch is done: with `commitToGroup`, tell the group."""
        with hide_traceback():
            self._commit_to_group(restore_offsets(end))

    def stop(self) -> None:
        """End the connection."""
        self._logs.close()

    def _commit_to_group(self, offsets: Offsets) -> None:
        """Commit offsets for the group, if there is one. It only tells how far the query is, so failures are told."""
        group = self._options.commit_group
        if group is None or offsets == self._reached:
            return
        try:
            self._logs.commit(group, offsets)
        except BarnabasError as error:
            if self._reached is None and is_permanent(error):
                raise ConfigurationError(f"commitToGroup={group!r} cannot be: {error}") from error
            log.warning("group %r was not told how far the query is: %s", group, error)
            return
        self._reached = dict(offsets)

    def _log_losses(self, losses: Sequence[str]) -> None:
        if not losses:
            return
        told = "; ".join(losses[:LOSSES_LOGGED_MAX])
        if len(losses) > LOSSES_LOGGED_MAX:
            told += f"; and {len(losses) - LOSSES_LOGGED_MAX} more"
        if self._options.source.fail_on_data_loss:
            raise DataLossError(f"{told}. Set failOnDataLoss to false to go on with what is there")
        if told != self._told:  # Spark asks several times a second
            log.warning("%s", told)
            self._told = told

    # --- on the executors -------------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of one task as Arrow batches of bounded size."""
        return read_partition(partition, self._options.source, self._columns)


class RefusedStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The reader of a query that cannot be: says why when it is first asked.

    Spark stops the reader when it could not be made, too, and then tells of that failure instead of the first.
    """

    def __init__(self, error: BarnabasError) -> None:
        self._error = error

    def _refuse(self, *_asked: Any, **_named: Any) -> NoReturn:
        with hide_traceback():
            raise self._error

    initialOffset = latestOffset = getDefaultReadLimit = prepareForTriggerAvailableNow = partitions = read = _refuse  # noqa: N815


LOSSES_LOGGED_MAX = 5
"""Partitions that a message names."""
