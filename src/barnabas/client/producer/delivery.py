"""What `send` returns: a promise of a place in the log, as light as two references and two numbers."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, overload

from barnabas.client.producer.batch import ProducerBatch
from barnabas.errors import BarnabasError, TimedOutError
from barnabas.model import NO_OFFSET, NO_TIMESTAMP, RecordMetadata


class Desk(Protocol):
    """Where deliveries ask about batches: the producer's accumulator."""

    def wait(self, batch: ProducerBatch, timeout_s: float | None) -> bool:
        """Wait until `batch` is done; it does not linger any longer. Returns whether it is."""
        ...

    def when_done(self, batch: ProducerBatch, callback: Callable[[], object]) -> None:
        """Run `callback` when `batch` is done: now, or later on the producer's own thread."""
        ...


class Delivery:
    """The outcome of one `send`, now or later. Safe to use from any thread.

    `result()` waits for the acknowledgement and returns where the record is, or raises why it is nowhere.
    """

    __slots__ = ("_batch", "_desk", "_index", "_timestamp_ms")

    def __init__(self, desk: Desk, batch: ProducerBatch, index: int, timestamp_ms: int) -> None:
        self._desk = desk
        self._batch = batch
        self._index = index
        self._timestamp_ms = timestamp_ms

    @property
    def place(self) -> tuple[ProducerBatch, int]:
        """The batch that carries the record, and its index there."""
        return self._batch, self._index

    def done(self) -> bool:
        """Return whether the outcome is known."""
        return self._batch.done

    def result(self, timeout_s: float | None = None) -> RecordMetadata:
        """Return the record's place, waiting for it if need be.

        :param timeout_s: seconds to wait; None waits until `delivery_timeout_ms` decides.
        :raises TimedOutError: the outcome is still open after `timeout_s`; the record may yet arrive.
        :raises BarnabasError: why it was not delivered.
        """
        error = self.exception(timeout_s)
        if error is not None:
            raise error
        batch, index = self._batch.part_of(self._index)
        offset = NO_OFFSET if batch.base_offset == NO_OFFSET else batch.base_offset + index
        appended_ms = batch.log_append_time_ms
        timestamp_ms = self._timestamp_ms if appended_ms == NO_TIMESTAMP else appended_ms
        return RecordMetadata(batch.topic, batch.partition, offset, timestamp_ms)

    def exception(self, timeout_s: float | None = None) -> BarnabasError | None:
        """Return why the record was not delivered, or None if it was; waits like `result`.

        :raises TimedOutError: the outcome is still open after `timeout_s`.
        """
        batch = self._batch
        if not batch.done and not self._desk.wait(batch, timeout_s):
            raise TimedOutError(
                f"no acknowledgement for {batch.topic}-{batch.partition} within {timeout_s} s; "
                "the record is still on its way and may yet arrive"
            )
        return batch.part_of(self._index)[0].error

    def add_done_callback(self, function: Callable[[Delivery], object]) -> None:
        """Call `function(delivery)` when the outcome is known, at once if it is already.

        It runs on the producer's own thread, so it should be quick and must not wait for other deliveries.
        """
        self._desk.when_done(self._batch, lambda: function(self))

    def __repr__(self) -> str:
        state = "pending" if not self.done() else "failed" if self.exception() else "delivered"
        return f"<Delivery to {self._batch.topic}-{self._batch.partition}: {state}>"


class Deliveries(Sequence[Delivery]):
    """The outcomes of one `send_many`, in the order of the values; made one by one as they are looked at."""

    __slots__ = ("_batches", "_desk", "_firsts", "_length", "_starts", "_timestamps_ms")

    def __init__(self, desk: Desk, timestamps_ms: int | Sequence[int]) -> None:
        self._desk = desk
        self._timestamps_ms = timestamps_ms
        self._starts: list[int] = []
        self._batches: list[ProducerBatch] = []
        self._firsts: list[int] = []
        self._length = 0

    def extend(self, batch: ProducerBatch, first_index: int, count: int) -> None:
        """Add `count` records that lie in `batch` from `first_index` on."""
        follows = (
            self._batches
            and self._batches[-1] is batch
            and self._firsts[-1] + self._length - self._starts[-1] == first_index
        )
        if not follows:
            self._starts.append(self._length)
            self._batches.append(batch)
            self._firsts.append(first_index)
        self._length += count

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, item: int) -> Delivery: ...
    @overload
    def __getitem__(self, item: slice) -> list[Delivery]: ...
    def __getitem__(self, item: int | slice) -> Delivery | list[Delivery]:
        if isinstance(item, slice):
            return [self._at(place) for place in range(*item.indices(self._length))]
        place = item + self._length if item < 0 else item
        if not 0 <= place < self._length:
            raise IndexError(f"delivery {item} of {self._length}")
        return self._at(place)

    def __iter__(self) -> Iterator[Delivery]:
        return (self._at(place) for place in range(self._length))

    def _at(self, place: int) -> Delivery:
        run = bisect.bisect_right(self._starts, place) - 1
        stamps = self._timestamps_ms
        timestamp_ms = stamps if isinstance(stamps, int) else stamps[place]
        index = self._firsts[run] + place - self._starts[run]
        return Delivery(self._desk, self._batches[run], index, timestamp_ms)

    def result(self, timeout_s: float | None = None) -> list[RecordMetadata]:
        """Return the places of all records, waiting for them; `timeout_s` is for each batch.

        :raises BarnabasError: why the first record that was not delivered was not.
        """
        return [delivery.result(timeout_s) for delivery in self]

    def __repr__(self) -> str:
        done = sum(batch.done for batch in self._batches)
        return f"<Deliveries of {self._length} records, {done} of {len(self._batches)} parts done>"
