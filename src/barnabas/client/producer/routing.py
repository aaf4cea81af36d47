"""Which record goes to which partition, and many records cut into runs that go there. No I/O, nothing that waits.

A run is appended bit by bit: `advance` adds what fits into one batch. What to do where memory is full, to block or
to await, is up to who calls it: the error leaves the run where it was.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import Protocol

from barnabas.client.producer.accumulator import Accumulator, TopicQueues
from barnabas.client.producer.delivery import Deliveries
from barnabas.client.producer.partitioner import partition_for_key
from barnabas.errors import ConfigurationError
from barnabas.model import Headers
from barnabas.records import BinaryBuffers, exact_bytes, group_rows
from barnabas.records.arrow import ArrowRows

Partitioner = Callable[[str, bytes | None, int], int]


class Run(Protocol):
    """Records on their way to the accumulator."""

    def advance(self, accumulator: Accumulator) -> bool:
        """Add what fits into one batch; return whether that was all.

        :raises BufferFullError: there is no room; nothing has been added by this call.
        :raises ApiError: MESSAGE_TOO_LARGE.
        """
        ...


class ValueRun:
    """Values, maybe with keys, that share a partition and a timestamp."""

    def __init__(
        self,
        queues: TopicQueues,
        partition: int | None,
        timestamp_ms: int,
        values: Sequence[bytes | None],
        keys: Sequence[bytes | None] | None,
        deliveries: Deliveries,
    ) -> None:
        self._queues = queues
        self._partition = partition
        self._timestamp_ms = timestamp_ms
        self._values = _exact("value", values)
        self._keys = None if keys is None else _exact("key", keys)
        self._deliveries = deliveries
        self._done = 0

    def advance(self, accumulator: Accumulator) -> bool:
        """Add what fits into one batch."""
        if self._done < len(self._values):
            batch, first, count = accumulator.append_values(
                self._queues, self._partition, self._timestamp_ms, self._values, self._done, self._keys
            )
            self._deliveries.extend(batch, first, count)
            self._done += count
        return self._done >= len(self._values)


class RecordRun:
    """Records that each have a timestamp, headers or a partition of their own."""

    def __init__(
        self,
        queues: TopicQueues,
        partition_of: Callable[[int], int | None],
        timestamps_ms: Sequence[int] | int,
        values: Sequence[bytes | None],
        keys: Sequence[bytes | None] | None,
        headers: Sequence[Headers] | None,
        deliveries: Deliveries,
    ) -> None:
        self._queues = queues
        self._partition_of = partition_of
        self._timestamps_ms = timestamps_ms
        self._values = values
        self._keys = keys
        self._headers = headers
        self._deliveries = deliveries
        self._done = 0

    def advance(self, accumulator: Accumulator) -> bool:
        """Add one record."""
        place = self._done
        if place < len(self._values):
            stamps = self._timestamps_ms
            batch, index = accumulator.append(
                self._queues,
                self._partition_of(place),
                stamps if isinstance(stamps, int) else stamps[place],
                None if self._keys is None else self._keys[place],
                self._values[place],
                () if self._headers is None else self._headers[place],
            )
            self._deliveries.extend(batch, index, 1)
            self._done += 1
        return self._done >= len(self._values)


class RowRun:
    """Rows of Arrow columns that share a partition; `order` numbers them, None takes them as they stand."""

    def __init__(
        self,
        queues: TopicQueues,
        partition: int | None,
        rows: ArrowRows,
        timestamp_ms: int,
        order: memoryview | None,
        span: range,
        deliveries: Deliveries,
    ) -> None:
        self._queues = queues
        self._partition = partition
        self._rows = rows
        self._stamps = timestamp_ms if rows.timestamps_ms is None else rows.timestamps_ms
        self._order = order
        self._left = span
        self._deliveries = deliveries

    def advance(self, accumulator: Accumulator) -> bool:
        """Add what fits into one batch."""
        left, rows = self._left, self._rows
        if left:
            first = left.start if self._order is None else self._order[left.start]
            first_size = value_size(rows.values, first) + (0 if rows.keys is None else value_size(rows.keys, first))
            batch, first_index, count = accumulator.append_rows(
                self._queues,
                self._partition,
                self._stamps,
                rows.values,
                rows.keys,
                self._order,
                left.start,
                left.stop,
                first_size,
            )
            self._deliveries.extend(batch, first_index, count)
            self._left = left[count:]
        return not self._left


def _exact(name: str, given: Sequence[bytes | None]) -> list[bytes | None]:
    """Return keys or values as a list of nothing but bytes and None.

    :raises TypeError: one of them is something else.
    """
    try:
        return exact_bytes(given)
    except TypeError:
        kinds = (type(each) for each in given if not isinstance(each, (bytes, bytearray, memoryview, type(None))))
        kind = next(kinds, type(given)).__name__
        raise TypeError(f"{name} must be bytes or None, not {kind}; encode it first") from None


def value_size(column: BinaryBuffers, row: int) -> int:
    """Return the bytes of one value of an Arrow column.

    >>> value_size(BinaryBuffers(2, array("i", [0, 3, 8]), b"onethree", None, 0), 1)
    5
    """
    offsets = memoryview(column.offsets).cast("B").cast("q" if column.is_wide else "i")
    place = column.start + row
    return max(0, offsets[place + 1] - offsets[place]) if place + 1 < len(offsets) else 0


def check_lengths(values: Sequence[object], keys: object, timestamps_ms: object, headers: object) -> None:
    """:raises ValueError: keys, timestamps or headers are not as many as values."""
    for name, given in (("keys", keys), ("timestamps_ms", timestamps_ms), ("headers", headers)):
        if given is not None and isinstance(given, Sequence) and len(given) != len(values):
            raise ValueError(f"{len(given)} {name} for {len(values)} values; they must be as many")


class RecordPartitioner:
    """Chooses partitions: the one that is given, else the user's function's, else the key's, else the sticky one.

    :param partitioner: (topic, key, partition count) -> partition, or None for Kafka's way.
    """

    def __init__(self, partitioner: Partitioner | None) -> None:
        self._partitioner = partitioner

    def partition(self, queues: TopicQueues, key: bytes | None, given: int | None) -> int | None:
        """Return the partition of a record; None stands for the sticky one.

        :raises ConfigurationError: there is no such partition.
        """
        count = len(queues.queues)
        if given is None:
            if self._partitioner is None:
                return None if key is None else partition_for_key(key, count)
            given = self._partitioner(queues.topic, key, count)
        if not 0 <= given < count:
            raise ConfigurationError(f"topic {queues.topic!r} has partitions 0 to {count - 1}, there is no {given}")
        return given

    def runs_of_values(
        self,
        queues: TopicQueues,
        values: Sequence[bytes | None],
        keys: Sequence[bytes | None] | None,
        partition: list[int | None] | int | None,
        timestamps_ms: Sequence[int] | int,
        headers: Sequence[Headers] | None,
        deliveries: Deliveries,
    ) -> Iterator[Run]:
        """Yield the runs that `send_many` is made of.

        :param partition: one for all values, or one for each.
        """
        if headers is not None or not isinstance(timestamps_ms, int) or isinstance(partition, list):

            def partition_of(place: int) -> int | None:
                given = partition[place] if isinstance(partition, list) else partition
                return self.partition(queues, None if keys is None else keys[place], given)

            yield RecordRun(queues, partition_of, timestamps_ms, values, keys, headers, deliveries)
        elif partition is not None or (keys is None and self._partitioner is None):
            chosen = self.partition(queues, None, partition)
            yield ValueRun(queues, chosen, timestamps_ms, values, keys, deliveries)
        else:
            yield from self._grouped_values(queues, values, keys, timestamps_ms, deliveries)

    def _grouped_values(
        self,
        queues: TopicQueues,
        values: Sequence[bytes | None],
        keys: Sequence[bytes | None] | None,
        timestamp_ms: int,
        deliveries: Deliveries,
    ) -> Iterator[Run]:
        groups: dict[int | None, list[int]] = {}
        for place in range(len(values)):
            chosen = self.partition(queues, None if keys is None else keys[place], None)
            groups.setdefault(chosen, []).append(place)
        deliveries.shuffled(0, [place for group in groups.values() for place in group])
        for chosen, group in groups.items():
            group_keys = None if keys is None else [keys[place] for place in group]
            yield ValueRun(queues, chosen, timestamp_ms, [values[place] for place in group], group_keys, deliveries)

    def runs_of_rows(
        self,
        queues: TopicQueues,
        rows: ArrowRows,
        partition: int | None,
        timestamp_ms: int,
        deliveries: Deliveries,
    ) -> Iterator[Run]:
        """Yield the runs that a part of a `send_arrow` is made of.

        :param timestamp_ms: for rows that bring no timestamps of their own.
        """
        length = rows.values.length
        if partition is not None or (rows.keys is None and self._partitioner is None):
            chosen = self.partition(queues, None, partition)
            yield RowRun(queues, chosen, rows, timestamp_ms, None, range(length), deliveries)
            return
        order, counts = self._grouped_rows(queues, rows)
        deliveries.shuffled(len(deliveries), order)
        ends = list(accumulate(counts.values()))
        for (chosen, count), end in zip(counts.items(), ends, strict=True):
            yield RowRun(queues, chosen, rows, timestamp_ms, order, range(end - count, end), deliveries)

    def _grouped_rows(self, queues: TopicQueues, rows: ArrowRows) -> tuple[memoryview, dict[int | None, int]]:
        """Return the rows in the order of their partitions, and how many each partition gets."""
        partition_count = len(queues.queues)
        if self._partitioner is None:
            assert rows.keys is not None
            order, counts = group_rows(rows.keys, partition_count)
            choices: list[int | None] = [*range(partition_count), None]
            return memoryview(order).cast("B").cast("q"), dict(zip(choices, counts, strict=True))
        groups: dict[int | None, list[int]] = {}
        for row in range(rows.values.length):
            key = None if rows.keys is None else rows.key(row)
            groups.setdefault(self.partition(queues, key, None), []).append(row)
        places = array("q", [row for group in groups.values() for row in group])
        return memoryview(places), {chosen: len(group) for chosen, group in groups.items()}
