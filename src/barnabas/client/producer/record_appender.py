"""The first part of a producer: `send`, `send_many` and `send_arrow` append records to the accumulator.

The serializers run first, then the interceptors, then the partitioner. `Producer` and `AsyncProducer` share this
module. If memory is full, `Producer` blocks, and `AsyncProducer` awaits.

Partitions (`RecordPartitioner`). The partition is set in the record, chosen by the application's function, or derived
from the key: murmur2 modulo the partition count, exactly as in Kafka's Java client. A record without a key goes to the
sticky partition (KIP-480), which stays the same until a batch is full.

A `Run` is a sequence of records for one partition. `Run.advance` appends the records that fit into one batch. If memory
is full, it raises an error and leaves the run unchanged. The caller then blocks or awaits, and calls it again.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate
from typing import Any, NamedTuple, Protocol

from barnabas.client.interceptors import ProducerInterceptors, ProducerRecord, SendBatch, check_topic
from barnabas.client.producer.accumulator import Accumulator, TopicQueues
from barnabas.client.producer.delivery import Deliveries, Delivery
from barnabas.client.producer.serializers import Serializers
from barnabas.clock import Clock
from barnabas.errors import ConfigurationError
from barnabas.model import GivenHeaders, Headers
from barnabas.records import Appender, BinaryBuffers, OnDelivery, OpenEncoders, exact_bytes, group_rows, murmur2
from barnabas.records.arrow import ArrowRows, arrow_rows
from barnabas.records.codec_pure.appending import POSITIVE_MASK


def partition_for_key(key: bytes, partition_count: int) -> int:
    """Return the partition of `key` in a topic of `partition_count` partitions.

    >>> partition_for_key(b"member-42", 6)
    0
    """
    if type(key) is not bytes:
        if not isinstance(key, (bytes, bytearray, memoryview)):
            raise TypeError(f"key must be bytes or None, not {type(key).__name__}; encode it first")
        key = bytes(key)
    return (murmur2(key) & POSITIVE_MASK) % partition_count


Partitioner = Callable[[str, bytes | None, int], int]


class Run(Protocol):
    """Records to be appended to the accumulator."""

    def advance(self, accumulator: Accumulator) -> bool:
        """Append the records that fit into one batch; return True if no record is left.

        :raises BufferFullError: memory is full, and this call has appended nothing.
        :raises ApiError: MESSAGE_TOO_LARGE.
        """
        ...


class ValueRun:
    """Values, and optionally keys, with the same partition and timestamp."""

    def __init__(
        self,
        queues: TopicQueues,
        partition: int | None,
        timestamp_ms: int,
        values: Sequence[bytes | None],
        keys: Sequence[bytes | None] | None,
        deliveries: Deliveries,
    ) -> None:
        self._queues = queues
        self._partition = partition
        self._timestamp_ms = timestamp_ms
        self._values = _exact("value", values)
        self._keys = None if keys is None else _exact("key", keys)
        self._deliveries = deliveries
        self._done = 0

    def advance(self, accumulator: Accumulator) -> bool:
        if self._done < len(self._values):
            batch, first, count = accumulator.append_values(
                self._queues, self._partition, self._timestamp_ms, self._values, self._done, self._keys
            )
            self._deliveries.extend(batch, first, count)
            self._done += count
        return self._done >= len(self._values)


class RecordRun:
    """Records that have their own timestamp, headers or partition."""

    def __init__(
        self,
        queues: TopicQueues,
        partition_of: Callable[[int], int | None],
        timestamps_ms: Sequence[int] | int,
        values: Sequence[bytes | None],
        keys: Sequence[bytes | None] | None,
        headers: Sequence[Headers] | None,
        deliveries: Deliveries,
    ) -> None:
        self._queues = queues
        self._partition_of = partition_of
        self._timestamps_ms = timestamps_ms
        self._values = values
        self._keys = keys
        self._headers = headers
        self._deliveries = deliveries
        self._done = 0

    def advance(self, accumulator: Accumulator) -> bool:
        place = self._done
        if place < len(self._values):
            stamps = self._timestamps_ms
            batch, index = accumulator.append(
                self._queues,
                self._partition_of(place),
                stamps if isinstance(stamps, int) else stamps[place],
                None if self._keys is None else self._keys[place],
                self._values[place],
                () if self._headers is None else self._headers[place],
            )
            self._deliveries.extend(batch, index, 1)
            self._done += 1
        return self._done >= len(self._values)


class RowRun:
    """Rows of Arrow columns with the same partition. `order` contains the row numbers, or is None for all rows in
    order.
    """

    def __init__(
        self,
        queues: TopicQueues,
        partition: int | None,
        rows: ArrowRows,
        timestamp_ms: int,
        order: memoryview | None,
        span: range,
        deliveries: Deliveries,
    ) -> None:
        self._queues = queues
        self._partition = partition
        self._rows = rows
        self._stamps = timestamp_ms if rows.timestamps_ms is None else rows.timestamps_ms
        self._order = order
        self._left = span
        self._deliveries = deliveries

    def advance(self, accumulator: Accumulator) -> bool:
        left, rows = self._left, self._rows
        if left:
            first = left.start if self._order is None else self._order[left.start]
            first_size = value_size(rows.values, first) + (0 if rows.keys is None else value_size(rows.keys, first))
            batch, first_index, count = accumulator.append_rows(
                self._queues,
                self._partition,
                self._stamps,
                rows.values,
                rows.keys,
                self._order,
                left.start,
                left.stop,
                first_size,
            )
            self._deliveries.extend(batch, first_index, count)
            self._left = left[count:]
        return not self._left


def _exact(name: str, given: Sequence[bytes | None]) -> list[bytes | None]:
    """Return keys or values as a list of bytes and None.

    :raises TypeError: an element is neither bytes nor None.
    """
    try:
        return exact_bytes(given)
    except TypeError:
        kinds = (type(each) for each in given if not isinstance(each, (bytes, bytearray, memoryview, type(None))))
        kind = next(kinds, type(given)).__name__
        raise TypeError(f"{name} must be bytes or None, not {kind}; encode it first") from None


def value_size(column: BinaryBuffers, row: int) -> int:
    """Return the number of bytes of a value in an Arrow column.

    >>> value_size(BinaryBuffers(2, array("i", [0, 3, 8]), b"onethree", None, 0), 1)
    5
    """
    offsets = memoryview(column.offsets).cast("B").cast("q" if column.is_wide else "i")
    place = column.start + row
    return max(0, offsets[place + 1] - offsets[place]) if place + 1 < len(offsets) else 0


def check_lengths(values: Sequence[object], keys: object, timestamps_ms: object, headers: object) -> None:
    """Check that there is a key, a timestamp and headers for each value, if they are given as sequences.

    :raises ValueError: the number of keys, timestamps or headers differs from the number of values.
    """
    for name, given in (("keys", keys), ("timestamps_ms", timestamps_ms), ("headers", headers)):
        if given is not None and isinstance(given, Sequence) and len(given) != len(values):
            raise ValueError(f"{len(given)} {name} for {len(values)} values; the numbers must be equal")


class RecordPartitioner:
    """Chooses the partition of a record: the partition set in the record, the result of the application's function, the
    partition of the key, or the sticky partition.

    :param partitioner: a function of topic, key and partition count that returns the partition. None selects Kafka's
        partitioner.
    """

    def __init__(self, partitioner: Partitioner | None) -> None:
        self._partitioner = partitioner

    def partition(self, queues: TopicQueues, key: bytes | None, given: int | None) -> int | None:
        """Return the partition of a record, or None for the sticky partition.

        :raises ConfigurationError: the partition does not exist.
        """
        count = len(queues.queues)
        if given is None:
            if self._partitioner is None:
                return None if key is None else partition_for_key(key, count)
            given = self._partitioner(queues.topic, key, count)
        if not 0 <= given < count:
            raise ConfigurationError(
                f"topic {queues.topic!r} has partitions 0 to {count - 1}, but no partition {given}"
            )
        return given

    def runs_of_values(
        self,
        queues: TopicQueues,
        values: Sequence[bytes | None],
        keys: Sequence[bytes | None] | None,
        partition: list[int | None] | int | None,
        timestamps_ms: Sequence[int] | int,
        headers: Sequence[Headers] | None,
        deliveries: Deliveries,
    ) -> Iterator[Run]:
        """Yield the runs of a `send_many` call.

        :param partition: one partition for all values, or one for each.
        """
        if headers is not None or not isinstance(timestamps_ms, int) or isinstance(partition, list):

            def partition_of(place: int) -> int | None:
                given = partition[place] if isinstance(partition, list) else partition
                return self.partition(queues, None if keys is None else keys[place], given)

            yield RecordRun(queues, partition_of, timestamps_ms, values, keys, headers, deliveries)
        elif partition is not None or (keys is None and self._partitioner is None):
            chosen = self.partition(queues, None, partition)
            yield ValueRun(queues, chosen, timestamps_ms, values, keys, deliveries)
        else:
            yield from self._grouped_values(queues, values, keys, timestamps_ms, deliveries)

    def _grouped_values(
        self,
        queues: TopicQueues,
        values: Sequence[bytes | None],
        keys: Sequence[bytes | None] | None,
        timestamp_ms: int,
        deliveries: Deliveries,
    ) -> Iterator[Run]:
        groups: dict[int | None, list[int]] = {}
        for place in range(len(values)):
            chosen = self.partition(queues, None if keys is None else keys[place], None)
            groups.setdefault(chosen, []).append(place)
        deliveries.shuffled(0, [place for group in groups.values() for place in group])
        for chosen, group in groups.items():
            group_keys = None if keys is None else [keys[place] for place in group]
            yield ValueRun(queues, chosen, timestamp_ms, [values[place] for place in group], group_keys, deliveries)

    def runs_of_rows(
        self,
        queues: TopicQueues,
        rows: ArrowRows,
        partition: int | None,
        timestamp_ms: int,
        deliveries: Deliveries,
    ) -> Iterator[Run]:
        """Yield the runs of a part of a `send_arrow` call.

        :param timestamp_ms: the timestamp of rows without a timestamp, in ms since the epoch.
        """
        length = rows.values.length
        if partition is not None or (rows.keys is None and self._partitioner is None):
            chosen = self.partition(queues, None, partition)
            yield RowRun(queues, chosen, rows, timestamp_ms, None, range(length), deliveries)
            return
        order, counts = self._grouped_rows(queues, rows)
        deliveries.shuffled(len(deliveries), order)
        ends = list(accumulate(counts.values()))
        for (chosen, count), end in zip(counts.items(), ends, strict=True):
            yield RowRun(queues, chosen, rows, timestamp_ms, order, range(end - count, end), deliveries)

    def _grouped_rows(self, queues: TopicQueues, rows: ArrowRows) -> tuple[memoryview, dict[int | None, int]]:
        """Return the row numbers sorted by partition, and the number of rows of each partition."""
        partition_count = len(queues.queues)
        if self._partitioner is None:
            assert rows.keys is not None
            order, counts = group_rows(rows.keys, partition_count)
            choices: list[int | None] = [*range(partition_count), None]
            return memoryview(order).cast("B").cast("q"), dict(zip(choices, counts, strict=True))
        groups: dict[int | None, list[int]] = {}
        for row in range(rows.values.length):
            key = None if rows.keys is None else rows.key(row)
            groups.setdefault(self.partition(queues, key, None), []).append(row)
        places = array("q", [row for group in groups.values() for row in group])
        return memoryview(places), {chosen: len(group) for chosen, group in groups.items()}


TIMESTAMP_MS_MAX = 2**63 - 1

Check = Callable[[ProducerRecord], None]
"""A function that raises an error for a record that cannot be sent."""


class BatchSend(NamedTuple):
    """A `send_many` or `send_arrow` call in progress.

    :ivar deliveries: the deliveries of the appended records.
    :ivar refuse: called with the exception if the call fails before all `runs` are appended. It passes the remaining
        records to the interceptors.
    """

    deliveries: Deliveries
    runs: Iterator[Run]
    refuse: Callable[[BaseException], None]


def _ignore_refusal(_error: BaseException) -> None:
    """Do nothing; used if there is no interceptor."""


class RecordAppender:
    """Appends records to the accumulator.

    :param open_encoders: the dict in which the compiled `send` finds the open batch of a topic.
    :param queues_of: returns the queues of a topic; waits for the metadata of a new topic.
    """

    def __init__(
        self,
        accumulator: Accumulator,
        routing: RecordPartitioner,
        open_encoders: dict[str, OpenEncoders],
        queues_of: Callable[[str], TopicQueues],
        clock: Clock,
        serializers: Serializers,
        interceptors: ProducerInterceptors | None = None,
    ) -> None:
        self._accumulator = accumulator
        self._partitioner = routing
        self._queues_of = queues_of
        self._open_encoders = open_encoders
        self._clock = clock
        self.serializers = serializers
        self._interceptors = interceptors or ProducerInterceptors()

    def appender(self) -> Appender:
        """Return the object with the compiled `send`, which appends common records and passes all others to `append`.

        `RecordAppender` keeps no reference to this object, so that the garbage collector can free a producer whose
        `send` nobody refers to.
        """
        return Appender(self._open_encoders, self.append, self._clock.time_s)

    def append(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int | None,
        timestamp_ms: int | None,
        headers: GivenHeaders,
    ) -> Delivery:
        """Append one record that the compiled `send` does not handle."""
        queues = self._queues_of(topic)
        if timestamp_ms is None:
            timestamp_ms = self._clock.time_ms()
        chosen = self._partitioner.partition(queues, key, partition)
        pairs = as_pairs(headers) if headers else ()
        batch, index = self._accumulator.append(queues, chosen, timestamp_ms, key, value, pairs)
        return Delivery(batch, index, timestamp_ms)

    @property
    def intercepts_send(self) -> bool:
        """Return whether `send` must call `intercept`, and then `refused` if it raises an error."""
        return self._interceptors.see_send

    def intercept(
        self,
        queues: TopicQueues,
        value: bytes | None,
        key: bytes | None,
        partition: int | None,
        timestamp_ms: int | None,
        headers: GivenHeaders,
    ) -> ProducerRecord:
        """Return the record after all interceptors."""
        given = ProducerRecord(queues.topic, value, key, partition, timestamp_ms, as_pairs(headers))
        return self._interceptors.on_send(given, self._check_for(queues))

    def refused(self, record: ProducerRecord, error: BaseException) -> None:
        """Report a record to the interceptors that `send` has refused after `intercept`."""
        self._interceptors.refused([record], error)

    def intercepted(self, send: Callable[..., Delivery]) -> Callable[..., Delivery]:
        """Wrap `send` to call interceptors first. Return `send` itself if no interceptor overrides `on_send`."""
        if not self.intercepts_send:
            return send

        def send_intercepted(
            topic: str,
            value: bytes | None = None,
            key: bytes | None = None,
            *,
            partition: int | None = None,
            timestamp_ms: int | None = None,
            headers: GivenHeaders = (),
            on_delivery: OnDelivery | None = None,
        ) -> Delivery:
            record = self.intercept(self._queues_of(topic), value, key, partition, timestamp_ms, headers)
            try:
                return send(
                    topic,
                    record.value,
                    record.key,
                    partition=record.partition,
                    timestamp_ms=record.timestamp_ms,
                    headers=record.headers,
                    on_delivery=on_delivery,
                )
            except Exception as error:
                self.refused(record, error)
                raise

        return send_intercepted

    def runs_of_values(
        self,
        queues: TopicQueues,
        values: Sequence[Any],
        keys: Sequence[Any] | None,
        partition: int | None,
        timestamps_ms: Sequence[int] | int | None,
        headers: Sequence[GivenHeaders] | None,
    ) -> BatchSend:
        """Return the runs of a `send_many` call, and the deliveries object that receives their records.

        :raises ValueError: the number of keys, timestamps or headers differs from the number of values.
        """
        values = self.serializers.values(queues.topic, values)
        keys = self.serializers.keys(queues.topic, keys)
        stamps = self._clock.time_ms() if timestamps_ms is None else timestamps_ms
        pairs = None if headers is None else [as_pairs(each) for each in headers]
        check_lengths(values, keys, stamps, pairs)
        return self._batch_send(queues, Values(values, keys, partition, stamps, pairs))

    def runs_of_rows(
        self,
        queues: TopicQueues,
        batch: Any,
        value: str | None,
        key: str | None,
        timestamp: str | None,
        partition: int | None,
    ) -> BatchSend:
        """Return the runs of a `send_arrow` call, and the deliveries object that receives their records."""
        parts = arrow_rows(batch, value=value, key=key, timestamp=timestamp)
        return self._batch_send(queues, Rows(parts, partition, self._clock.time_ms()))

    def append_all(self, batch_send: BatchSend) -> Deliveries:
        """Append all records of a `send_many` or `send_arrow` call, and wait while memory is full."""
        try:
            for run in batch_send.runs:
                while not run.advance(self._accumulator):
                    pass
        except Exception as error:
            batch_send.refuse(error)
            raise
        return batch_send.deliveries

    def _batch_send(self, queues: TopicQueues, content: Values | Rows) -> BatchSend:
        if not self._interceptors.see_batches:
            return BatchSend(*self._runs_of(queues, content), _ignore_refusal)
        check = self._check_for(queues)
        given = GivenBatch(queues.topic, content, check)
        content = self._interceptors.on_send_batch(given, check, GivenBatch.remade).content
        deliveries, runs = self._runs_of(queues, content)
        return BatchSend(deliveries, runs, partial(self._refuse_rest, queues.topic, content, deliveries))

    def _refuse_rest(self, topic: str, content: Values | Rows, deliveries: Deliveries, error: BaseException) -> None:
        """Report the records of a failed call that are in no batch to the interceptors."""
        records = list(content.records(topic))
        self._interceptors.refused([records[place] for place in deliveries.without_delivery(len(records))], error)

    def _runs_of(self, queues: TopicQueues, content: Values | Rows) -> tuple[Deliveries, Iterator[Run]]:
        if isinstance(content, Values):
            deliveries = Deliveries(content.timestamps_ms)
            return deliveries, self._partitioner.runs_of_values(queues, *content, deliveries)
        parts, partition, now_ms = content
        has_times = any(part.timestamps_ms is not None for part in parts)
        stamps = array("q", b"".join(part.timestamps_ms for part in parts if part.timestamps_ms is not None))
        deliveries = Deliveries(stamps if has_times else now_ms)
        runs = (
            run for part in parts for run in self._partitioner.runs_of_rows(queues, part, partition, now_ms, deliveries)
        )
        return deliveries, runs

    def _check_for(self, queues: TopicQueues) -> Check:
        """Return a function that checks whether a record from an interceptor can be sent to the topic."""

        def check(record: ProducerRecord) -> None:
            check_topic(record, queues.topic)
            self._accumulator.check_record(queues.topic, record.key, record.value, record.headers)
            if record.partition is not None:
                self._partitioner.partition(queues, None, record.partition)
            stamp = record.timestamp_ms
            if stamp is not None and not (isinstance(stamp, int) and abs(stamp) <= TIMESTAMP_MS_MAX):
                raise TypeError(f"timestamp_ms must be an int of 64 bits, not {stamp!r}")

        return check


class Values(NamedTuple):
    """The records of a call as lists. Partition and timestamp are one value for all records, or a list."""

    values: Sequence[bytes | None]
    keys: Sequence[bytes | None] | None
    partition: list[int | None] | int | None
    timestamps_ms: Sequence[int] | int
    headers: Sequence[Headers] | None

    def records(self, topic: str) -> Iterator[ProducerRecord]:
        partition, stamps = self.partition, self.timestamps_ms
        for place, value in enumerate(self.values):
            yield ProducerRecord(
                topic,
                value,
                None if self.keys is None else self.keys[place],
                partition[place] if isinstance(partition, list) else partition,
                stamps if isinstance(stamps, int) else stamps[place],
                () if self.headers is None else self.headers[place],
            )


class Rows(NamedTuple):
    """The records of a call as rows of Arrow columns. `now_ms` is the timestamp of rows without a timestamp."""

    parts: Sequence[ArrowRows]
    partition: int | None
    now_ms: int

    def records(self, topic: str) -> Iterator[ProducerRecord]:
        for part in self.parts:
            for value, key, stamp in part.rows():
                yield ProducerRecord(topic, value, key, self.partition, self.now_ms if stamp is None else stamp)


class GivenBatch(SendBatch):
    """The records of a `send_many` or `send_arrow` call, before or after changes by interceptors."""

    def __init__(self, topic: str, content: Values | Rows, check: Check) -> None:
        self.topic = topic
        self.content = content
        self._check = check

    def __len__(self) -> int:
        if isinstance(self.content, Values):
            return len(self.content.values)
        return sum(part.values.length for part in self.content.parts)

    def records(self) -> list[ProducerRecord]:
        return list(self.content.records(self.topic))

    def with_records(self, records: Sequence[ProducerRecord]) -> GivenBatch:
        if len(records) != len(self):
            raise ValueError(f"{len(records)} records in place of {len(self)}; the numbers must be equal")
        for record in records:
            self._check(record)
        return self.remade(records)

    def remade(self, records: Sequence[ProducerRecord]) -> GivenBatch:
        """Return a batch that sends these records, without checking them."""
        default_ms = self.content.timestamps_ms if isinstance(self.content, Values) else self.content.now_ms
        stamps = [default_ms] * len(records) if isinstance(default_ms, int) else default_ms
        values = Values(
            [record.value for record in records],
            [record.key for record in records],
            [record.partition for record in records],
            [
                stamp if record.timestamp_ms is None else record.timestamp_ms
                for record, stamp in zip(records, stamps, strict=True)
            ],
            [record.headers for record in records],
        )
        return GivenBatch(self.topic, values, self._check)


def as_pairs(headers: GivenHeaders) -> Headers:
    """Return headers as (name, value) pairs. Some other clients accept a dict.

    >>> as_pairs({"trace": b"7"})
    [('trace', b'7')]
    """
    return list(headers.items()) if isinstance(headers, Mapping) else headers
