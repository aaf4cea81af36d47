"""The path of fetched records to the application: decoding, deserializers, and the positions of returned records. No
I/O, no waiting.

- `decode_chunk` and `decode_columns` decode a chunk of batches. If a batch is damaged, they return the records before
  this batch, and the error.
- `Deserializers` calls the application's functions for keys and values.
- `Cursor` is the position of one reader. An iteration returns records directly from a list iterator, without Python
  code for each record; the length hint of the iterator shows how many records it has returned. A chunk stays in the
  cursor until all of its records are returned, so an iteration can continue after a poll, and vice versa.
- `FetchedRecords` returns buffered records as lists, iterators or columns. It raises the error of a damaged batch or of
  a deserializer after all earlier records are returned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime
from operator import length_hint
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from barnabas.client.consumer.call_steps import Guard
from barnabas.client.consumer.fetcher import AssignedPartition, Chunk, Fetcher, Subscription
from barnabas.client.interceptors import ConsumerInterceptors, FetchedBatch
from barnabas.clock import Clock
from barnabas.errors import BarnabasError, CorruptBatchError, DeserializationError
from barnabas.metrics.rolling_sum import RollingSum, greatest_of, mean_of
from barnabas.model import TopicPartition
from barnabas.records import Record, iter_headers, read_records
from barnabas.records.reader import record_stretches
from barnabas.records.record_protocol import timestamp_of

if TYPE_CHECKING:
    from barnabas.records.arrow import ArrowReader

T_co = TypeVar("T_co", covariant=True)


class ConsumerMetrics:
    """The returned records and bytes of a consumer, and the latencies of its requests.

    :ivar fetch_latency_ms: the latency of fetches, by the id of the broker.
    :ivar throttle_ms: the throttle times in fetch responses, without zeros.
    :ivar commit_ms: the duration of commits.
    :ivar rebalance_ms: the duration of joins, until the member has its assignment.
    :ivar idle_s: the time for which polls waited for records.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.records = RollingSum(clock)
        self.bytes = RollingSum(clock)
        self.fetch_latency_ms: dict[int, RollingSum] = {}
        self.throttle_ms = RollingSum(clock)
        self.commit_ms = RollingSum(clock)
        self.rebalance_ms = RollingSum(clock)
        self.idle_s = RollingSum(clock)

    def fetched(self, node_id: int, latency_s: float) -> None:
        latency_ms = self.fetch_latency_ms.get(node_id)
        if latency_ms is None:
            latency_ms = self.fetch_latency_ms[node_id] = RollingSum(self._clock)
        latency_ms.add(latency_s * 1000)

    def figures(self) -> dict[str, float]:
        latencies = list(self.fetch_latency_ms.values())
        return {
            "records_total": int(self.records.total),
            "records_per_s": self.records.per_s(),
            "bytes_total": int(self.bytes.total),
            "bytes_per_s": self.bytes.per_s(),
            "fetches_total": sum(each.count for each in latencies),
            "fetch_latency_avg_ms": mean_of(latencies),
            "fetch_latency_max_ms": greatest_of(latencies),
            "throttle_time_total_ms": int(self.throttle_ms.total),
        }


class TopicDeserializer(Protocol[T_co]):
    """A deserializer whose result may depend on the topic."""

    def deserialize(self, data: bytes, topic: str, is_key: bool = False) -> T_co: ...


Deserializer = Callable[[bytes], T_co] | TopicDeserializer[T_co]


