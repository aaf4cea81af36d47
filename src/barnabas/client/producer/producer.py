"""The producer that programs use: `send` returns at once, a background thread delivers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Generic, Self, Unpack, overload

from barnabas.addresses import host_ports
from barnabas.client.client_lifecycle import LoopThread
from barnabas.client.config import Bootstrap, ProducerConfig, make_config
from barnabas.client.configured_interceptors import producer_interceptors
from barnabas.client.interceptors import ProducerInterceptor
from barnabas.client.producer.delivery import Deliveries, Delivery
from barnabas.client.producer.engine import CLOSED, ProducerEngine
from barnabas.client.producer.serializers import ColumnSerializer, Serializer, Serializers, with_values
from barnabas.client.setting_types import ProducerSettings
from barnabas.clock import SYSTEM_CLOCK
from barnabas.errors import ClosedError
from barnabas.model import Bytes, GivenHeaders, GivenK, GivenV, K_contra, V_contra
from barnabas.records import OnDelivery


class Producer(Generic[K_contra, V_contra]):
    """Sends records to topics. Safe to use from several threads.

    :param bootstrap: `"host:port,..."`, or a dict of settings under Kafka's names.
    :param key_serializer: returns the bytes of a key that is not None; without a serializer keys are bytes. `send`
        raises the serializer's exceptions.
    :param value_serializer: the same for values. `send_arrow` uses no serializer.
    :param interceptors: `ProducerInterceptor` objects, called in this order. Each belongs to one producer.
    :param settings: see `barnabas.client.config.ProducerConfig`; keyword arguments win over the dict.
    :raises ConfigurationError: a setting does not exist or cannot have this value, or an interceptor has a wrong type.

    The constructor waits for no broker. The producer retries brokers that are down, for `max_block_ms` in the first
    `send` to a topic and for `delivery_timeout_ms` with each record.

        with barnabas.Producer("localhost:9092") as producer:
            delivery = producer.send("clicks", b"/jobs", key=b"member-42")
            print(delivery.result().offset)
    """

    @overload
    def __init__(
        self: Producer[Bytes, Bytes],
        bootstrap: Bootstrap = None,
        *,
        key_serializer: None = None,
        value_serializer: None = None,
        interceptors: Iterable[ProducerInterceptor] = (),
        **settings: Unpack[ProducerSettings],
    ) -> None: ...
    @overload
    def __init__(
        self: Producer[GivenK, Bytes],
        bootstrap: Bootstrap = None,
        *,
        key_serializer: Serializer[GivenK],
        value_serializer: None = None,
        interceptors: Iterable[ProducerInterceptor] = (),
        **settings: Unpack[ProducerSettings],
    ) -> None: ...
    @overload
    def __init__(
        self: Producer[Bytes, GivenV],
        bootstrap: Bootstrap = None,
        *,
        key_serializer: None = None,
        value_serializer: Serializer[GivenV],
        interceptors: Iterable[ProducerInterceptor] = (),
        **settings: Unpack[ProducerSettings],
    ) -> None: ...
    @overload
    def __init__(
        self: Producer[GivenK, GivenV],
        bootstrap: Bootstrap = None,
        *,
        key_serializer: Serializer[GivenK],
        value_serializer: Serializer[GivenV],
        interceptors: Iterable[ProducerInterceptor] = (),
        **settings: Unpack[ProducerSettings],
    ) -> None: ...
    def __init__(
        self,
        bootstrap: Bootstrap = None,
        *,
        key_serializer: Serializer[Any] | None = None,
        value_serializer: Serializer[Any] | None = None,
        interceptors: Iterable[ProducerInterceptor] = (),
        **settings: Unpack[ProducerSettings],
    ) -> None:
        config = make_config(ProducerConfig, bootstrap, settings)
        serializers = Serializers(key_serializer, value_serializer)
        every = producer_interceptors(config, interceptors)
        self._clock = SYSTEM_CLOCK
        self._closed = False
        self._thread = LoopThread("barnabas-producer")
        self._engine = ProducerEngine(config, self._clock, self._thread, serializers, interceptors=every)
        self._records = self._engine.records
        self._thread.call(self._engine.start())
        appender = self._records.appender()
        self._send = serializers.before(self._records.intercepted(appender.send))
        self._thread.end_with(appender, self._engine.finish, "a Producer", after_fork=self._engine.after_fork)
        if type(self).send is _SEND:
            # What `send` would call, without a Python function in between: for each record that is half of the cost.
            self.send = self._send  # type: ignore[method-assign]

    # --- sending ----------------------------------------------------------------------------------------

    def send(
        self,
        topic: str,
        value: V_contra | None = None,
        key: K_contra | None = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: GivenHeaders = (),
        on_delivery: OnDelivery | None = None,
    ) -> Delivery:
        """Send one record; blocks only if memory is full or the topic is new to this producer.

        :param value: the payload, bytes or what `value_serializer` takes; None marks the key as deleted in a
            compacted topic.
        :param key: bytes or what `key_serializer` takes; records with the same key go to the same partition, and so
            stay in order.
        :param partition: overrides key and partitioner.
        :param timestamp_ms: event time in ms since the epoch; None is the current time.
        :param headers: (name, value) pairs, or a dict; names are strings, values bytes or None.
        :param on_delivery: called with the `Delivery` when its outcome is known; see `Delivery.add_done_callback`. A
            record that `send` refuses by raising has no delivery.
        :returns: the future outcome; a program may ignore it.
        :raises BufferFullError: memory was full for `max_block_ms`.
        :raises TimedOutError: the topic's partitions were not known within `max_block_ms`.
        :raises ApiError: MESSAGE_TOO_LARGE, INVALID_TOPIC_EXCEPTION ...
        :raises ClosedError: after `close`, or in a forked child.
        """
        return self._send(
            topic,
            value,
            key,
            partition=partition,
            timestamp_ms=timestamp_ms,
            headers=headers,
            on_delivery=on_delivery,
        )

    def send_many(
        self,
        topic: str,
        values: Sequence[V_contra | None],
        *,
        keys: Sequence[K_contra | None] | None = None,
        partition: int | None = None,
        timestamps_ms: Sequence[int] | int | None = None,
        headers: Sequence[GivenHeaders] | None = None,
    ) -> Deliveries:
        """Send many records in one call: the paper's message set.

        :param keys: as many as `values`, or None for none.
        :param timestamps_ms: one for each record, or one for all; None is the current time.
        :param headers: as many as `values`, or None for none.
        :returns: the outcomes, in the order of `values`.
        :raises ValueError: keys, timestamps or headers are not as many as values.
        """
        records = self._records
        return records.append_all(
            records.runs_of_values(self._engine.queues(topic), values, keys, partition, timestamps_ms, headers)
        )

    def send_arrow(
        self,
        topic: str,
        batch: Any,
        *,
        value: str | None = None,
        key: str | None = None,
        timestamp: str | None = None,
        partition: int | None = None,
        value_schema: ColumnSerializer | None = None,
    ) -> Deliveries:
        """Send the rows of an Arrow table, without making Python objects of them.

        :param batch: a pyarrow Table, RecordBatch, Array or ChunkedArray, or what Arrow's PyCapsule interface makes
            one of: a data frame of Polars, a relation of DuckDB ...
        :param value: the column of payloads, of type binary or string; it may be left out for a single column, and
            for one that is called `value`.
        :param key: the column of keys; None for records without one.
        :param timestamp: the column of event times, timestamps or int64 in ms; None is now.
        :param partition: overrules key and partitioner.
        :param value_schema: an `AvroSerializer`: the values are records of its schema, made of the columns that are
            named like its fields.
        :returns: the outcomes, in the order of the rows.
        :raises TypeError: it is no Arrow data, or a column has another type.
        :raises ConfigurationError: pyarrow is not installed, or a column does not exist.
        :raises SerializationError: a row does not fit the schema; none was sent.
        """
        if value_schema is not None:
            batch, value = with_values(batch, topic, value_schema, value)
        records = self._records
        return records.append_all(
            records.runs_of_rows(self._engine.queues(topic), batch, value, key, timestamp, partition)
        )

    def partitions_for(self, topic: str) -> list[int]:
        """Return the partition numbers of a topic; creates it where brokers do that by themselves.

        :raises TimedOutError: they were not known within `max_block_ms`.
        """
        return list(range(len(self._engine.queues(topic).queues)))

    partitions_for_topic = partitions_for

    def metrics(self) -> dict[str, float]:
        """Return current metrics of this producer by name.

        Of all its life: `records_total` and `bytes_total` that were acknowledged, `failed_records_total`,
        `retries_total` (batches that had to be sent again), `requests_total` that were answered. Of the last 30
        seconds: `records_per_s`, `bytes_per_s`, `records_per_batch_avg`, `request_latency_avg_ms`,
        `request_latency_max_ms`. Now: `unfinished_records`, `requests_in_flight`, `buffered_bytes`,
        `buffer_available_bytes`.
        """
        return self._engine.metrics()

    # --- finishing --------------------------------------------------------------------------------------

    def flush(self, timeout_s: float | None = None) -> None:
        """Wait until every record sent so far is acknowledged or has failed.

        `flush` raises no failure of a record; its delivery has it.

        :raises TimedOutError: some records were still on their way after `timeout_s`.
        """
        accumulator = self._engine.accumulator
        if self._thread.is_forked_copy:
            accumulator.check_open()
        deadline_s = None if timeout_s is None else self._clock.monotonic() + timeout_s
        for batch in accumulator.close_all():
            remaining_s = None if deadline_s is None else max(0.0, deadline_s - self._clock.monotonic())
            if not accumulator.await_batch(batch, remaining_s):
                raise self._engine.unfinished_error(timeout_s)
        if self._engine.interceptors_flush and not self._closed and not self._thread.inside:
            remaining_s = None if deadline_s is None else max(0.0, deadline_s - self._clock.monotonic())
            self._thread.call(self._engine.flush_interceptors(remaining_s))

    def close(self, *, timeout_s: float | None = None) -> None:
        """Flush, then end the background thread. May be called again; does nothing in a forked child.

        If another thread closes it already, or the program ends, this waits until that is done.

        :param timeout_s: a limit for all, also for the interceptors and the last push of metrics; None: no limit.
        :raises TimedOutError: some records were still on their way after `timeout_s`; they are given up, unless another
            thread waits for them.
        :raises ClosedError: a delivery's callback closes the producer; it is not closed by that.
        """
        if not self._thread.begin_close(timeout_s):
            return
        deadline_s = None if timeout_s is None else self._clock.monotonic() + timeout_s
        self._closed = True
        self._engine.accumulator.refuse(ClosedError(CLOSED))
        try:
            self.flush(timeout_s)
        finally:
            self._thread.stop(partial(self._engine.give_up, deadline_s))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        servers = host_ports(self._engine.config.bootstrap_servers)
        return f"<Producer to {servers}{', closed' if self._closed else ''}>"


_SEND = Producer.send
