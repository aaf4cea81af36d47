"""The records of a producer between `send` and the sender: a queue of batches for each partition, in bounded memory.

The application's threads append to the last batch of a queue, and the sender's thread takes batches from the head.
`send` only appends, so it is short. It wakes the sender only if the sender would otherwise sleep too long for a batch.

Records get into the open batch of a partition in two ways. `Accumulator.append` and similar methods acquire the lock,
and open and close batches. The compiled `Appender.send` bypasses the lock: it adds common records to the topic's
encoder in `open_encoders`. This is safe for two reasons. An encoder adds a record, and is closed, under the interpreter
lock. The memory of an open batch is reserved up to the limit of its encoder when the batch is opened.

Invariants:

- Only the last batch of a queue may be open. A batch outside the queue is closed, and only the sender's thread uses it.
- `used_bytes` is the sum of the sizes of all batches that are not done, and never exceeds the limit. An open batch
  counts with the limit of its encoder.
- `ProducerBatch.complete` is called once, under the lock. All records of a batch have the same outcome. A delivery
  consists of a batch and an index, so it costs nothing until the application reads it.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from barnabas.client.interceptors import ProducerInterceptors
from barnabas.clock import Clock
from barnabas.errors import ApiError, BarnabasError, BufferFullError, ErrorCode, Failure, TimedOutError
from barnabas.metrics.rolling_sum import RollingSum, greatest_of, mean_of
from barnabas.model import (
    NO_LEADER_EPOCH,
    NO_OFFSET,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    Headers,
    RecordMetadata,
    TimestampType,
)
from barnabas.records import (
    BATCH_HEADER_SIZE,
    BatchBuilder,
    BinaryBuffers,
    Compression,
    OpenEncoders,
    Record,
    read_records,
    stamp,
)
from barnabas.records.codec_pure.encoding import NO_ROOM
from barnabas.records.codec_pure.limits import RECORD_OVERHEAD_MAX

log = logging.getLogger(__name__)


def next_sticky(choices: Sequence[int], current: int, random: Callable[[], float]) -> int:
    """Return the next sticky partition: a random one, different from `current` if possible.

    :param choices: the partitions to choose from, at least one.
    :param random: returns a number in [0, 1).

    >>> next_sticky([0, 1, 2], 1, lambda: 0.99)
    2
    """
    others = [partition for partition in choices if partition != current] or list(choices)
    return others[int(random() * len(others))]


class ProducerMetrics:
    """The counts of one producer, updated once for each batch or request, not for each record.

    :ivar latency_ms: the latency of requests, by the id of the broker.
    :ivar queue_ms: the time between the creation of a batch and its first request.
    :ivar throttle_ms: the throttle times in responses, without zeros.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._records = RollingSum(clock)
        self._bytes = RollingSum(clock)
        self._failed_records = 0
        self._retries = 0
        self.latency_ms: dict[int, RollingSum] = {}
        self.queue_ms = RollingSum(clock)
        self.throttle_ms = RollingSum(clock)

    def delivered(self, records: int, size_bytes: int, queued_s: float) -> None:
        self._records.add(records)
        self._bytes.add(size_bytes)
        self.queue_ms.add(queued_s * 1000)

    def failed(self, records: int) -> None:
        self._failed_records += records

    def retried(self) -> None:
        self._retries += 1

    def answered(self, node_id: int, latency_s: float) -> None:
        """Count the response to a request."""
        latency_ms = self.latency_ms.get(node_id)
        if latency_ms is None:
            latency_ms = self.latency_ms[node_id] = RollingSum(self._clock)
        latency_ms.add(latency_s * 1000)

    def figures(self) -> dict[str, float]:
        latencies = list(self.latency_ms.values())
        return {
            "records_total": int(self._records.total),
            "records_per_s": self._records.per_s(),
            "bytes_total": int(self._bytes.total),
            "bytes_per_s": self._bytes.per_s(),
            "records_per_batch_avg": self._records.mean(),
            "failed_records_total": self._failed_records,
            "retries_total": self._retries,
            "requests_total": sum(each.count for each in latencies),
            "request_latency_avg_ms": mean_of(latencies),
            "request_latency_max_ms": greatest_of(latencies),
            "throttle_time_total_ms": int(self.throttle_ms.total),
        }


NO_SEQUENCE = -1

Order = tuple[int, ...]