class DeserializedRecord(NamedTuple):
    """A `Record` with a deserialized key and value."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    timestamp_type: Any
    key: Any
    value: Any
    headers: Any

    @property
    def timestamp(self) -> datetime | None:
        """The timestamp in UTC; see `Record`."""
        return timestamp_of(self.timestamp_ms)


class Deserializers:
    """Calls the deserializers of keys and values. They are not called for None, for example for the value of a
    tombstone.

    >>> Deserializers(None, "utf-8")
    Traceback (most recent call last):
    TypeError: value_deserializer must be a function of bytes, for example json.loads, not 'utf-8'
    """

    def __init__(self, key: Deserializer[Any] | None, value: Deserializer[Any] | None) -> None:
        for name, given in (("key_deserializer", key), ("value_deserializer", value)):
            if given is not None and not callable(given) and not hasattr(given, "deserialize"):
                raise TypeError(f"{name} must be a function of bytes, for example json.loads, not {given!r}")
        self._key = _of_topic(key, is_key=True)
        self._value = _of_topic(value, is_key=False)

    def __bool__(self) -> bool:
        return self._key is not None or self._value is not None

    def apply(self, records: list[Record]) -> tuple[list[Any], DeserializationError | None]:
        """Deserialize records up to the first error. Return the deserialized records, and the error (None if there is
        none).
        """
        made: list[Any] = []
        for record in records:
            name = "key_deserializer"
            try:
                key = record.key if self._key is None or record.key is None else self._key(record.key, record.topic)
                name = "value_deserializer"
                value = (
                    record.value
                    if self._value is None or record.value is None
                    else self._value(record.value, record.topic)
                )
            except Exception as cause:  # noqa: BLE001 - the application's deserializer may raise any exception
                error = DeserializationError(
                    record.topic, record.partition, record.offset, f"{name}: {cause!r}; seek past it to continue"
                )
                error.__cause__ = cause
                return made, error
            made.append(
                DeserializedRecord(
                    record.topic,
                    record.partition,
                    record.offset,
                    record.timestamp_ms,
                    record.timestamp_type,
                    key,
                    value,
                    record.headers,
                )
            )
        return made, None


def _of_topic(given: Deserializer[Any] | None, *, is_key: bool) -> Callable[[bytes, str], Any] | None:
    """Return a function of bytes and topic that calls a deserializer with or without the topic, as the deserializer
    requires.
    """
    if given is None:
        return None
    if callable(given):
        function = given
        return lambda data, _topic: function(data)
    deserialize = given.deserialize
    return lambda data, topic: deserialize(data, topic, is_key)


def decode_chunk(
    chunk: Chunk, min_offset: int, *, check_crc: bool
) -> tuple[list[Record], Chunk, CorruptBatchError | None]:
    """Return the records from `min_offset` on, the undamaged part of the chunk, and the error of the first damaged
    batch (None if there is none).
    """
    tp = chunk.state.tp
    try:
        records = read_records(chunk.data, tp.topic, tp.partition, min_offset=min_offset, check_crc=check_crc)
    except CorruptBatchError as error:
        return (*_whole_part(chunk, min_offset, check_crc), error)
    return records, chunk, None


def decode_columns(
    chunk: Chunk, reader: ArrowReader, min_offset: int, records_max: int, *, check_crc: bool
) -> tuple[int, Chunk | None, CorruptBatchError | None]:
    """Add at most `records_max` records from `min_offset` on to `reader`.

    :return: the offset after the added records, the rest of the chunk, and the error of a damaged batch; the last two
        may be None.
    """
    tp = chunk.state.tp
    try:
        next_offset = reader.read(
            chunk.data, tp.topic, tp.partition, min_offset=min_offset, max_records=records_max, check_crc=check_crc
        )
    except CorruptBatchError as error:
        _, whole = _whole_part(chunk, min_offset, check_crc)
        return whole.next_offset, None, error
    rest = _rest(chunk, next_offset)
    return chunk.next_offset if rest is None else next_offset, rest, None


def offset_after_batch(chunk: Chunk, offset: int) -> int | None:
    """Return the offset after the batch that contains `offset`, according to the batch header, or None if no batch
    contains `offset`.
    """
    try:
        for _, header in iter_headers(chunk.data, partial_ok=True):
            if header.next_offset > offset:
                return header.next_offset
    except CorruptBatchError:
        pass
    return None


def _rest(chunk: Chunk, offset: int) -> Chunk | None:
    """Return the batches from the batch that contains `offset` on, or None if these batches have no records for the
    application.
    """
    view = memoryview(chunk.data)
    for position, header in iter_headers(view, partial_ok=True):
        if header.next_offset > offset and not header.is_control:
            return Chunk(chunk.state, chunk.version, view[position:], chunk.next_offset)
    return None


def _whole_part(chunk: Chunk, min_offset: int, check_crc: bool) -> tuple[list[Record], Chunk]:
    """Return the batches before the first damaged batch, and their records."""
    tp = chunk.state.tp
    view = memoryview(chunk.data)
    records: list[Record] = []
    end, next_offset = 0, min_offset
    try:
        for position, header in iter_headers(view, partial_ok=True):
            batch = view[position : position + header.size]
            records += read_records(batch, tp.topic, tp.partition, min_offset=min_offset, check_crc=check_crc)
            end, next_offset = position + header.size, max(next_offset, header.next_offset)
    except CorruptBatchError:
        pass  # ignore the error: the caller has already received it when it decoded the whole chunk
    return records, Chunk(chunk.state, chunk.version, view[:end], next_offset)


def accept_all(_tp: TopicPartition) -> bool:
    return True


class Cursor:
    """Returns the records of one chunk after another. Not thread-safe: callers must hold the consumer's guard.

    Invariant: all records of the current chunk before its partition's position are returned, or are in the list `out`,
    from which `iterator` returns them one by one. In a decoded chunk, these are the records before `records[index]`.
    """

    def __init__(self, accepts: Callable[[TopicPartition], bool] = accept_all) -> None:
        self.accepts = accepts
        self._state: AssignedPartition | None = None
        self._version = 0
        self._chunk: Chunk | None = None
        self._records: list[Record] | None = None
        """The decoded records of the current chunk, or None while the rest of the chunk is not decoded.
        """
        self._index = 0
        self._out: list[Record] = []
        self._left: Iterator[Record] = iter(())
        """An iterator over `_out`."""
        self._iterator: Iterator[Record] = iter(())
        """The iterator that the application currently uses."""
        self._returned: dict[AssignedPartition, int] = {}
        """The partitions with returned records that the application may still be processing, each with its version at
        the time of the return.
        """

    @property
    def has_records(self) -> bool:
        """Return whether there are decoded records to return."""
        return self._records is not None and self._index < len(self._records) and self._current() is not None

    @property
    def has_rest(self) -> bool:
        """Return whether the current chunk has records, decoded or not, that are not returned yet."""
        return self._is_left() and self._current() is not None

    def is_reading(self, state: AssignedPartition) -> bool:
        """Return whether the current chunk belongs to partition `state`."""
        return state is self._state

    def _current(self) -> AssignedPartition | None:
        """Return the partition of the current chunk, or None if a seek has made the chunk invalid."""
        state = self._state
        if state is None or state.version != self._version or state.paused:
            return None
        return state

    def _is_left(self) -> bool:
        return self._chunk is not None and (self._records is None or self._index < len(self._records))

    def load(self, chunk: Chunk, records: list[Record]) -> None:
        """Set the current chunk and its decoded records."""
        self._turn_to(chunk)
        self._chunk, self._records = chunk, records
        if not records:
            # The chunk contains only control batches or compacted offsets: advance the position, and return no record.
            self._advance(chunk.state, chunk.next_offset)

    def take_remaining(self) -> Chunk | None:
        """Return the rest of the current chunk, from its partition's position on, or None if there is none."""
        self.put_back()
        if self._chunk is None or not self.has_rest:
            return None
        chunk, self._chunk, self._records = self._chunk, None, None
        return chunk

    def mark_returned(self, chunk: Chunk, next_offset: int, rest: Chunk | None = None) -> None:
        """Count the records of `chunk` before `next_offset` as returned; `rest` is its undecoded rest."""
        self._turn_to(chunk)
        self._chunk = rest
        self._advance(chunk.state, next_offset)

    def _turn_to(self, chunk: Chunk) -> None:
        """Replace the current chunk. The rest of a chunk of a paused partition is discarded, and
        fetched again later.
        """
        self.put_back()
        old = self._state
        if self._is_left() and old is not None and old.version == self._version:
            old.refetch()
            if old in self._returned:
                self._returned[old] = old.version
        state = chunk.state
        self._state, self._version = state, state.version
        self._chunk, self._records, self._index = None, None, 0
        if state in self._returned:
            self._returned[state] = state.version

    def _advance(self, state: AssignedPartition, position: int) -> None:
        state.position = position
        self._returned[state] = state.version

    def _advance_to_index(self, state: AssignedPartition) -> None:
        assert self._chunk is not None
        assert self._records is not None
        everything = self._index == len(self._records)
        self._advance(state, self._chunk.next_offset if everything else self._records[self._index].offset)

    def take_list(self, records_max: int) -> list[Record]:
        """Return the next records, at most `records_max`, and count them as returned."""
        state = self._current()
        if state is None or self._records is None:
            return []
        start, self._index = self._index, min(self._index + records_max, len(self._records))
        self._advance_to_index(state)
        return self._records[start : self._index]

    def take_iterator(self, records_max: int, may_go_on: Callable[[], bool] | None = None) -> Iterator[Record]:
        """Return an iterator over the next records. The last record that it returned is the current record.

        :param may_go_on: called before each record; the iterator ends when it returns False. None means no check.
        """
        self._out = self.take_list(records_max)
        self._left = iter(self._out)
        self._iterator = self._left if may_go_on is None else _while_true(may_go_on, self._left)
        return self._iterator

    @property
    def iterator(self) -> Iterator[Record[Any, Any]]:
        """The iterator that the application currently uses."""
        return self._iterator

    @property
    def unreturned_count(self) -> int:
        """The number of records that the iterator has not yet returned."""
        return length_hint(self._left) if self._out else 0

    def position(self, state: AssignedPartition) -> int | None:
        if state is self._state and state.version == self._version and self._out:
            returned = len(self._out) - self.unreturned_count
            return self._out[returned].offset if returned < len(self._out) else state.position
        return state.position

    def done(self, state: AssignedPartition) -> int | None:
        """Return the offset below which all records of a partition are processed."""
        if state is self._state and state.version == self._version and self._out:
            returned = len(self._out) - self.unreturned_count
            return self._out[max(returned - 1, 0)].offset
        return state.done

    def mark_processed(self) -> None:
        """Mark all returned records as processed, because the application has asked for more records."""
        self.put_back()
        for state, version in self._returned.items():
            if state.version == version:
                state.done = state.position
        self._returned.clear()
        if not self._is_left():
            self._chunk = self._records = None

    def put_back(self) -> None:
        """Take back the records that an interrupted iteration has not returned."""
        if not self._out:
            return
        left = self.unreturned_count
        state = self._state
        if left and state is not None and state.version == self._version:
            self._index -= left
            self._advance_to_index(state)
        # Clearing the list ends the application's iterator. The application then asks for more records.
        self._out.clear()
        self._out = []
        self._iterator = self._left = iter(())

    def drop(self, gone: Callable[[AssignedPartition], bool]) -> None:
        """Stop returning records of the partitions for which `gone` returns True, because they are revoked or have a
        new position.
        """
        if self._state is not None and gone(self._state):
            # Clearing the list ends the application's iterator, so a running iteration immediately asks for more
            # records.
            self._out.clear()
            self._chunk = self._records = self._state = None
        self._returned = {state: version for state, version in self._returned.items() if not gone(state)}


