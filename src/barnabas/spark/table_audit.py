"""The audit of a table: its offsets of a topic, read as Arrow batches without Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from barnabas.audit.column_tallies import Numbers
from barnabas.audit.events import MonitoringEvent
from barnabas.audit.loaded_table import LoadedTable, accounts_of
from barnabas.audit.stored_log import NotAuditableError
from barnabas.audit.table_rows import TableRows
from barnabas.audit.watermark import AUDIT, AuditState
from barnabas.model import TopicPartition
from barnabas.spark.errors import WarehouseError
from barnabas.spark.table_formats import format_of, open_place
from barnabas.spark.table_place import TablePlace
from barnabas.spark.table_store import StoredTable, TableStore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_COLUMNS = ("partition", "offset", "timestamp", "raw_timestamp_ms")


class TableAudit:
    """One version of a table, for an audit. Make this object before you read the ends of the log.

    :param store: The opened table store; None opens it.
    :raises WarehouseError: The table does not exist.
    :raises HistoryExpiredError: The table has no record of the end of its last load.
    :raises NotAuditableError: The table was not loaded from the topic.
    """

    def __init__(
        self, place: TablePlace, name: str, topic: str, topic_id: str, store: TableStore | None = None
    ) -> None:
        self._place = place
        self._base = (open_place(place) if store is None else store).begin(name)
        if not self._base.exists:
            raise WarehouseError(f"table {name!r} does not exist: load a topic into it first")
        loaded = self._base.ledger().topics.get(topic)
        if loaded is None:
            raise NotAuditableError(
                f"table {self._base.name} was not loaded from topic {topic!r}; name the table (--table)"
            )
        if loaded.topic_id and topic_id and loaded.topic_id != topic_id:
            raise NotAuditableError(
                f"table {self._base.name} was loaded from an earlier topic {topic!r}, which was deleted and created "
                "again since"
            )
        self._topic = topic
        self.topic_id = topic_id or loaded.topic_id
        self._next_offsets = loaded.next_offsets
        self.state = state_of(self._base)

    @property
    def name(self) -> str:
        return self._base.name

    @property
    def is_state(self) -> bool:
        """True for a state table, whose rows are not those of the records."""
        shape = self._base.shape()
        return shape is not None and shape.upsert is not None

    @property
    def next_offsets(self) -> Mapping[int, int]:
        """The offset of each loaded partition where the next load starts."""
        return self._next_offsets

    def frame(self, spark: SparkSession, where: str | None) -> DataFrame:
        """Return the rows as a DataFrame.

        :param where: A filter that skips files (`read_table`).
        :raises WarehouseError: Iceberg's delete files remove rows of the table.
        """
        return format_of(self._place).frame(spark, self._base, where)

    def read(
        self,
        events: Iterable[MonitoringEvent],
        ranges: Mapping[TopicPartition, tuple[int, int]],
        width_ms: int,
        *,
        since_ms: int | None = None,
        on_progress: Callable[[int], object] = lambda _rows: None,
    ) -> LoadedTable:
        """Count the rows of the table by window, for the comparison with the log.

        :param events: The audit events of the topic.
        :param ranges: The begin and end offset of each partition of the log.
        :param width_ms: The width of a window, in milliseconds.
        :param since_ms: The start of the first window to count; None counts all.
        :param on_progress: Called with the number of rows of each batch.
        """
        begins = {where.partition: begin for where, (begin, _end) in ranges.items()}
        state = self.state
        rows = TableRows(
            begins,
            self._next_offsets,
            width_ms,
            None if state is None else state.complete_until_ms,
            is_state=self.is_state,
        )
        if self.is_state:
            return self._loaded_state(rows, events, width_ms, since_ms)
        for batch in format_of(self._place).scan(self._base, _COLUMNS, f"topic = '{self._topic}'"):
            _add(rows, batch, since_ms)
            on_progress(len(batch))
        if state is None:
            return LoadedTable(rows)
        accounts = accounts_of(events, state.audit_id, [state.load_id], width_ms)
        return LoadedTable(rows, accounts, is_whole=state.is_whole)

    def _loaded_state(
        self, rows: TableRows, events: Iterable[MonitoringEvent], width_ms: int, since_ms: int | None
    ) -> LoadedTable:
        """Return the loads of a state table. The audit uses the accounts of the loads instead of the table's rows."""
        if self.state is None:
            return LoadedTable(rows)
        accounts = accounts_of(events, self.state.audit_id, [self.state.load_id], width_ms)
        for window_ms, account in accounts.items():
            if since_ms is None or window_ms >= since_ms:
                rows.tallies[window_ms] = dict(account.offsets)
        return LoadedTable(rows, accounts, is_whole=self.state.is_whole)


def state_of(base: StoredTable) -> AuditState | None:
    """Return the audit state of a table; None if its last load published no audit events."""
    known = base.last_load.get(AUDIT)
    return None if known is None else AuditState.parse(known)


def _add(rows: TableRows, batch: pa.RecordBatch, since_ms: int | None) -> None:
    sent_ms = pc.divide(batch.column("timestamp").cast(pa.int64()), 1_000)
    columns = batch.column("partition"), batch.column("offset"), pc.coalesce(sent_ms, batch.column("raw_timestamp_ms"))
    # Rows added by other tools may have nulls. Such rows count for no partition, and have no timestamp.
    partitions, offsets, times_ms = (
        np.asarray(each.fill_null(-1).to_numpy(zero_copy_only=False), np.int64) for each in columns
    )
    for partition in np.unique(partitions).tolist():
        chosen = partitions == partition
        if since_ms is not None:
            chosen &= times_ms >= since_ms
        rows.add(partition, _chosen(offsets, chosen), _chosen(times_ms, chosen))


def _chosen(column: Numbers, chosen: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Numbers:
    return column[chosen]