class BatchWaiter(Protocol):
    """Waits for batches on behalf of their deliveries; the accumulator implements this interface."""

    def wait(self, batch: ProducerBatch, timeout_s: float | None) -> bool:
        """End the linger of `batch`, and wait until it is done. Return whether it is done."""
        ...

    def when_done(self, batch: ProducerBatch, callback: Callable[[], object]) -> None:
        """Run `callback` when `batch` is done: now, or later on the sender's thread."""
        ...

    def stop_lingering(self, batch: ProducerBatch) -> None:
        """End the linger of `batch`, because a caller waits for it."""
        ...


class ProducerBatch:
    """The records of a batch, its producer id and sequence number, and its outcome once known."""

    __slots__ = (
        "_count",
        "_failure",
        "_waiter",
        "attempts",
        "base_offset",
        "base_sequence",
        "builder",
        "callbacks",
        "created_at_s",
        "data",
        "done",
        "finished",
        "log_append_time_ms",
        "order",
        "parent",
        "partition",
        "parts",
        "producer_epoch",
        "producer_id",
        "sent_at_s",
        "size_bytes",
        "topic",
        "urgent",
        "watched",
    )

    def __init__(
        self, topic: str, partition: int, order: Order, created_at_s: float, builder: BatchBuilder, waiter: BatchWaiter
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.order = order
        """The batch's position among the batches of its partition. It stays the same in a retry; the parts of a split
        batch share it.
        """
        self.created_at_s = created_at_s
        self.builder = builder
        """The encoder with the records; released when the batch is done, because an application may keep its deliveries
        for a long time.
        """
        builder.owner = self
        self._count = 0
        self._waiter = waiter
        self.size_bytes = 0
        """The bytes of the producer's memory that the batch uses."""
        self.urgent = False
        """True if a caller waits for the batch, so it does not linger."""
        self.watched = False
        """True if a caller has requested the outcome, and so will receive the error of a failed batch."""
        self.attempts = 0
        self.sent_at_s: float | None = None
        """The monotonic time at which the batch first left the queue, or None if it has not left."""
        self.data: bytes | bytearray | memoryview | None = None
        """The encoded bytes, built once for each producer id and sequence, and kept for retries."""
        self.producer_id = NO_PRODUCER_ID
        self.producer_epoch = -1
        self.base_sequence = NO_SEQUENCE
        self.done = False
        self.finished: threading.Event | None = None
        """The event that waiting threads share; the first one creates it."""
        self.callbacks: list[Callable[[], object]] | None = None
        self.base_offset = NO_OFFSET
        self.log_append_time_ms = NO_TIMESTAMP
        self._failure: Failure | None = None
        self.parent: ProducerBatch | None = None
        self.parts: list[ProducerBatch] | None = None
        """The smaller batches that replaced this batch because a broker rejected it as too large; None otherwise."""

    def __str__(self) -> str:
        records = "1 record" if self.count == 1 else f"{self.count} records"
        return f"{records} for {self.topic}-{self.partition}"

    @property
    def count(self) -> int:
        return self._count if self.done else self.builder.count

    @property
    def closed(self) -> bool:
        return self.done or self.builder.closed

    def close(self) -> None:
        """Accept no more records."""
        if not self.done:
            self.builder.closed = True

    @property
    def error(self) -> BarnabasError | None:
        """The error of a failed batch, as a new exception for each caller; None otherwise."""
        return None if self._failure is None else self._failure.error()

    @property
    def failed(self) -> bool:
        return self._failure is not None

    @property
    def queued_s(self) -> float:
        """Return the time in seconds that the batch waited for its first request, or 0 if there was no request."""
        return 0.0 if self.sent_at_s is None else self.sent_at_s - self.created_at_s

    @property
    def in_sequence(self) -> bool:
        """Return whether the batch has a sequence number, so that a broker may have received it."""
        return self.base_sequence != NO_SEQUENCE

    def identify(self, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
        """Set the producer id, epoch and sequence number by which brokers detect duplicates (KIP-98)."""
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.base_sequence = base_sequence
        self.data = None

    def forget_sequence(self) -> None:
        """Remove the sequence number. The batch gets another number later."""
        self.base_sequence = NO_SEQUENCE
        self.data = None

    def payload(self) -> bytes | bytearray | memoryview:
        """Return the encoded bytes. They are the same for all retries with the same producer id and sequence."""
        if self.data is None:
            self.data = self.builder.build(self.producer_id, self.producer_epoch, self.base_sequence)
        return self.data

    def records(self) -> list[Record]:
        """Return the decoded records. Their offset is -1 until the broker has acknowledged the batch.

        Each call decodes the batch. A batch that is done has no records.
        """
        data = bytearray(self.payload())
        stamp(data, 0, max(self.base_offset, 0), NO_LEADER_EPOCH)
        records = read_records(data, self.topic, self.partition, check_crc=False)
        if self.base_offset == NO_OFFSET:
            records = [record._replace(offset=NO_OFFSET) for record in records]
        if self.log_append_time_ms != NO_TIMESTAMP:
            append_ms, by_broker = self.log_append_time_ms, TimestampType.LOG_APPEND_TIME
            records = [record._replace(timestamp_ms=append_ms, timestamp_type=by_broker) for record in records]
        return records

    def part_of(self, index: int) -> tuple[ProducerBatch, int]:
        """Return the batch that contains record `index` after all splits, and the record's index in this batch."""
        batch = self
        while batch.parts is not None:
            for part in batch.parts:
                if index < part.count:
                    batch = part
                    break
                index -= part.count
            else:
                raise AssertionError("no part of the batch contains the record")
        return batch, index

    def complete(
        self,
        base_offset: int = NO_OFFSET,
        log_append_time_ms: int = NO_TIMESTAMP,
        error: BarnabasError | None = None,
    ) -> list[Callable[[], object]]:
        """Set the outcome and wake the waiting callers. Return the callbacks, which the caller must run without holding
        a lock.
        """
        assert not self.done, "a batch is settled once"
        self.close()
        self._count = self.builder.count
        self.base_offset = base_offset
        self.log_append_time_ms = log_append_time_ms
        self._failure = None if error is None else Failure.of(error)
        self.done = True
        del self.builder
        self.data = None
        if self.finished is not None:
            self.finished.set()
        callbacks, self.callbacks = self.callbacks or [], None
        parent = self.parent
        if parent is not None and parent.parts is not None and all(part.done for part in parent.parts):
            callbacks = callbacks + parent.complete(
                parent.parts[0].base_offset,
                parent.parts[0].log_append_time_ms,
                next((part.error for part in parent.parts if part.failed), None),
            )
        return callbacks

    # --- the outcome of one record, for its delivery ------------------------------------------------------

    def result(self, index: int, timestamp_ms: int, timeout_s: float | None) -> RecordMetadata:
        """Wait for record `index` and return its metadata; see `Delivery.result`."""
        error = self.exception(index, timeout_s)
        if error is not None:
            raise error
        batch, index = self.part_of(index)
        offset = NO_OFFSET if batch.base_offset == NO_OFFSET else batch.base_offset + index
        appended_ms = batch.log_append_time_ms
        return RecordMetadata(
            batch.topic, batch.partition, offset, timestamp_ms if appended_ms == NO_TIMESTAMP else appended_ms
        )

    def exception(self, index: int, timeout_s: float | None) -> BarnabasError | None:
        """Wait for record `index` and return its error, or None if it was delivered; see `Delivery.exception`."""
        if not self.done and not self._waiter.wait(self, timeout_s):
            within = f"within {timeout_s} s"
            if timeout_s is None:
                within = "yet, and this thread must not block: it receives the acknowledgements; await the delivery"
            raise TimedOutError(
                f"no acknowledgement for {self.topic}-{self.partition} {within}; the record is still being sent"
            )
        return self.part_of(index)[0].error

    def when_done(self, callback: Callable[[], object]) -> None:
        """Run `callback` when the batch is done: immediately, or later on the sender's thread."""
        self._waiter.when_done(self, callback)

    async def wait_async(self, index: int, timestamp_ms: int) -> RecordMetadata:
        """Wait for record `index` without blocking the event loop, and return its metadata."""
        if not self.done:
            loop = asyncio.get_running_loop()
            settled = loop.create_future()
            self._waiter.when_done(self, lambda: loop.call_soon_threadsafe(_settle, settled))
            self._waiter.stop_lingering(self)
            await settled
        return self.result(index, timestamp_ms, None)

    def describe(self, index: int) -> str:
        """Return the `repr` text for the delivery of record `index`."""
        failed = self.done and self.part_of(index)[0].failed
        state = "pending" if not self.done else "failed" if failed else "delivered"
        return f"<Delivery to {self.topic}-{self.partition}: {state}>"


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def run_callbacks(callbacks: list[Callable[[], object]]) -> None:
    """Run the callbacks of deliveries. If a callback raises, log the exception and continue with the next one."""
    for callback in callbacks:
        try:
            callback()
        except Exception:
            log.exception("a delivery callback raised an error; the producer continues with the next callback")


HEADER_OVERHEAD_BYTES = 10
"""The maximum size in bytes of the two lengths in a record header."""
NEVER_S: float = float("inf")


class PartitionQueue:
    """The batches of one partition that wait to be sent, oldest first."""

    __slots__ = ("batches", "next_order", "partition", "topic")

    def __init__(self, topic: str, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        self.batches: deque[ProducerBatch] = deque()
        self.next_order = 0


class TopicQueues(OpenEncoders):
    """The queues of a topic by partition number, and its sticky partition."""

    def __init__(self, topic: str) -> None:
        super().__init__()
        self.topic = topic
        self.queues: list[PartitionQueue] = []
        self.available: list[int] = []
        """The partitions with a leader, or all partitions if none has a leader."""
        self.sticky = -1
        self.used_at_s = 0.0
        """The monotonic time at which the last batch was opened."""

    def stick_to(self, partition: int) -> None:
        """Make `partition` the sticky partition."""
        self.sticky = partition
        self.sticky_encoder = self.encoders[partition]

    def hide(self, partition: int) -> None:
        """Remove the open encoder of `partition`, so that its records acquire the lock."""
        self.encoders[partition] = None
        if partition == self.sticky:
            self.sticky_encoder = None

    def open(self, partition: int, encoder: BatchBuilder) -> None:
        """Publish `encoder` for `partition`, so that records can bypass the lock."""
        self.encoders[partition] = encoder
        if partition == self.sticky:
            self.sticky_encoder = encoder


class Accumulator:
    """Holds the records of a producer between `send` and the sender. Thread-safe.

    :param open_encoders: the dict in which `Appender.send` finds the open batch of a topic. With None, every record
        acquires the lock.
    :param may_block: returns whether the calling thread may wait for memory. The sender's thread, which frees memory,
        must not wait.
    :param interceptors: called on the sender's thread with each batch that is acknowledged or has failed.
    :param wake: wakes the sender; called with the lock held, on the application's threads.
    :param random: returns a number in [0, 1).
    """

    def __init__(
        self,
        *,
        batch_size: int,
        buffer_memory: int,
        linger_s: float,
        max_block_s: float,
        max_record_bytes: int,
        compression: Compression,
        clock: Clock,
        wake: Callable[[], None],
        random: Callable[[], float],
        open_encoders: dict[str, OpenEncoders] | None = None,
        may_block: Callable[[], bool] = lambda: True,
        interceptors: ProducerInterceptors | None = None,
    ) -> None:
        self._interceptors = interceptors or ProducerInterceptors()
        self._delivery_hooks = self._interceptors.delivery_hooks
        self._batch_size = batch_size
        self._buffer_memory = buffer_memory
        self._linger_s = linger_s
        self._max_block_s = max_block_s
        self._max_record_bytes = min(max_record_bytes, buffer_memory)
        self._compression = compression
        self._clock = clock
        self._wake = wake
        self._random = random
        self._open_encoders: dict[str, OpenEncoders] = {} if open_encoders is None else open_encoders
        self._may_block = may_block
        self._takes_past_lock = open_encoders is not None
        self.produced = ProducerMetrics(clock)
        self._lock = threading.Lock()
        self._space = threading.Condition(self._lock)
        self._wait_for_space_count = 0
        """The number of threads that wait for memory. It is usually zero, and then the notification can be skipped."""
        self._lacks_space = False
        """True if the last attempt to open a batch failed for lack of memory."""
        self._open_bytes = 0
        """The sum of the size limits of all open batches, which is a part of `used_bytes`."""
        self._unfinished: dict[ProducerBatch, None] = {}
        self._topics: dict[str, TopicQueues] = {}
        self.used_bytes = 0
        self.wakes_at_s = NEVER_S
        """The monotonic time at which the sender wakes up by itself; set by the sender."""
        self.eager = False
        """True if the sender can send a batch as soon as it is opened; set by the sender."""
        self._refusal: Failure | None = None
        """The error that rejects all records because the producer is closed, forked or fenced; None if it is usable."""
        self._is_orphan = False
        """True in a forked child, where the producer delivers nothing."""

    # --- topics -----------------------------------------------------------------------------------------

    def topic(self, name: str) -> TopicQueues | None:
        """Return the queues of a topic, or None while its partitions are unknown."""
        return self._topics.get(name)

    def set_partitions(self, name: str, partition_count: int, available: Sequence[int]) -> TopicQueues:
        """Set the number of partitions of a topic, and which of them have a leader. The count never decreases."""
        with self._lock:
            topic = self._topics.get(name)
            if topic is None:
                topic = TopicQueues(name)
                topic.used_at_s = self._clock.monotonic()
            for partition in range(len(topic.queues), partition_count):
                topic.queues.append(PartitionQueue(name, partition))
                topic.encoders.append(None)
            topic.available = list(available) or list(range(len(topic.queues)))
            if topic.sticky not in topic.available and topic.available:
                topic.stick_to(next_sticky(topic.available, topic.sticky, self._random))
            self._topics[name] = topic
            if self._takes_past_lock and self._refusal is None:
                self._open_encoders[name] = topic
            return topic

    # --- the application's threads -----------------------------------------------------------------------------

    def append(
        self,
        topic: TopicQueues,
        partition: int | None,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
    ) -> tuple[ProducerBatch, int]:
        """Append one record to the last batch of its partition; return the batch and the record's index in it.

        :param partition: the partition, or None for the sticky partition.
        :raises BufferFullError: no memory became free within `max_block_ms`.
        :raises ApiError: MESSAGE_TOO_LARGE.
        """
        try:
            size = RECORD_OVERHEAD_MAX + _blob_size(value) + _blob_size(key)
            if headers:
                size += _headers_size(headers)
        except (TypeError, ValueError, AttributeError) as error:
            raise _refused_record(key, value, error) from None
        with self._lock:
            while True:
                batch = self._batch_for(topic, partition, size)
                try:
                    index = batch.builder.append(timestamp_ms, key, value, headers, limited=True)
                except (TypeError, AttributeError, ValueError) as error:
                    raise _refused_record(key, value, error) from None
                finally:
                    self._keep_or_drop(topic, batch)
                if index != NO_ROOM:
                    topic.open(batch.partition, batch.builder)
                    return batch, index
                self._on_full(topic, batch)

    def append_values(
        self,
        topic: TopicQueues,
        partition: int | None,
        timestamp_ms: int,
        values: list[bytes | None],
        start: int,
        keys: list[bytes | None] | None = None,
    ) -> tuple[ProducerBatch, int, int]:
        """Append values from `values[start:]` until the batch is full. Return the batch, the first index and the count.

        :param values: a list of bytes or None; `keys` likewise.
        :raises BufferFullError: no memory became free within `max_block_ms`.
        :raises ApiError: MESSAGE_TOO_LARGE.
        """
        size = RECORD_OVERHEAD_MAX + len(values[start] or b"")
        if keys is not None:
            size += len(keys[start] or b"")

        def add(builder: BatchBuilder) -> int:
            return builder.append_many(timestamp_ms, values, keys, start=start, limited=True)

        return self._append_run(topic, partition, size, add)

    def append_rows(
        self,
        topic: TopicQueues,
        partition: int | None,
        timestamps_ms: int | memoryview,
        values: BinaryBuffers,
        keys: BinaryBuffers | None,
        rows: memoryview | None,
        start: int,
        stop: int,
        first_size: int,
    ) -> tuple[ProducerBatch, int, int]:
        """Append rows of Arrow columns until the batch is full; see `append_values`.

        :param rows: the row numbers as int64, or None for all rows in order.
        :param first_size: the size of the first row's key and value in bytes.
        """

        def add(builder: BatchBuilder) -> int:
            return builder.append_columns(timestamps_ms, values, keys, rows, start, stop)

        return self._append_run(topic, partition, RECORD_OVERHEAD_MAX + first_size, add)

    def _append_run(
        self, topic: TopicQueues, partition: int | None, size: int, add: Callable[[BatchBuilder], int]
    ) -> tuple[ProducerBatch, int, int]:
        """Call `add` to append the records of a run to the open batch of their partition. `size` is the maximum size of
        the first record in bytes.
        """
        with self._lock:
            while True:
                batch = self._batch_for(topic, partition, size)
                # The records of a run stay together, so no other record may bypass the lock in between.
                topic.hide(batch.partition)
                first_index = batch.count
                try:
                    count = add(batch.builder)
                finally:
                    self._keep_or_drop(topic, batch)
                if count:
                    topic.open(batch.partition, batch.builder)
                    return batch, first_index, count
                self._on_full(topic, batch)

    def _batch_for(self, topic: TopicQueues, partition: int | None, size: int) -> ProducerBatch:
        """Return the open batch of a partition, or a new one with space for `size` bytes. The caller must hold the
        lock.

        A new batch is in no queue yet; call `_keep_or_drop` after the append.
        """
        self.check_open()
        while True:
            queue = topic.queues[topic.sticky if partition is None else partition]
            if queue.batches and not queue.batches[-1].closed:
                return queue.batches[-1]
            whole = BATCH_HEADER_SIZE + size
            self._check_size(topic.topic, whole)
            # Reserve memory for a full batch, not for one record: otherwise a producer near its memory limit would send
            # tiny batches.
            limit = max(whole, min(self._batch_size, self._buffer_memory))
            if self.used_bytes + limit <= self._buffer_memory:
                return self._open_batch(queue, limit)
            self._wait_for_space(limit)

    def _open_batch(self, queue: PartitionQueue, limit: int) -> ProducerBatch:
        builder = BatchBuilder(self._compression)
        builder.limit_bytes = limit
        order = (queue.next_order,)
        batch = ProducerBatch(queue.topic, queue.partition, order, self._clock.monotonic(), builder, self)
        batch.size_bytes = limit
        queue.next_order += 1
        self.used_bytes += limit
        self._open_bytes += limit
        self._lacks_space = False
        return batch

    def _on_full(self, topic: TopicQueues, batch: ProducerBatch) -> None:
        """Close a batch without space for the next record, and change the sticky partition."""
        assert batch.count, "a batch has room for the record that it was opened for"
        self._close(batch)
        self._wake_by(0.0)
        if batch.partition == topic.sticky and topic.available:
            topic.stick_to(next_sticky(topic.available, topic.sticky, self._random))

    def _close(self, batch: ProducerBatch) -> None:
        """Accept no more records for a batch, and free its unused memory."""
        if not batch.closed:
            batch.close()
            self._open_bytes -= batch.size_bytes
            unused = batch.size_bytes - batch.builder.size_bytes
            batch.size_bytes -= unused
            self.used_bytes -= unused
            if unused and self._wait_for_space_count:
                self._space.notify_all()

    def check_record(self, topic: str, key: bytes | None, value: bytes | None, headers: Headers) -> None:
        """Check that `append` would accept a record, apart from the memory.

        :raises TypeError: a part of the record has a wrong type.
        :raises ApiError: MESSAGE_TOO_LARGE.
        """
        try:
            size = RECORD_OVERHEAD_MAX + _blob_size(value) + _blob_size(key) + _headers_size(headers)
        except (TypeError, ValueError, AttributeError) as error:
            raise _refused_record(key, value, error) from None
        self._check_size(topic, BATCH_HEADER_SIZE + size)

    def _check_size(self, topic: str, size: int) -> None:
        if size > self._max_record_bytes:
            raise ApiError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"a record of {size} bytes for topic {topic!r} is larger than max_request_size or "
                f"buffer_memory allow ({self._max_record_bytes} bytes); raise them, and the topic's max.message.bytes",
            )

    def _keep_or_drop(self, topic: TopicQueues, batch: ProducerBatch) -> None:
        """Put a new batch into its queue, or drop it if its first record was invalid. The batch must not be in the
        queue earlier, because the sender takes batches from the queues without the lock.
        """
        if not batch.count:
            batch.close()
            self.used_bytes -= batch.size_bytes
            self._open_bytes -= batch.size_bytes
            if self._wait_for_space_count:
                self._space.notify_all()
        elif batch not in self._unfinished:
            self._unfinished[batch] = None
            topic.used_at_s = batch.created_at_s
            topic.queues[batch.partition].batches.append(batch)
            self._wake_by(0.0 if self.eager else batch.created_at_s + self._linger_s)

    def _wake_by(self, at_s: float) -> None:
        if at_s < self.wakes_at_s:
            self.wakes_at_s = at_s
            self._wake()

    def _wait_for_space(self, size: int) -> None:
        """Wait until `size` bytes are free. The caller must hold the lock.

        No batch lingers during the wait. Open batches stay open until the sender takes them. If each wait closed them,
        most batches in memory would soon contain a single record.
        """
        deadline_s = self._clock.monotonic() + self._max_block_s
        while self._refusal is None and self.used_bytes + size > self._buffer_memory:
            remaining_s = deadline_s - self._clock.monotonic() if self._may_block() else 0.0
            if self._open_bytes * 2 >= self._buffer_memory:
                self._close_open()
                if self.used_bytes + size <= self._buffer_memory:
                    break
            self._lacks_space = True
            self._wake_by(0.0)
            if remaining_s <= 0 or not self._await_space(remaining_s):
                raise BufferFullError(
                    f"the producer's memory was full for {self._max_block_s:g} s: {self.used_bytes} of "
                    f"{self._buffer_memory} bytes wait for acknowledgement; "
                    "check the brokers, or raise buffer_memory or max_block_ms"
                )
        self.check_open()

    def _close_open(self) -> None:
        """Close all open batches to free their unused memory.

        There may be many open batches, some in partitions without a leader. Closing them takes long, so it is done only
        if it frees much memory.
        """
        for topic in self._topics.values():
            for queue in topic.queues:
                if queue.batches:
                    self._close(queue.batches[-1])

    def _await_space(self, timeout_s: float) -> bool:
        """Release the lock until memory is freed; return False after the timeout."""
        # Increment before the `try`: an interruption in between makes the counter too high, which only costs a
        # notification. A counter that is too low could leave a thread waiting forever.
        self._wait_for_space_count += 1
        try:
            return self._space.wait(timeout_s)
        finally:
            self._wait_for_space_count -= 1

    def wait(self, batch: ProducerBatch, timeout_s: float | None) -> bool:
        """End the linger of `batch`, and wait until it is done. Return whether it is done."""
        batch.watched = True
        return self.await_batch(batch, timeout_s)

    def await_batch(self, batch: ProducerBatch, timeout_s: float | None) -> bool:
        """Wait like `wait`, but do not mark the outcome as requested."""
        with self._lock:
            if batch.done:
                return True
            if self._is_orphan:
                self.check_open()
            if batch.finished is None:
                batch.finished = threading.Event()
            self._stop_lingering(batch)
            finished = batch.finished
        if not self._may_block():
            return False
        return finished.wait(timeout_s)

    def stop_lingering(self, batch: ProducerBatch) -> None:
        """End the linger of `batch`, because a caller waits for it."""
        with self._lock:
            self._stop_lingering(batch)

    def _stop_lingering(self, batch: ProducerBatch) -> None:
        # Keep the batch open until the sender takes it: if many callers each wait for one delivery, their records share
        # a batch.
        if not batch.urgent and not batch.closed:
            batch.urgent = True
            self._wake_by(0.0)

    def when_done(self, batch: ProducerBatch, callback: Callable[[], object]) -> None:
        """Run `callback` when `batch` is done: immediately, or later on the sender's thread."""
        with self._lock:
            batch.watched = True
            if not batch.done:
                if batch.callbacks is None:
                    batch.callbacks = []
                batch.callbacks.append(callback)
                return
        run_callbacks([callback])

    def close_all(self) -> list[ProducerBatch]:
        """End the linger of all batches; return all batches that are not done, oldest first."""
        with self._lock:
            for batch in self._unfinished:
                self._stop_lingering(batch)
            return list(self._unfinished)

    def refuse(self, error: BarnabasError) -> None:
        """Make every later append raise `error`, including the appends that wait for memory."""
        with self._lock:
            if self._refusal is None:
                self._refusal = Failure.of(error)
            self._open_encoders.clear()
            self._space.notify_all()

    def check_open(self) -> None:
        """Check that the producer accepts records.

        :raises BarnabasError: the producer rejects records. The exception is a copy of the error passed to `refuse`.
        """
        if self._refusal is not None:
            raise self._refusal.error()

    def after_fork(self, error: BarnabasError) -> None:
        """Stop deliveries in a forked child, and replace the lock, which a thread of the parent may hold."""
        self._lock = threading.Lock()
        self._space = threading.Condition(self._lock)
        self._wait_for_space_count = 0
        self._refusal = Failure.of(error)
        self._is_orphan = True
        self._open_encoders.clear()

    # --- the sender's thread ----------------------------------------------------------------------------

    def waiting(self) -> list[PartitionQueue]:
        """Return the queues that contain batches."""
        with self._lock:
            return [queue for topic in self._topics.values() for queue in topic.queues if queue.batches]

    def topics_in_use(self, since_s: float) -> set[str]:
        """Return the topics with unfinished records, or with a batch that was opened after `since_s`."""
        with self._lock:
            used = {name for name, topic in self._topics.items() if topic.used_at_s > since_s}
            return used.union(batch.topic for batch in self._unfinished)

    def ready_at_s(self, batch: ProducerBatch) -> float:
        """Return the time at which the linger of `batch`, the head of its queue, ends. The linger ends immediately if
        the batch is full, or if a caller waits for it or for memory.
        """
        return 0.0 if batch.closed or batch.urgent or self._lacks_space else batch.created_at_s + self._linger_s

    def sleep_until(self, at_s: float) -> None:
        """Set the time at which the sender wakes up by itself. Only an earlier event then needs to wake it."""
        with self._lock:
            self.wakes_at_s = min(self.wakes_at_s, at_s)

    def take(self, queue: PartitionQueue) -> ProducerBatch:
        """Remove and close the head of a queue."""
        with self._lock:
            batch = queue.batches.popleft()
            self._close(batch)
            topic = self._topics[queue.topic]
            if topic.encoders[queue.partition] is batch.builder:
                # Remove the encoder: otherwise the topic would keep the records in memory until its next batch.
                topic.hide(queue.partition)
            return batch

    def put_back(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        """Return a batch to its position in the queue, so that a retry keeps the order."""
        with self._lock:
            queue.batches.insert(_place(queue, batch), batch)
            self.produced.retried()

    def split(self, queue: PartitionQueue, batch: ProducerBatch, builders: Sequence[BatchBuilder]) -> None:
        """Replace a batch that was too large with smaller batches, which together determine its outcome."""
        with self._lock:
            parts = []
            for number, builder in enumerate(builders):
                order = (*batch.order, number)
                part = ProducerBatch(batch.topic, batch.partition, order, batch.created_at_s, builder, self)
                part.size_bytes = batch.size_bytes * builder.count // batch.count
                part.close()
                part.parent = batch
                part.sent_at_s = batch.sent_at_s
                part.watched = batch.watched
                parts.append(part)
            parts[-1].size_bytes = batch.size_bytes - sum(part.size_bytes for part in parts[:-1])
            batch.parts = parts
            del self._unfinished[batch]
            self._unfinished.update(dict.fromkeys(parts))
            place = _place(queue, batch)
            for part in reversed(parts):
                queue.batches.insert(place, part)

    def complete(
        self,
        batch: ProducerBatch,
        base_offset: int = -1,
        log_append_time_ms: int = -1,
        error: BarnabasError | None = None,
    ) -> list[Callable[[], object]]:
        """Set the outcome of a batch and free its memory; return the callbacks, which the caller must run without
        holding the lock.
        """
        batch.base_offset, batch.log_append_time_ms = base_offset, log_append_time_ms
        for hook in self._delivery_hooks:  # call the hooks before the batch releases its records
            try:
                hook(batch, error)
            except Exception as raised:  # noqa: BLE001 - an interceptor may raise any exception
                self._interceptors.delivery_failed(hook, raised)
        with self._lock:
            if not batch.closed:  # the batch was never sent
                self._open_bytes -= batch.size_bytes
            callbacks = batch.complete(base_offset, log_append_time_ms, error)
            if error is None:
                self.produced.delivered(batch.count, batch.size_bytes, batch.queued_s)
            else:
                self.produced.failed(batch.count)
            self._unfinished.pop(batch, None)
            self.used_bytes -= batch.size_bytes
            if self._wait_for_space_count:
                self._space.notify_all()
            return callbacks

    def unfinished_records(self) -> int:
        """Return the number of records without an outcome."""
        with self._lock:
            return sum(batch.count for batch in self._unfinished)

    def metrics(self) -> dict[str, float]:
        """Return the current metrics of the producer by name."""
        with self._lock:
            return {
                **self.produced.figures(),
                "unfinished_records": sum(batch.count for batch in self._unfinished),
                "buffered_bytes": self.used_bytes,
                "buffer_available_bytes": self._buffer_memory - self.used_bytes,
            }

    def unfinished_count(self) -> int:
        """Return the number of batches without an outcome."""
        return len(self._unfinished)


def _place(queue: PartitionQueue, batch: ProducerBatch) -> int:
    """Return the number of waiting batches before `batch`. The batch is being returned to its queue, so the number is
    small.
    """
    return next((place for place, other in enumerate(queue.batches) if batch.order < other.order), len(queue.batches))


def _blob_size(given: bytes | bytearray | memoryview | None) -> int:
    """Return the size of a key or value in bytes. `len` is not enough, because the elements of a memoryview may be
    longer than one byte.
    """
    return 0 if given is None else len(given) if type(given) is bytes else memoryview(given).nbytes


def _headers_size(headers: Headers) -> int:
    """Return the maximum encoded size of headers, in bytes."""
    return 5 + sum(HEADER_OVERHEAD_BYTES + len(name.encode()) + _blob_size(value) for name, value in headers)


def _refused_record(key: object, value: object, error: Exception) -> BaseException:
    """Return the error for a record that cannot be encoded."""
    for name, given in (("key", key), ("value", value)):
        if given is not None and not isinstance(given, (bytes, bytearray, memoryview)):
            return TypeError(f"{name} must be bytes or None, not {type(given).__name__}; encode it first")
    return TypeError(f"cannot encode the record: {error}; headers are (str, bytes or None) pairs, timestamps are int")