def _while_true(condition: Callable[[], bool], records: Iterator[Record]) -> Iterator[Record]:
    """Yield records while the condition is true. The condition is checked before a record is taken, because a record
    that is taken but not returned would be lost.
    """
    while condition() and (record := next(records, None)) is not None:
        yield record


class FetchedRecordBatch(FetchedBatch):
    """A fetched batch whose records were decoded to objects."""

    def __init__(self, chunk: Chunk, position: int, records: list[Record]) -> None:
        self.partition = chunk.state.tp
        self.position = position
        self._records = records

    def __len__(self) -> int:
        return len(self._records)

    def records(self) -> tuple[Record, ...]:
        return tuple(self._records)

    def stretches(self, width_ms: int) -> list[tuple[int, int, int]]:
        return record_stretches(self._records, width_ms)


class FetchedColumnBatch(FetchedBatch):
    """A fetched batch whose records were added to columns, from row `start` on."""

    def __init__(self, chunk: Chunk, position: int, columns: ArrowReader, row: int) -> None:
        self.partition = chunk.state.tp
        self.position = position
        self._chunk = chunk
        self._columns = columns
        self._row = row
        self._count = len(columns) - row

    def __len__(self) -> int:
        return self._count

    def records(self) -> list[Record]:
        decoded, _whole, _damage = decode_chunk(self._chunk, self.position, check_crc=False)
        return decoded[: self._count]

    def stretches(self, width_ms: int) -> list[tuple[int, int, int]]:
        return self._columns.stretches(self._row, width_ms)


