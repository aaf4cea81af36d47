"""A batch on its way: the records of one partition that are sent, stored and acknowledged together.

The user's threads append until it is `closed`; then only the sender's thread touches it. `complete` is called once,
under the accumulator's lock, and never undone. All records of a batch share its outcome, so a delivery is no more
than a batch and an index, and costs nothing until somebody looks at it.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from typing import Protocol

from barnabas.errors import BarnabasError, Failure, TimedOutError
from barnabas.model import NO_LEADER_EPOCH, NO_OFFSET, NO_PRODUCER_ID, NO_TIMESTAMP, RecordMetadata, TimestampType
from barnabas.records import BatchBuilder, Record, read_records, stamp

log = logging.getLogger(__name__)

NO_SEQUENCE = -1

Order = tuple[int, ...]


class BatchWaiter(Protocol):
    """Waits for batches on behalf of their deliveries: the producer's accumulator."""

    def wait(self, batch: ProducerBatch, timeout_s: float | None) -> bool:
        """Wait until `batch` is done; it does not linger any longer. Returns whether it is."""
        ...

    def when_done(self, batch: ProducerBatch, callback: Callable[[], object]) -> None:
        """Run `callback` when `batch` is done: now, or later on the producer's own thread."""
        ...

    def hasten(self, batch: ProducerBatch) -> None:
        """Let `batch` linger no longer, since somebody waits for it."""
        ...


class ProducerBatch:
    """The records, the identity they are sent with, and in the end the outcome."""

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
        """Place among the batches of the partition: retries keep it, parts stand where the whole stood."""
        self.created_at_s = created_at_s
        self.builder = builder
        """What the records are in; it is given up when the batch is done, since deliveries may be kept for long."""
        builder.owner = self
        self._count = 0
        self._waiter = waiter
        self.size_bytes = 0
        """Bytes that the batch holds of the producer's memory."""
        self.urgent = False
        """Somebody waits for it: it does not linger."""
        self.watched = False
        """Somebody has asked for the outcome, and so will learn of a failure."""
        self.attempts = 0
        self.sent_at_s: float | None = None
        """When it left the queue for the first time."""
        self.data: bytes | bytearray | memoryview | None = None
        """What goes over the wire, built once per identity and kept for retries."""
        self.producer_id = NO_PRODUCER_ID
        self.producer_epoch = -1
        self.base_sequence = NO_SEQUENCE
        self.done = False
        self.finished: threading.Event | None = None
        """Made when the first waiter comes."""
        self.callbacks: list[Callable[[], object]] | None = None
        self.base_offset = NO_OFFSET
        self.log_append_time_ms = NO_TIMESTAMP
        self._failure: Failure | None = None
        self.parent: ProducerBatch | None = None
        self.parts: list[ProducerBatch] | None = None
        """The smaller batches that this one was split into, if a broker found it too large."""

    def __str__(self) -> str:
        records = "1 record" if self.count == 1 else f"{self.count} records"
        return f"{records} for {self.topic}-{self.partition}"

    @property
    def count(self) -> int:
        """Records so far."""
        return self._count if self.done else self.builder.count

    @property
    def closed(self) -> bool:
        """Whether no record can be added any more."""
        return self.done or self.builder.closed

    def close(self) -> None:
        """Let no record be added any more."""
        if not self.done:
            self.builder.closed = True

    @property
    def error(self) -> BarnabasError | None:
        """Why it failed, as an exception of the caller's own, or None."""
        return None if self._failure is None else self._failure.error()

    @property
    def failed(self) -> bool:
        """Whether it is done and was not delivered."""
        return self._failure is not None

    @property
    def in_sequence(self) -> bool:
        """Whether a sequence number has been given to it, so that a broker may have seen it."""
        return self.base_sequence != NO_SEQUENCE

    def identify(self, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
        """Give the batch the identity that brokers recognise it by (KIP-98)."""
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.base_sequence = base_sequence
        self.data = None

    def forget_sequence(self) -> None:
        """Take the sequence number away: the batch will be sent under another one."""
        self.base_sequence = NO_SEQUENCE
        self.data = None

    def payload(self) -> bytes | bytearray | memoryview:
        """Return the bytes to send; the same ones for every retry under the same identity."""
        if self.data is None:
            self.data = self.builder.build(self.producer_id, self.producer_epoch, self.base_sequence)
        return self.data

    def records(self) -> list[Record]:
        """Return the records as objects. Their offset is -1 until the broker has said where they are.

        Each call decodes them; not possible any more when the batch is done.
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
        """Return the batch that record `index` was sent in at last, and its index there."""
        batch = self
        while batch.parts is not None:
            for part in batch.parts:
                if index < part.count:
                    batch = part
                    break
                index -= part.count
            else:
                raise AssertionError("the parts of a batch hold all its records")
        return batch, index

    def complete(
        self,
        base_offset: int = NO_OFFSET,
        log_append_time_ms: int = NO_TIMESTAMP,
        error: BarnabasError | None = None,
    ) -> list[Callable[[], object]]:
        """Settle the outcome and wake who waits; return the callbacks to run, outside any lock."""
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

    # --- for deliveries: the outcome of one record ------------------------------------------------------

    def result(self, index: int, timestamp_ms: int, timeout_s: float | None) -> RecordMetadata:
        """Return the place of record `index`, waiting for it; see `Delivery.result`."""
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
        """Return why record `index` was not delivered, or None, waiting for it; see `Delivery.exception`."""
        if not self.done and not self._waiter.wait(self, timeout_s):
            within = f"within {timeout_s} s"
            if timeout_s is None:
                within = "yet, and this thread is the one that gets it: await the delivery, or ask in another thread"
            raise TimedOutError(
                f"no acknowledgement for {self.topic}-{self.partition} {within}; "
                "the record is still on its way and may yet arrive"
            )
        return self.part_of(index)[0].error

    def when_done(self, callback: Callable[[], object]) -> None:
        """Run `callback` when the batch is done: now, or later on the producer's own thread."""
        self._waiter.when_done(self, callback)

    async def wait_async(self, index: int, timestamp_ms: int) -> RecordMetadata:
        """Return the place of record `index`, waiting for it without blocking the event loop."""
        if not self.done:
            loop = asyncio.get_running_loop()
            settled = loop.create_future()
            self._waiter.when_done(self, lambda: loop.call_soon_threadsafe(_settle, settled))
            self._waiter.hasten(self)
            await settled
        return self.result(index, timestamp_ms, None)

    def describe(self, index: int) -> str:
        """Say how the delivery of record `index` stands."""
        failed = self.done and self.part_of(index)[0].failed
        state = "pending" if not self.done else "failed" if failed else "delivered"
        return f"<Delivery to {self.topic}-{self.partition}: {state}>"


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def run_callbacks(callbacks: list[Callable[[], object]]) -> None:
    """Run the callbacks of deliveries; log what one raises, and go on with the next."""
    for callback in callbacks:
        try:
            callback()
        except Exception:
            log.exception("a delivery callback raised; the producer goes on with the next callback")
