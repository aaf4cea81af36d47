"""Looks at the rows of a table for the audit: which offsets of a topic it has, on Arrow, without Spark."""

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
    """The table's side of an audit, as the table is when this is made; which must be before the log's ends are asked.

    :param store: the opened place, for several audits one after the other; None: it is opened here.
    :raises WarehouseError: there is no such table.
    :raises HistoryExpiredError: nothing that is left says how far it is loaded.
    :raises NotAuditableError: the topic is not in it.
    """

    def __init__(
        self, place: TablePlace, name: str, topic: str, topic_id: str, store: TableStore | None = None
    ) -> None:
        self._place = place
        self._base = (open_place(place) if store is None else store).begin(name)
        if not self._base.exists:
            raise WarehouseError(f"there is no table {name!r}: load a topic into it first")
        loaded = self._base.ledger().topics.get(topic)
        if loaded is None:
            raise NotAuditableError(f"table {self._base.name} was not loaded from topic {topic!r}: say which (--table)")
        if loaded.topic_id and topic_id and loaded.topic_id != topic_id:
            raise NotAuditableError(
                f"table {self._base.name} was loaded from another topic that was called {topic!r}: it was deleted and "
                "created again since"
            )
        self._topic = topic
        self.topic_id = topic_id or loaded.topic_id
        self._next_offsets = loaded.next_offsets
        self.state = state_of(self._base)

    @property
    def name(self) -> str:
        return self._base.name

    @property
    def next_offsets(self) -> Mapping[int, int]:
        """Of the topic's partitions that were loaded, where the next load goes on."""
        return self._next_offsets

    def frame(self, spark: SparkSession, where: str | None) -> DataFrame:
        """Return the rows as a DataFrame.

        :param where: a filter that leaves out files (`read_table`).
        :raises WarehouseError: rows of it were deleted in Iceberg's way.
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
        """Return what the table holds, to be compared with the log while that is read.

        :param events: of the topic.
        :param ranges: where the log's partitions begin and end.
        :param since_ms: leave out earlier windows; it is the beginning of one.
        :param on_progress: called with how many more rows were looked at.
        """
        begins = {where.partition: begin for where, (begin, _end) in ranges.items()}
        state = self.state
        rows = TableRows(begins, self._next_offsets, width_ms, None if state is None else state.complete_until_ms)
        for batch in format_of(self._place).scan(self._base, _COLUMNS, f"topic = '{self._topic}'"):
            _add(rows, batch, since_ms)
            on_progress(len(batch))
        if state is None:
            return LoadedTable(rows)
        accounts = accounts_of(events, state.audit_id, [state.load_id], width_ms)
        return LoadedTable(rows, accounts, is_whole=state.is_whole)


def state_of(base: StoredTable) -> AuditState | None:
    """Return the state of a table's audit; None where its last load took no part in it."""
    known = base.last_load.get(AUDIT)
    return None if known is None else AuditState.parse(known)


def _add(rows: TableRows, batch: pa.RecordBatch, since_ms: int | None) -> None:
    sent_ms = pc.divide(batch.column("timestamp").cast(pa.int64()), 1_000)
    columns = batch.column("partition"), batch.column("offset"), pc.coalesce(sent_ms, batch.column("raw_timestamp_ms"))
    # Rows that somebody has added by hand may have none of them: those are of no log, and without a timestamp.
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
