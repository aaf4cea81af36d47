"""`df.write.format("barnabas")` and `df.writeStream.format("barnabas")`: records into topics.

Each task has an idempotent producer of its own and is done when all of its records are acknowledged. Spark runs a task
again that failed, and a batch of a stream that a crash interrupted; so a record is written at least once, as with
Spark's Kafka sink.

Columns go to the producer as Arrow. Only records with headers become Python objects.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from barnabas.client.producer.producer import Producer
from barnabas.errors import ConfigurationError
from barnabas.spark.error_summaries import hide_traceback
from barnabas.spark.sink_options import SinkOptions

if TYPE_CHECKING:
    from barnabas.client.producer.delivery import Deliveries

OPEN_BATCHES_MAX = 64
"""Arrow batches of which the outcome may be open; a task then waits for the oldest one."""


class Written(WriterCommitMessage):
    """What a task did.

    :param records: how many it wrote.
    """

    def __init__(self, records: int) -> None:
        self.records = records


class BarnabasWriter(DataSourceArrowWriter):
    """Writes the rows of a batch query, on the executors."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Write the rows of one task."""
        return write_rows(self._options, iterator)


class BarnabasStreamWriter(DataSourceStreamArrowWriter):
    """Writes the rows of one batch of a stream, on the executors."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Write the rows of one task."""
        return write_rows(self._options, iterator)


def write_rows(options: SinkOptions, batches: Iterator[pa.RecordBatch]) -> Written:
    """Write rows and wait until all are acknowledged.

    :raises ConfigurationError: a row has no topic, or a header no name.
    :raises BarnabasError: why the first record that was not written was not.
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
    """Rows of one batch, in their order, that go to the same topic and, where it is given, partition."""

    __slots__ = ("partition", "rows", "topic")

    def __init__(self, topic: str, partition: int | None, rows: pa.RecordBatch) -> None:
        self.topic = topic
        self.partition = partition
        self.rows = rows


def split_by_partition(batch: pa.RecordBatch, options: SinkOptions) -> Iterator[PartitionRows]:
    """Yield the rows of a batch for each topic and partition that they name.

    :raises ConfigurationError: a row has no topic.
    """
    if not len(batch):
        return
    names = options.columns
    topic_column = names["topic"] if options.topic is None else None
    for topic, rows in _groups(batch, topic_column):
        if options.topic is None and topic is None:
            raise ConfigurationError(
                "there are rows without a topic: fill the column 'topic', or give the option 'topic'"
            )
        for partition, part in _groups(rows, names.get("partition")):
            yield PartitionRows(options.topic or str(topic), partition, part)


def _groups(rows: pa.RecordBatch, column: str | None) -> Iterator[tuple[Any, pa.RecordBatch]]:
    """Yield the rows for each value of a column, in the order in which the values appear."""
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
        raise ConfigurationError("there is a header without a name: fill 'key' in the column 'headers'")
    return pairs  # type: ignore[return-value]
