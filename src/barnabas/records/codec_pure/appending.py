"""The work of a producer for each record: it selects the batch for the record and returns a delivery."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Generator
from itertools import chain
from typing import Any, Protocol

from barnabas.errors import BarnabasError
from barnabas.model import GivenHeaders, RecordMetadata
from barnabas.records.codec_pure.encoding import RecordEncoder, column_reader
from barnabas.records.columns import BinaryBuffers, Buffer


class Batch(Protocol):
    """The methods of a producer's batch that deliveries use."""

    done: bool

    def result(self, index: int, timestamp_ms: int, timeout_s: float | None) -> RecordMetadata: ...
    def exception(self, index: int, timeout_s: float | None) -> BarnabasError | None: ...
    def when_done(self, callback: Callable[[], object]) -> None: ...
    async def wait_async(self, index: int, timestamp_ms: int) -> RecordMetadata: ...
    def describe(self, index: int) -> str: ...


class Delivery:
    """The outcome of one `send`, which may still be pending. Thread-safe.

    `result()` waits for the acknowledgement and returns the partition and offset of the record, or raises the error. In
    a coroutine of an `AsyncProducer`, use `await` instead.
    """

    __slots__ = ("batch", "index", "timestamp_ms")

    def __init__(self, batch: Batch, index: int, timestamp_ms: int) -> None:
        self.batch = batch
        self.index = index
        self.timestamp_ms = timestamp_ms

    def done(self) -> bool:
        """Return whether the outcome is known."""
        return self.batch.done

    def result(self, timeout_s: float | None = None) -> RecordMetadata:
        """Return the partition and offset of the record; wait for the acknowledgement if needed.

        :param timeout_s: the maximum number of seconds to wait; None waits until the record is delivered or
            `delivery_timeout_ms` has passed.
        :raises TimedOutError: the outcome is still unknown after `timeout_s`; the record may still be delivered.
        :raises BarnabasError: the record was not delivered.
        """
        return self.batch.result(self.index, self.timestamp_ms, timeout_s)

    def exception(self, timeout_s: float | None = None) -> BarnabasError | None:
        """Return the error of a failed delivery, or None after a successful one; waits like `result`.

        :raises TimedOutError: the outcome is still unknown after `timeout_s`.
        """
        return self.batch.exception(self.index, timeout_s)

    def add_done_callback(self, function: OnDelivery) -> None:
        """Call `function(delivery)` when the outcome is known. If it is already known, call the function immediately.

        The producer's own thread runs the function, so it should be fast and must not wait for other deliveries. The
        producer logs exceptions of the function.
        """
        self.batch.when_done(lambda: function(self))

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        return self.batch.wait_async(self.index, self.timestamp_ms).__await__()

    def __repr__(self) -> str:
        return self.batch.describe(self.index)


OnDelivery = Callable[[Delivery], object]


class OpenEncoders:
    """The encoders that currently receive the records of one topic.

    `sticky_encoder` receives records without a key. `encoders` contains one encoder per partition, or None for a
    partition without an open batch. The list is empty if the partitioner does not use the hash of keys.
    """

    def __init__(self, *_args: Any, **_settings: Any) -> None:
        self.sticky_encoder: RecordEncoder | None = None
        self.encoders: list[RecordEncoder | None] = []


class Appender:
    """`send`: the part of a producer that runs once per record.

    The compiled class appends a plain record (a value and optionally a key of bytes, no other arguments) directly to
    the encoder of its topic in `open_encoders`, if that encoder is neither closed nor full. All other records go to
    `append`; this Python class passes every record to `append`.

    :param open_encoders: the encoders that currently receive records, by topic. The accumulator updates them.
    :param append: takes the arguments of `send`, in their order.
    :param time_s: returns wall time in seconds.
    """

    def __init__(
        self, open_encoders: dict[str, OpenEncoders], append: Callable[..., Delivery], time_s: Callable[[], float]
    ) -> None:
        self._append = append

    def send(
        self,
        topic: str,
        value: bytes | None = None,
        key: bytes | None = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: GivenHeaders = (),
        on_delivery: OnDelivery | None = None,
    ) -> Delivery:
        """Send one record. The arguments, the result and the errors are the same as in `Producer.send`."""
        delivery = self._append(topic, value, key, partition, timestamp_ms, headers)
        if on_delivery is not None:
            delivery.add_done_callback(on_delivery)
        return delivery


_MURMUR_SEED = 0x9747B28C
_MURMUR_M = 0x5BD1E995
_MASK = 0xFFFFFFFF
POSITIVE_MASK = 0x7FFFFFFF


def murmur2(data: bytes) -> int:
    """Return the 32-bit murmur2 hash of `data`, unsigned, with Kafka's seed.

    >>> hex(murmur2(b"kafka"))
    '0xd067cf64'
    """
    length = len(data)
    whole = length & ~3
    h = _MURMUR_SEED ^ length
    for (k,) in struct.iter_unpack("<I", data[:whole]):
        k = (k * _MURMUR_M) & _MASK  # noqa: PLW2901  the mixing steps read like the algorithm's definition
        k ^= k >> 24  # noqa: PLW2901
        h = ((h * _MURMUR_M) & _MASK) ^ ((k * _MURMUR_M) & _MASK)
    if whole != length:
        h ^= int.from_bytes(data[whole:], "little")
        h = (h * _MURMUR_M) & _MASK
    h ^= h >> 13
    h = (h * _MURMUR_M) & _MASK
    return h ^ (h >> 15)


def group_rows(keys: BinaryBuffers, partition_count: int) -> tuple[Buffer, list[int]]:
    """Sort rows by the partitions of their keys; return the row numbers as int64s, and the row count per partition.

    Rows without a key are last. They are counted as partition number `partition_count`.

    :raises ValueError: the offsets of the column point outside its data.
    """
    find = column_reader(keys)
    groups: list[list[int]] = [[] for _ in range(partition_count + 1)]
    for row in range(keys.length):
        key = find(row)
        groups[partition_count if key is None else (murmur2(key) & POSITIVE_MASK) % partition_count].append(row)
    return memoryview(array("q", chain.from_iterable(groups))).cast("B"), [len(group) for group in groups]
