"""`df.write.format("barnabas")`: the sink that sends rows to topics, also of streaming queries (`stream_sink.py`).

Each task has an idempotent producer, and succeeds when all of its records are acknowledged. Spark repeats failed tasks,
and micro-batches that a crash interrupted. So the sink delivers at least once, as Spark's Kafka sink does.

Rows go to the producer as Arrow columns. Only records with headers become Python objects.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from barnabas.client.producer.producer import Producer
from barnabas.errors import ConfigurationError
from barnabas.spark.error_summaries import hide_traceback
from barnabas.spark.sink_options import SinkOptions

if TYPE_CHECKING:
    from barnabas.client.producer.delivery import Deliveries

OPEN_BATCHES_MAX = 64
"""The maximum number of Arrow batches without acknowledgement. With more, a task waits for the oldest batch."""


class Written(WriterCommitMessage):
    """The result of a task.

    :param records: The number of records that the task wrote.
    """

    def __init__(self, records: int) -> None:
        self.records = records


class BarnabasWriter(DataSourceArrowWriter):
    """The writer of a batch query, on the executors."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Send the rows of one task."""
        return write_rows(self._options, iterator)


def write_rows(options: SinkOptions, batches: Iterator[pa.RecordBatch]) -> Written:
    """Send rows, and wait until all are acknowledged.

    :raises ConfigurationError: A row has no topic, or a header has no name.
    :raises BarnabasError: A record was not acknowledged.
    """
    open_deliveries: deque[Deliveries] = deque()
    records = 0
    with hide_traceback(), Producer(options.bootstrap, **options.producer_settings) as producer:  # type: ignore[call-overload]
        for batch in batches:
            for part in split_by_partition(batch, options):
                open_deliveries.append(_send(producer, part, options))
            records += len(batch)
            while len(open_deliveries) > OPEN_BATCHES_MAX:
                open_deliveries.popleft().check()
        producer.flush()
        for each in open_deliveries:
            each.check()
    return Written(records)


class PartitionRows:
    """Rows of one batch for the same topic, and for the same partition if the rows have one."""

    __slots__ = ("partition", "rows", "topic")

    def __init__(self, topic: str, partition: int | None, rows: pa.RecordBatch) -> None:
        self.topic = topic
        self.partition = partition
        self.rows = rows


def split_by_partition(batch: pa.RecordBatch, options: SinkOptions) -> Iterator[PartitionRows]:
    """Yield the rows of a batch by topic and partition.

    :raises ConfigurationError: A row has no topic.
    """
    if not len(batch):
        return
    names = options.columns
    topic_column = names["topic"] if options.topic is None else None
    for topic, rows in _groups(batch, topic_column):
        if options.topic is None and topic is None:
            raise ConfigurationError("some rows have no topic: fill the column 'topic', or set the option 'topic'")
        for partition, part in _groups(rows, names.get("partition")):
            yield PartitionRows(options.topic or str(topic), partition, part)


def _groups(rows: pa.RecordBatch, column: str | None) -> Iterator[tuple[Any, pa.RecordBatch]]:
    """Yield the rows for each value of a column, in the order of first occurrence."""
    if column is None:
        yield None, rows
        return
    values = rows.column(column)
    distinct = pc.unique(values)
    for value in distinct:
        if len(distinct) == 1:
            yield value.as_py(), rows
        else:
            yield value.as_py(), rows.filter(pc.equal(values, value) if value.is_valid else pc.is_null(values))


def _send(producer: Producer, part: PartitionRows, options: SinkOptions) -> Deliveries:
    names, rows = options.columns, part.rows
    key, headers = names.get("key"), names.get("headers")
    if headers is None or not pc.any(pc.greater(pc.list_value_length(rows.column(headers)), 0)).as_py():
        return producer.send_arrow(part.topic, rows, value=names["value"], key=key, partition=part.partition)
    return producer.send_many(
        part.topic,
        _bytes(rows.column(names["value"])),
        keys=None if key is None else _bytes(rows.column(key)),
        partition=part.partition,
        headers=[_pairs(each) for each in rows.column(headers).to_pylist()],
    )


def _bytes(column: pa.Array) -> list[bytes | None]:
    return column.cast(pa.binary()).to_pylist()  # type: ignore[no-any-return]


def _pairs(headers: list[dict[str, object]] | None) -> list[tuple[str, bytes | None]]:
    pairs = [(header["key"], header["value"]) for header in headers or ()]
    if any(name is None for name, _ in pairs):
        raise ConfigurationError("a header has no name: fill 'key' in the column 'headers'")
    return pairs  # type: ignore[return-value]