class FetchedRecords:
    """Returns buffered records. It takes the guard, but does not hold it during decoding."""

    def __init__(
        self,
        guard: Guard,
        subscription: Subscription,
        fetcher: Fetcher,
        metrics: ConsumerMetrics,
        interceptors: ConsumerInterceptors,
        deserializers: Deserializers,
        *,
        check_crc: bool,
    ) -> None:
        self._guard = guard
        self._subscription = subscription
        self._fetcher = fetcher
        self._metrics = metrics
        self._interceptors = interceptors
        self._deserializers = deserializers
        self._check_crc = check_crc

    def load(self, cursor: Cursor) -> bool:
        """Load buffered records into `cursor` if it is empty. Return whether it now has records.

        :raises CorruptBatchError: the next batch is damaged.
        :raises DeserializationError: a deserializer raises an error for the next record.
        """
        while True:
            with self._guard.lock:
                if cursor.has_records:
                    return True
                taken = self._take_chunk(cursor)
            if taken is None:
                return False
            chunk, position = taken
            decoded, whole, damage = decode_chunk(chunk, position, check_crc=self._check_crc)
            records, whole, trouble = self._deserialize(chunk, decoded, whole, damage)
            with self._guard.lock:
                if not self._fetcher.is_current(chunk):
                    continue
                if self._interceptors.see_batches:
                    self._interceptors.on_records_batch(FetchedRecordBatch(chunk, position, decoded))
                if trouble is not None:
                    self._fetch_again_from(chunk, whole.next_offset)
                    whole.version = chunk.state.version
                cursor.load(whole, records)
                self._metrics.records.add(len(records))
            if self._interceptors.see_records:
                self._interceptors.on_records(decoded[: len(records)])
            if records:
                return True
            if trouble is not None:
                raise trouble

    def _deserialize(
        self, chunk: Chunk, decoded: list[Record], whole: Chunk, damage: CorruptBatchError | None
    ) -> tuple[list[Record], Chunk, BarnabasError | None]:
        """Deserialize records. Return the records, the part of the chunk that contains them, and the error of the next
        record (None if there is none).
        """
        if self._deserializers:
            records, refused = self._deserializers.apply(decoded)
            if refused is not None:
                return records, replace(whole, next_offset=refused.offset), refused
        else:
            records = decoded
        return records, whole, None if damage is None else _damaged(chunk, whole.next_offset, damage)

    def take_list(self, cursor: Cursor, records_max: int) -> list[Record]:
        """Return at most `records_max` records of `cursor`, which must not be empty."""
        records: list[Record] = []
        while len(records) < records_max:
            with self._guard.lock:
                records += cursor.take_list(records_max - len(records))
            try:
                if len(records) >= records_max or not self.load(cursor):
                    break
            except (CorruptBatchError, DeserializationError):
                break  # the next poll raises the decoding error
        return records

    def fill_columns(self, cursor: Cursor, columns: ArrowReader, records_max: int) -> bool:
        """Add at most `records_max` buffered records to `columns`; return whether `columns` now has records.

        :raises CorruptBatchError: the next batch is damaged.
        """
        before = len(columns)
        while len(columns) < records_max:
            with self._guard.lock:
                taken = self._take_chunk(cursor)
            if taken is None:
                break
            chunk, position = taken
            row = len(columns)
            next_offset, rest, damage = decode_columns(
                chunk, columns, position, records_max - len(columns), check_crc=self._check_crc
            )
            with self._guard.lock:
                # If another thread has called `seek` meanwhile, treat these records as returned before the seek.
                is_held = self._fetcher.is_current(chunk)
                if is_held:
                    if self._interceptors.see_batches:
                        self._interceptors.on_records_batch(FetchedColumnBatch(chunk, position, columns, row))
                    if damage is not None:
                        self._fetch_again_from(chunk, next_offset)
                    cursor.mark_returned(chunk, next_offset, rest)
            if is_held and self._interceptors.see_records:
                self._interceptors.on_records(FetchedColumnBatch(chunk, position, columns, row).records())
            if damage is not None and not len(columns):
                raise _damaged(chunk, next_offset, damage)
            if damage is not None or rest is not None:
                break  # the columns are full, or the next poll raises the decoding error
        self._metrics.records.add(len(columns) - before)
        return len(columns) > 0

    def _take_chunk(self, cursor: Cursor) -> tuple[Chunk, int] | None:
        """Return the next chunk to decode, and the offset to start at. The caller must hold the guard."""
        chunk = cursor.take_remaining()
        if chunk is None:
            chunk = self._fetcher.take(cursor.accepts)
            if chunk is None:
                return None
            self._metrics.bytes.add(len(chunk.data))
            if self._fetcher.wants_fetch:
                self._fetcher.wants_fetch = False
                # Wake the background before the decoding, so that the next fetch is in flight during the decoding.
                self._guard.wake_background()
        position = chunk.state.position
        assert position is not None
        return chunk, position

    def take_back(self, cursor: Cursor) -> None:
        """Take back all records that `cursor` has taken since `finish`, because a signal or a lack of memory has
        interrupted the call. The records are fetched again, so none is lost or duplicated.
        """
        with self._guard.lock:
            cursor.drop(lambda _state: True)
            for state in self._subscription.partitions.values():
                if cursor.accepts(state.tp) and state.done is not None:
                    state.position = state.done
                    state.refetch()
            self._fetcher.drop_stale()
            self._guard.wake_background()

    def _fetch_again_from(self, chunk: Chunk, offset: int) -> None:
        """Fetch again from a damaged batch on, so that no record after the batch is returned before the error. The
        caller must hold the guard.
        """
        self._fetcher.refetch_from(chunk.state, offset)
        self._guard.wake_background()


def _damaged(chunk: Chunk, offset: int, damage: CorruptBatchError) -> CorruptBatchError:
    next_offset = offset_after_batch(chunk, offset)
    place = "" if next_offset is None else f" (the next batch begins at offset {next_offset})"
    error = CorruptBatchError(f"{chunk.state.tp} at offset {offset}: {damage}; seek past it to continue{place}")
    error.next_offset = next_offset
    error.__cause__ = damage
    return error
