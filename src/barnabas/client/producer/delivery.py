"""The result of `send_many` and `send_arrow`: the deliveries of many records. Each `Delivery` is created when the
program reads it.
"""

from __future__ import annotations

import bisect
from array import array
from collections.abc import Generator, Iterator, Sequence
from typing import Any, overload

from barnabas.client.producer.accumulator import ProducerBatch
from barnabas.errors import BarnabasError
from barnabas.model import RecordMetadata
from barnabas.records import Delivery

__all__ = ["Deliveries", "Delivery"]


class Deliveries(Sequence[Delivery]):
    """The deliveries of one call, in the order of the values; a sequence of `Delivery`.

    `result()` waits for all of them. In a coroutine, await the object instead.

    :param timestamps_ms: one timestamp in ms for all records, or one for each.

        with barnabas.Producer("localhost:9092") as producer:
            deliveries = producer.send_many("clicks", [b"/jobs", b"/feed"])
            print(deliveries[0].result().offset, len(deliveries))
    """

    __slots__ = ("_batches", "_firsts", "_length", "_order", "_places", "_starts", "_timestamps_ms")

    def __init__(self, timestamps_ms: int | Sequence[int]) -> None:
        self._timestamps_ms = timestamps_ms
        self._starts: list[int] = []
        self._batches: list[ProducerBatch] = []
        self._firsts: list[int] = []
        self._length = 0
        self._order: list[tuple[int, Sequence[int]]] = []
        self._places: array[int] | None = None

    def extend(self, batch: ProducerBatch, first_index: int, count: int) -> None:
        """Add `count` records of `batch`, from `first_index` on."""
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

    def shuffled(self, start: int, order: Sequence[int]) -> None:
        """Map records to values from `start` on: record `start + i` belongs to value `start + order[i]`."""
        self._order.append((start, order))
        self._places = None

    def without_delivery(self, count: int) -> list[int]:
        """Return the indexes of the values whose records `extend` has not added."""
        value_of = list(range(count))
        for start, order in self._order:
            value_of[start : start + len(order)] = [start + row for row in order]
        return sorted(value_of[self._length :])

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

    def _at(self, value: int) -> Delivery:
        place = self._place_of(value)
        run = bisect.bisect_right(self._starts, place) - 1
        stamps = self._timestamps_ms
        timestamp_ms = stamps if isinstance(stamps, int) else stamps[value]
        return Delivery(self._batches[run], self._firsts[run] + place - self._starts[run], timestamp_ms)

    def _place_of(self, value: int) -> int:
        """Return the index of a value's record in the order in which `extend` has added the records."""
        if not self._order:
            return value
        if self._places is None:
            self._places = array("q", range(self._length))
            for start, order in self._order:
                for place, row in enumerate(order):
                    self._places[start + row] = start + place
        return self._places[value]

    def result(self, timeout_s: float | None = None) -> list[RecordMetadata]:
        """Wait for all records and return their metadata, in the order of the values.

        :param timeout_s: the timeout in seconds for each batch. None means no timeout other than `delivery_timeout_ms`.
        :raises TimedOutError: the outcome of a batch is still unknown after `timeout_s`.
        :raises BarnabasError: the error of the first record that failed.
        """
        return [delivery.result(timeout_s) for delivery in self]

    def done(self) -> bool:
        """Return whether all records are acknowledged or have failed."""
        return all(batch.done for batch in self._batches)

    def exception(self, timeout_s: float | None = None) -> BarnabasError | None:
        """Wait for all records. Return the error of the first record that failed, or None.

        The cost grows with the number of batches, not with the number of records.

        :param timeout_s: the timeout in seconds for each batch.
        :raises TimedOutError: the outcome of a batch is still unknown after `timeout_s`.
        """
        ends = [*self._starts[1:], self._length] if self._starts else []
        for batch, first, start, end in zip(self._batches, self._firsts, self._starts, ends, strict=True):
            error = batch.exception(first, timeout_s)
            if batch.parts is not None:  # the producer has split the batch, because a broker rejected it as too large
                errors = (batch.exception(first + place, timeout_s) for place in range(end - start))
                error = next((each for each in errors if each is not None), None)
            if error is not None:
                return error
        return None

    def check(self, timeout_s: float | None = None) -> None:
        """Wait until all records are delivered. The cost grows with the number of batches, not with the number of
        records.

        :raises BarnabasError: the error of the first record that failed.
        """
        error = self.exception(timeout_s)
        if error is not None:
            raise error

    def __await__(self) -> Generator[Any, None, list[RecordMetadata]]:
        return self._wait_async().__await__()

    async def _wait_async(self) -> list[RecordMetadata]:
        for batch, first in zip(self._batches, self._firsts, strict=True):
            await batch.wait_async(first, 0)
        return self.result()

    def __repr__(self) -> str:
        done = sum(batch.done for batch in self._batches)
        return f"<Deliveries of {self._length} records, {done} of {len(self._batches)} parts done>"
