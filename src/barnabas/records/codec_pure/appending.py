"""What a producer does once for each record: choose the batch that it goes to, and promise an outcome."""

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
    """What deliveries ask: the producer's batch."""

    done: bool

    def result(self, index: int, timestamp_ms: int, timeout_s: float | None) -> RecordMetadata: ...
    def exception(self, index: int, timeout_s: float | None) -> BarnabasError | None: ...
    def when_done(self, callback: Callable[[], object]) -> None: ...
    async def wait_async(self, index: int, timestamp_ms: int) -> RecordMetadata: ...
    def describe(self, index: int) -> str: ...


class Delivery:
    """The outcome of one `send`, now or later: a batch and a place in it. Safe to use from any thread.

    `result()` waits for the acknowledgement and returns where the record is, or raises why it is nowhere; in a
    coroutine of an `AsyncProducer`, `await` does.
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
        """Return the record's place, waiting for it if need be.

        :param timeout_s: seconds to wait; None waits until `delivery_timeout_ms` decides.
        :raises TimedOutError: the outcome is still open after `timeout_s`; the record may yet arrive.
        :raises BarnabasError: why it was not delivered.
        """
        return self.batch.result(self.index, self.timestamp_ms, timeout_s)

    def exception(self, timeout_s: float | None = None) -> BarnabasError | None:
        """Return why the record was not delivered, or None if it was; waits like `result`.

        :raises TimedOutError: the outcome is still open after `timeout_s`.
        """
        return self.batch.exception(self.index, timeout_s)

    def add_done_callback(self, function: OnDelivery) -> None:
        """Call `function(delivery)` when the outcome is known, at once if it is already.

        The producer's own thread runs the function, so it should be quick and must not wait for other deliveries. The
        producer logs what the function raises.
        """
        self.batch.when_done(lambda: function(self))

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        return self.batch.wait_async(self.index, self.timestamp_ms).__await__()

    def __repr__(self) -> str:
        return self.batch.describe(self.index)


OnDelivery = Callable[[Delivery], object]


class OpenEncoders:
    """The encoders that records of one topic go to just now.

    `sticky_encoder` takes records without a key; `encoders` has one for each partition, or None where no batch
    is open, and is empty where keys do not decide by their hash.
    """

    def __init__(self, *_args: Any, **_settings: Any) -> None:
        self.sticky_encoder: RecordEncoder | None = None
        self.encoders: list[RecordEncoder | None] = []


class Appender:
    """`send`: the part of a producer that runs once for each record.

    The compiled twin appends the usual record (bytes, and maybe a key of bytes, nothing else given) straight to the
    encoder that `open_encoders` names for its topic, if that one is neither closed nor full. Everything else goes
    to `append`; here, that is every record.

    :param open_encoders: by topic, the encoders that take records just now; who fills batches keeps it up to date.
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
        """Send one record; arguments, result and errors are those of `Producer.send`."""
        delivery = self._append(topic, value, key, partition, timestamp_ms, headers)
        if on_delivery is not None:
            delivery.add_done_callback(on_delivery)
        return delivery


_MURMUR_SEED = 0x9747B28C
_MURMUR_M = 0x5BD1E995
_MASK = 0xFFFFFFFF
POSITIVE_MASK = 0x7FFFFFFF


def murmur2(data: bytes) -> int:
    """Return the 32-bit murmur2 hash of `data`, unsigned, with the seed that Kafka uses.

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
    """Return the rows in the order of their keys' partitions, as int64s, and how many each partition has.

    Rows without a key come last and are counted for partition `partition_count`.

    :raises ValueError: the column's offsets point outside of its data.
    """
    find = column_reader(keys)
    groups: list[list[int]] = [[] for _ in range(partition_count + 1)]
    for row in range(keys.length):
        key = find(row)
        groups[partition_count if key is None else (murmur2(key) & POSITIVE_MASK) % partition_count].append(row)
    return memoryview(array("q", chain.from_iterable(groups))).cast("B"), [len(group) for group in groups]
