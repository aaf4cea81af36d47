"""A batch on its way: the records of one partition that are sent, stored and acknowledged together.

The user's thread appends under the accumulator's lock; once `closed`, only the sender's thread touches it.
`complete` is called once, under the same lock, and never undone. All records of a batch share its outcome, so
a delivery is no more than a batch and an index, and costs nothing until somebody looks at it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from barnabas.errors import BarnabasError
from barnabas.model import NO_OFFSET, NO_PRODUCER_ID, NO_TIMESTAMP
from barnabas.records import BatchBuilder

NO_SEQUENCE = -1

Order = tuple[int, ...]


class ProducerBatch:
    """The records, the identity they are sent with, and in the end the outcome."""

    __slots__ = (
        "attempts",
        "base_offset",
        "base_sequence",
        "builder",
        "callbacks",
        "closed",
        "count",
        "created_at_s",
        "data",
        "done",
        "error",
        "finished",
        "log_append_time_ms",
        "order",
        "parent",
        "partition",
        "parts",
        "producer_epoch",
        "producer_id",
        "size_bytes",
        "topic",
        "urgent",
        "watched",
    )

    def __init__(self, topic: str, partition: int, order: Order, created_at_s: float, builder: BatchBuilder) -> None:
        self.topic = topic
        self.partition = partition
        self.order = order
        """Place among the batches of the partition: retries keep it, parts stand where the whole stood."""
        self.created_at_s = created_at_s
        self.builder = builder
        self.count = 0
        self.size_bytes = 0
        """Bytes that the batch holds of the producer's memory."""
        self.closed = False
        self.urgent = False
        """Somebody waits for it: it does not linger."""
        self.watched = False
        """Somebody has asked for the outcome, and so will learn of a failure."""
        self.attempts = 0
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
        self.error: BarnabasError | None = None
        self.parent: ProducerBatch | None = None
        self.parts: list[ProducerBatch] | None = None
        """The smaller batches that this one was split into, if a broker found it too large."""

    def __str__(self) -> str:
        records = "1 record" if self.count == 1 else f"{self.count} records"
        return f"{records} for {self.topic}-{self.partition}"

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
        self.base_offset = base_offset
        self.log_append_time_ms = log_append_time_ms
        self.error = error
        self.done = True
        self.data = None
        if self.finished is not None:
            self.finished.set()
        callbacks, self.callbacks = self.callbacks or [], None
        parent = self.parent
        if parent is not None and parent.parts is not None and all(part.done for part in parent.parts):
            callbacks = callbacks + parent.complete(
                parent.parts[0].base_offset,
                parent.parts[0].log_append_time_ms,
                next((part.error for part in parent.parts if part.error is not None), None),
            )
        return callbacks
