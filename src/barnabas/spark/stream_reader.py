"""The reader of a streaming query. The driver decides the end of each micro-batch, and executors read it.

One reader lives on the driver for the whole query. Tasks get copies of another reader, which has no state. For each
batch Spark calls `latestOffset(start)`, writes the result to its offset log, calls `partitions`, runs the tasks, and
writes to its commit log. After a crash in between, Spark plans the last batch of the offset log again. So a batch is
the same each time, except for records that were deleted from the topic meanwhile.

The start of a new query is not in Spark's log: after a crash in the first batch, Spark calls `initialOffset` again. A
query that starts at the log end would then lose the records since. Its first batch is therefore empty, and writes the
start to the offset log.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Any

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
    """Plans the batches of one query on the driver, and reads their partitions on the executors.

    :param columns: The columns of the query, in this order.
    :param cores: The number of tasks that run at a time; None if unknown.
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
        """The offsets that were committed to the group."""
        self._logged_losses = ""

    # --- on the driver ----------------------------------------------------------------------------------

    def initialOffset(self) -> StoredOffsets:  # noqa: N802 - Spark defines the names of these methods
        """Return the start offsets of a new query."""
        with hide_traceback():
            self._initial = self._logs.initial()
            self._begins = True
            return store_offsets(self._initial)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the read limit of the options for Spark. The reader itself enforces the limit."""
        if self._options.records_max is not None:
            return ReadMaxRows(self._options.records_max)
        if self._options.records_min is not None:
            return ReadMinRows(self._options.records_min)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Make the current log end offsets the end of the query."""
        with hide_traceback():
            self._target = self._logs.ends({}, fresh=True)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Return the end of the next batch; `start` if there are no records, or too few for a batch."""
        with hide_traceback():
            committed = restore_offsets(start)
            self._commit_to_group(committed)
            begins, self._begins = self._begins, False
            if begins and self._target is not None:
                # The query's start was resolved after the target, so it may be after the target.
                self._target = self._target.extended_to(committed)
            logs = self._target or self._logs.ends(committed)
            self._last = logs.last
            if begins and starts_at_end(self._options.source):
                return start
            found = find_start(committed, logs)
            self._log_losses(found.losses)
            if not logs.last:
                # All topics were deleted, or a starting broker does not know them yet. Keep the offsets in the
                # checkpoint: otherwise the query would read the topics from their start when they appear again.
                return start
            if isinstance(limit, ReadAllAvailable):
                return store_offsets(logs.last)
            end = self._admission.end(found.offsets, logs.last, waits=self._target is None)
            return start if end is None else store_offsets(end)

    def reportLatestOffset(self) -> StoredOffsets | None:  # noqa: N802
        """Return the log end offsets at the planning of the last batch, for the query's progress report."""
        return None if self._last is None else store_offsets(self._last)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return the tasks of a batch."""
        with hide_traceback():
            committed, stop = restore_offsets(start), restore_offsets(end)
            self._begins = False
            if committed == stop:
                return []
            plan = plan_batch(committed, stop, self._logs.ends(stop), is_first=committed == self._initial)
            self._log_losses(plan.losses)
        return make_partitions(plan.ranges, self._options.source, self._cores)

    def commit(self, end: dict[str, Any]) -> None:
        """Commit the end of a completed batch to the group of `commitToGroup`."""
        with hide_traceback():
            self._commit_to_group(restore_offsets(end))

    def stop(self) -> None:
        """Close the connection."""
        self._logs.close()

    def _commit_to_group(self, offsets: Offsets) -> None:
        """Commit offsets to the group. They only make the lag visible, so a failure is logged and the query
        continues."""
        group = self._options.commit_group
        if group is None or offsets == self._reached:
            return
        try:
            self._logs.commit(group, offsets)
        except BarnabasError as error:
            if self._reached is None and is_permanent(error):
                raise ConfigurationError(f"commitToGroup={group!r} cannot be used: {error}") from error
            log.warning(
                "cannot commit the offsets of the query to group %r: %s; retrying with the next batch", group, error
            )
            return
        self._reached = dict(offsets)

    def _log_losses(self, losses: Sequence[str]) -> None:
        if not losses:
            return
        text = "; ".join(losses[:LOSSES_LOGGED_MAX])
        if len(losses) > LOSSES_LOGGED_MAX:
            text += f"; and {len(losses) - LOSSES_LOGGED_MAX} more"
        if self._options.source.fail_on_data_loss:
            raise DataLossError(f"{text}. Set failOnDataLoss to false to continue with the existing records")
        if text != self._logged_losses:  # log each message once, because Spark calls this several times per second
            log.warning("%s", text)
            self._logged_losses = text

    # --- on the executors -------------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of one task as Arrow batches of bounded size."""
        return read_partition(partition, self._options.source, self._columns)


LOSSES_LOGGED_MAX = 5
"""The maximum number of partitions in one log message about deleted records."""
