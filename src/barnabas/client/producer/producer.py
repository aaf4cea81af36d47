"""`Producer`: a producer for programs without an event loop. A background thread sends the records."""

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
    """Sends records to topics. Thread-safe.

    :param bootstrap: `"host:port,..."`, or a dict of settings under Kafka's names.
    :param key_serializer: a function that returns the bytes of a key; None if keys are bytes. The producer does not
        call the function for the key None. `send` raises the exceptions of the function.
    :param value_serializer: the same for values. `send_arrow` calls no serializer.
    :param interceptors: `ProducerInterceptor` objects, in the order of the calls. An interceptor belongs to one
        producer.
    :param settings: the fields of `barnabas.client.config.ProducerConfig`; keyword arguments override the dict.
    :raises ConfigurationError: a setting does not exist or cannot have this value, or an interceptor has a wrong type.

    The constructor does not wait for a broker. While no broker is reachable, the first `send` to a topic waits up to
    `max_block_ms`, and the producer retries each record for `delivery_timeout_ms`.

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
            # Use the appender's compiled function itself as `send`: a Python wrapper would double the cost of a record.
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
        """Append one record to a batch, and return its delivery. The call blocks only if memory is full or the topic is
        new.

        :param value: bytes, or a value that `value_serializer` accepts; None deletes the key in a compacted topic.
        :param key: bytes, or a key that `key_serializer` accepts. Records with the same key go to the same partition,
            in order.
        :param partition: the number of the partition. If None, the partitioner chooses one by the key.
        :param timestamp_ms: event time in ms since the epoch. If None, the current time is used.
        :param headers: (name, value) pairs, or a dict; names are strings, values bytes or None.
        :param on_delivery: called with the `Delivery` when the record is acknowledged or has failed; see
            `Delivery.add_done_callback`. It is not called if `send` raises an error.
        :returns: the delivery, which is a future; a program may ignore it.
        :raises BufferFullError: memory was full for `max_block_ms`.
        :raises TimedOutError: the metadata of the topic did not arrive within `max_block_ms`.
        :raises ApiError: MESSAGE_TOO_LARGE, INVALID_TOPIC_EXCEPTION and other errors.
        :raises ClosedError: the producer is closed, or belongs to the parent of this forked process.
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
        """Send many records to one topic in one call (the paper's message set).

        :param values: one value for each record.
        :param keys: one key for each value, or None for records without keys.
        :param partition: the partition of all records. If None, the partitioner chooses the partitions.
        :param timestamps_ms: one timestamp in ms since the epoch for each value, or one for all. If None, the current
            time is used.
        :param headers: the headers of each record, or None for records without headers.
        :returns: the deliveries in the order of `values`.
        :raises ValueError: the number of keys, timestamps or headers differs from the number of values.
        :raises BarnabasError: the errors of `send`. Records before the failed one may have been sent.

            with barnabas.Producer("localhost:9092") as producer:
                deliveries = producer.send_many("clicks", [b"/jobs", b"/feed"], keys=[b"member-42", b"member-7"])
                print([metadata.offset for metadata in deliveries.result()])
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
        """Send the rows of an Arrow table. The producer creates no Python object for a row.

        :param batch: a pyarrow Table, RecordBatch, Array or ChunkedArray, or an object with Arrow's PyCapsule
            interface, such as a Polars data frame or a DuckDB relation.
        :param value: the column of values, of type binary or string. It may be None if there is a single column, or a
            column named `value`.
        :param key: the column of keys, or None for records without keys.
        :param timestamp: the column of event times: timestamps, or int64 in ms since the epoch. If None, the current
            time is used.
        :param partition: the partition of all rows. If None, the partitioner chooses the partitions.
        :param value_schema: an `AvroSerializer`, which makes each value: an Avro record with the row's columns as
            fields of the same names.
        :returns: the deliveries in the order of the rows.
        :raises TypeError: `batch` is not Arrow data, or a column has the wrong type.
        :raises ConfigurationError: pyarrow is not installed, or a column does not exist.
        :raises SerializationError: a row does not match the schema; no row was sent.
        """
        if value_schema is not None:
            batch, value = with_values(batch, topic, value_schema, value)
        records = self._records
        return records.append_all(
            records.runs_of_rows(self._engine.queues(topic), batch, value, key, timestamp, partition)
        )

    def partitions_for(self, topic: str) -> list[int]:
        """Return the partition numbers of a topic. If the brokers create topics automatically, this creates the topic.

        :raises TimedOutError: the metadata of the topic did not arrive within `max_block_ms`.
        """
        return list(range(len(self._engine.queues(topic).queues)))

    partitions_for_topic = partitions_for

    def metrics(self) -> dict[str, float]:
        """Return the current metrics of this producer by name.

        Totals since the start: `records_total` and `bytes_total` (acknowledged), `failed_records_total`,
        `retries_total` (batches sent again), `requests_total` (requests with a response), `throttle_time_total_ms` (the
        waits that quotas demanded). Averages, maxima and rates of the last 30 seconds: `records_per_s`, `bytes_per_s`,
        `records_per_batch_avg`, `request_latency_avg_ms`, `request_latency_max_ms`. Current values:
        `unfinished_records`, `requests_in_flight`, `buffered_bytes`, `buffer_available_bytes`.
        """
        return self._engine.metrics()

    # --- finishing --------------------------------------------------------------------------------------

    def flush(self, timeout_s: float | None = None) -> None:
        """Wait until every record sent so far is acknowledged or has failed.

        `flush` does not raise the errors of records; their deliveries do.

        :param timeout_s: the timeout in seconds; None means no timeout.
        :raises TimedOutError: some records were still unacknowledged after `timeout_s`.
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
        """Flush, and stop the background thread. Further calls, and calls in a forked child, do nothing.

        If another thread is already closing the producer, this call waits for that thread.

        :param timeout_s: the timeout in seconds for the records, the interceptors and the last metrics push. None means
            no timeout.
        :raises TimedOutError: some records were still unacknowledged after `timeout_s`. The producer drops them, unless
            another thread waits for them.
        :raises ClosedError: a callback of a delivery has called `close`; the producer stays open.
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
