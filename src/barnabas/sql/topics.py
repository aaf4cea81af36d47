"""The topics of a cluster for queries: their names, their columns, and their records as rows.

Records are fetched from the brokers partition by partition, one fetch response at a time. So a query can read a topic
that is larger than the memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self

import pyarrow as pa
import pyarrow.dataset as ds

from barnabas.client.admin import Admin
from barnabas.client.admin.topics import check_visible
from barnabas.client.config import Bootstrap
from barnabas.client.range_reader import RangeReader
from barnabas.errors import ApiError, ErrorCode
from barnabas.model import TopicPartition
from barnabas.records.arrow import ArrowReader
from barnabas.sql.errors import UnknownTopicError
from barnabas.sql.predicate_pushdown import ReadBounds, referenced_columns, restrict
from barnabas.sql.record_columns import HEADERS, RecordRows
from barnabas.sql.sampling import ValueOptions, columns_of_values, sampled_ranges

FETCH_BYTES = 1024 * 1024
"""The maximum size of a fetch response in bytes. It is small, so that the first rows arrive early and a LIMIT reads few
additional records.
"""
SAMPLE_BYTES = 256 * 1024
NOWHERE = 2**63 - 1


@dataclass(frozen=True, slots=True)
class TopicTable:
    """A topic as a table."""

    name: str
    rows: RecordRows

    @property
    def schema(self) -> pa.Schema:
        """The columns of the topic."""
        return self.rows.schema


def find_topic(name: str, known: Sequence[str]) -> str:
    """Return the topic with this name, else the only topic whose name differs just in case.

    :raises UnknownTopicError: No topic matches, or the names of several topics differ only in case.

    >>> find_topic("CLICKS", ["clicks", "views"]), find_topic("clicks", ["clicks", "Clicks"])
    ('clicks', 'clicks')
    """
    same = [topic for topic in known if topic.lower() == name.lower()]
    topic = name if name in same else same[0] if len(same) == 1 else None
    if topic is None:
        raise UnknownTopicError(name, same or known)
    return topic


class Topics:
    """The topics of a cluster. Thread-safe.

    :param bootstrap: The addresses of the brokers, `"host:port,..."`, or a dict of client settings.
    :param options: The interpretation of values.
    """

    def __init__(self, bootstrap: Bootstrap, options: ValueOptions) -> None:
        self.settings: Mapping[str, Any] = (
            bootstrap if isinstance(bootstrap, Mapping) else {"bootstrap.servers": bootstrap}
        )
        """The client settings for the brokers."""
        self._options = options
        self._tables: dict[str, TopicTable] = {}
        self._admin = Admin(self.settings)
        self._readers: set[RangeReader] = set()

    def names(self) -> list[str]:
        """Return the names of all topics, including internal ones, sorted."""
        return self._admin.list_topics(include_internal=True)

    def get(self, name: str) -> TopicTable:
        """Return a topic as a table. Its columns are inferred from a sample at the first call.

        :param name: The name in the statement. Case matters if several topics differ only in case.
        :raises UnknownTopicError: The topic does not exist.
        :raises ApiError: The client may not describe the topic.
        :raises BarnabasError: A broker or the schema registry does not answer.
        """
        try:
            topic = find_topic(name, self.names())
        except UnknownTopicError:
            check_visible(self._admin, [name])
            raise
        return self._tables.get(topic) or self.refresh(topic)

    def refresh(self, name: str) -> TopicTable:
        """Return a topic as a table, with columns inferred from its current records."""
        values = self._some_values(name)
        self._tables[name] = TopicTable(name, RecordRows(columns_of_values(values, self._options)))
        return self._tables[name]

    def _some_values(self, name: str) -> pa.Array:
        parts: list[pa.Array] = []
        for tp, start, end in sampled_ranges(self._ranges(name)):
            parts += [records.column("value") for records in self._stored(tp, ReadBounds(start, end), SAMPLE_BYTES)]
        return pa.concat_arrays(parts) if parts else pa.array([], pa.binary())

    def read(
        self, table: TopicTable, columns: Sequence[str], condition: ds.Expression | None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the requested columns of the rows that match a filter, up to the current end of the topic.

        :param condition: A filter on any columns of the table; None for all rows.
        """
        needed = [*columns, *(name for name in referenced_columns(condition, table.schema) if name not in columns)]
        for tp, wanted in self.ranges(table, condition).items():
            for records in self._stored(tp, wanted, FETCH_BYTES, include_headers=HEADERS in needed):
                rows = table.rows.make(records, needed)
                if condition is not None:
                    rows = rows.filter(condition)
                if rows.num_rows:
                    yield rows.select(list(columns))

    def ranges(self, table: TopicTable, condition: ds.Expression | None) -> dict[TopicPartition, ReadBounds]:
        """Return the bounds to read in each partition that may have matching rows."""
        wanted = {
            tp: restrict(condition, table.schema, *tp, ReadBounds(*ends))
            for tp, ends in self._ranges(table.name).items()
        }
        times = {
            (tp.topic, tp.partition): each.timestamp_ms_min
            for tp, each in wanted.items()
            if each.count and each.timestamp_ms_min is not None
        }
        found = self._admin.offsets_for_times(times) if times else {}
        starts = {tp: NOWHERE if first is None else first.offset for tp, first in found.items()}
        from_time = {
            tp: ReadBounds(max(each.start_offset, starts.get(tp, 0)), each.end_offset) for tp, each in wanted.items()
        }
        return {tp: each for tp, each in from_time.items() if each.count}

    def _ranges(self, name: str) -> Mapping[TopicPartition, tuple[int, int]]:
        (found,) = self._admin.describe_topics([name])
        partitions = [TopicPartition(name, each.partition) for each in found.partitions]
        first, end = self._admin.beginning_offsets(partitions), self._admin.end_offsets(partitions)
        return {tp: (first[tp], end[tp]) for tp in partitions}

    def _stored(
        self, tp: TopicPartition, wanted: ReadBounds, fetch_bytes: int, *, include_headers: bool = False
    ) -> Iterator[pa.RecordBatch]:
        """Yield the records of a partition. Records that are deleted during the read are skipped."""
        columns = ArrowReader(include_headers=include_headers)
        start_offset = wanted.start_offset
        while start_offset < wanted.end_offset:
            try:
                with self._reading(tp, start_offset, wanted.end_offset, fetch_bytes) as reader:
                    for buffer in reader:
                        start_offset = columns.read(buffer, *tp, min_offset=start_offset, max_offset=wanted.end_offset)
                        yield columns.finish()
                    start_offset = wanted.end_offset
            except ApiError as error:
                if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                    raise
                first = self._admin.beginning_offsets([tp])[tp]
                if first <= start_offset:
                    raise
                start_offset = first

    @contextmanager
    def _reading(self, tp: TopicPartition, start: int, end: int, fetch_bytes: int) -> Iterator[RangeReader]:
        with RangeReader(self.settings, tp.topic, tp.partition, start, end, fetch_max_bytes=fetch_bytes) as reader:
            self._readers.add(reader)
            try:
                yield reader
            finally:
                self._readers.discard(reader)

    def stop_reading(self) -> None:
        """Stop all reads, even if a broker does not answer. The reads raise ClosedError."""
        for reader in list(self._readers):
            reader.close()

    def close(self) -> None:
        """Stop all reads, and close the connections."""
        self.stop_reading()
        self._admin.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
