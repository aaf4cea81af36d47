"""Where records enter a producer: what `send`, `send_many` and `send_arrow` are given becomes appends.

`Producer` and `AsyncProducer` do this alike, but for waiting: the former blocks, the latter awaits. Serialisers come
first, then interceptors, then the choice of partitions.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from barnabas.client.interceptors import ProducerInterceptors, ProducerRecord, SendBatch, check_topic
from barnabas.client.producer.accumulator import Accumulator, TopicQueues
from barnabas.client.producer.delivery import Deliveries, Delivery
from barnabas.client.producer.routing import RecordPartitioner, Run, check_lengths
from barnabas.client.producer.serializing import Serializers
from barnabas.clock import Clock
from barnabas.model import GivenHeaders, Headers
from barnabas.records import Appender, OnDelivery, OpenEncoders
from barnabas.records.arrow import ArrowRows, arrow_rows

TIMESTAMP_MS_MAX = 2**63 - 1

Check = Callable[[ProducerRecord], None]
"""Raises where a record cannot be sent."""


class RecordAppender:
    """Leads records into the accumulator.

    :param open_encoders: where the compiled `send` looks for the open batch of a topic.
    :param queues_of: returns the queues of a topic; waits where it is not known yet.
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
        """Return what has the compiled `send`: it deals with the usual record itself, and hands all others to `append`.

        It is not kept here: who holds it, or its `send`, may send, and when nobody does the producer was dropped.
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
        """Append one record of any kind."""
        queues = self._queues_of(topic)
        if timestamp_ms is None:
            timestamp_ms = self._clock.time_ms()
        chosen = self._partitioner.partition(queues, key, partition)
        pairs = as_pairs(headers) if headers else ()
        batch, index = self._accumulator.append(queues, chosen, timestamp_ms, key, value, pairs)
        return Delivery(batch, index, timestamp_ms)

    @property
    def intercepts_send(self) -> bool:
        """Whether records of `send` have to pass `intercept`."""
        return self._interceptors.intercepts_send

    def intercept(
        self,
        queues: TopicQueues,
        value: bytes | None,
        key: bytes | None,
        partition: int | None,
        timestamp_ms: int | None,
        headers: GivenHeaders,
    ) -> ProducerRecord:
        """Let interceptors see and replace a record."""
        given = ProducerRecord(queues.topic, value, key, partition, timestamp_ms, as_pairs(headers))
        return self._interceptors.on_send(given, self._check_for(queues))

    def intercepted(self, send: Callable[..., Delivery]) -> Callable[..., Delivery]:
        """Return a `send` that calls interceptors first; `send` itself where none wants that."""
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
            return send(
                topic,
                record.value,
                record.key,
                partition=record.partition,
                timestamp_ms=record.timestamp_ms,
                headers=record.headers,
                on_delivery=on_delivery,
            )

        return send_intercepted

    def runs_of_values(
        self,
        queues: TopicQueues,
        values: Sequence[Any],
        keys: Sequence[Any] | None,
        partition: int | None,
        timestamps_ms: Sequence[int] | int | None,
        headers: Sequence[GivenHeaders] | None,
    ) -> tuple[Deliveries, Iterator[Run]]:
        """Return the runs that a `send_many` is made of, and the outcomes that they fill in.

        :raises ValueError: keys, timestamps or headers are not as many as values.
        """
        values = self.serializers.values(queues.topic, values)
        keys = self.serializers.keys(queues.topic, keys)
        stamps = self._clock.time_ms() if timestamps_ms is None else timestamps_ms
        pairs = None if headers is None else [as_pairs(each) for each in headers]
        check_lengths(values, keys, stamps, pairs)
        if self._interceptors.intercepts_batches:
            return self._runs_of(queues, self._intercepted(queues, Values(values, keys, partition, stamps, pairs)))
        deliveries = Deliveries(stamps)
        return deliveries, self._partitioner.runs_of_values(queues, values, keys, partition, stamps, pairs, deliveries)

    def runs_of_rows(
        self,
        queues: TopicQueues,
        batch: Any,
        value: str | None,
        key: str | None,
        timestamp: str | None,
        partition: int | None,
    ) -> tuple[Deliveries, Iterator[Run]]:
        """Return the runs that a `send_arrow` is made of, and the outcomes that they fill in."""
        parts = arrow_rows(batch, value=value, key=key, timestamp=timestamp)
        rows = Rows(parts, partition, self._clock.time_ms())
        return self._runs_of(queues, self._intercepted(queues, rows) if self._interceptors.intercepts_batches else rows)

    def _intercepted(self, queues: TopicQueues, content: Values | Rows) -> Values | Rows:
        """Let interceptors see and replace the records of a call."""
        check = self._check_for(queues)
        return self._interceptors.on_send_batch(GivenBatch(queues.topic, content, check), check).content

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
        """Return what checks records of interceptors before they are sent to a topic."""

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
    """Records as lists; a partition or timestamp is one for all, or one for each."""

    values: Sequence[bytes | None]
    keys: Sequence[bytes | None] | None
    partition: list[int | None] | int | None
    timestamps_ms: Sequence[int] | int
    headers: Sequence[Headers] | None

    def records(self, topic: str) -> Iterator[ProducerRecord]:
        """Yield the records as objects."""
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
    """Records as rows of Arrow columns; `now_ms` is the timestamp of rows that bring none."""

    parts: Sequence[ArrowRows]
    partition: int | None
    now_ms: int

    def records(self, topic: str) -> Iterator[ProducerRecord]:
        """Yield the records as objects."""
        for part in self.parts:
            for value, key, stamp in part.rows():
                yield ProducerRecord(topic, value, key, self.partition, self.now_ms if stamp is None else stamp)


class GivenBatch(SendBatch):
    """What `send_many` or `send_arrow` was given, or what interceptors made of it."""

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
            raise ValueError(f"{len(records)} records in place of {len(self)}; they must be as many")
        for record in records:
            self._check(record)
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
    """Return headers as (name, value) pairs; users of other clients bring a dict.

    >>> as_pairs({"trace": b"7"})
    [('trace', b'7')]
    """
    return list(headers.items()) if isinstance(headers, Mapping) else headers
