"""Hands out what was fetched, in the ways of reading that there are. Never waits; no I/O.

The ways of reading may be mixed. Damage, and what a deserializer refuses, is told when there is nothing
else to hand out before it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from barnabas.client.consumer.cursor import Cursor
from barnabas.client.consumer.decoding import decode_chunk, decode_columns, offset_after_batch
from barnabas.client.consumer.deserializing import Deserializers
from barnabas.client.consumer.fetcher import Chunk
from barnabas.client.consumer.state import ConsumerState
from barnabas.client.interceptors import FetchedBatch
from barnabas.errors import BarnabasError, CorruptBatchError, DeserializationError
from barnabas.records import Record
from barnabas.records.reader import record_stretches

if TYPE_CHECKING:
    from barnabas.records.arrow import ArrowReader


class FetchedRecordBatch(FetchedBatch):
    """Records that were decoded to objects."""

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
    """Records that were added to columns, from a row on."""

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
    """What the application can have without waiting. Takes the guard, but does not hold it while it decodes."""

    def __init__(self, state: ConsumerState, deserializers: Deserializers) -> None:
        self._meter = state.meter
        self._deserializers = deserializers
        self._guard = state.guard
        self._subscription = state.subscription
        self._fetcher = state.fetcher
        self._check_crc = state.config.check_crcs
        self._interceptors = state.interceptors

    def load(self, cursor: Cursor) -> bool:
        """Make sure that `cursor` has records, if some are at hand; returns whether it has.

        :raises CorruptBatchError: damage is what comes next.
        :raises DeserializationError: a record that a deserializer refuses is.
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
                if not self._fetcher.holds(chunk):
                    continue
                if self._interceptors.see_batches:
                    self._interceptors.on_records_batch(FetchedRecordBatch(chunk, position, decoded))
                if trouble is not None:
                    self._fetch_again_from(chunk, whole.next_offset)
                    whole.version = chunk.state.version
                cursor.load(whole, records)
                self._meter.records.add(len(records))
            if self._interceptors.see_records:
                self._interceptors.on_records(decoded[: len(records)])
            if records:
                return True
            if trouble is not None:
                raise trouble

    def _deserialize(
        self, chunk: Chunk, decoded: list[Record], whole: Chunk, damage: CorruptBatchError | None
    ) -> tuple[list[Record], Chunk, BarnabasError | None]:
        """Return the records to hand out, the part of the chunk that they come from, and the error after them."""
        if self._deserializers:
            records, refused = self._deserializers.apply(decoded)
            if refused is not None:
                return records, replace(whole, next_offset=refused.offset), refused
        else:
            records = decoded
        return records, whole, None if damage is None else _damaged(chunk, whole.next_offset, damage)

    def take_list(self, cursor: Cursor, records_max: int) -> list[Record]:
        """Return at most `records_max` records, some of which `cursor` has."""
        records: list[Record] = []
        while len(records) < records_max:
            with self._guard.lock:
                records += cursor.take_list(records_max - len(records))
            try:
                if len(records) >= records_max or not self.load(cursor):
                    break
            except (CorruptBatchError, DeserializationError):
                break  # the next poll meets it again, with nothing else to return
        return records

    def fill(self, cursor: Cursor, columns: ArrowReader, records_max: int) -> bool:
        """Add what is at hand to `columns`, up to `records_max` records; returns whether it has some.

        :raises CorruptBatchError: damage is what comes next.
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
                # After a seek meanwhile these records count as handed out before it.
                is_held = self._fetcher.holds(chunk)
                if is_held:
                    if self._interceptors.see_batches:
                        self._interceptors.on_records_batch(FetchedColumnBatch(chunk, position, columns, row))
                    if damage is not None:
                        self._fetch_again_from(chunk, next_offset)
                    cursor.handed_out(chunk, next_offset, rest)
            if is_held and self._interceptors.see_records:
                self._interceptors.on_records(FetchedColumnBatch(chunk, position, columns, row).records())
            if damage is not None and not len(columns):
                raise _damaged(chunk, next_offset, damage)
            if damage is not None or rest is not None:
                break  # damage the next poll meets again, with nothing else to return; or the columns are full
        self._meter.records.add(len(columns) - before)
        return len(columns) > 0

    def _take_chunk(self, cursor: Cursor) -> tuple[Chunk, int] | None:
        """Return, under the guard, what to decode next, and the offset to begin at."""
        chunk = cursor.take_rest()
        if chunk is None:
            chunk = self._fetcher.take(cursor.accepts)
            if chunk is None:
                return None
            self._meter.bytes.add(len(chunk.data))
            if self._fetcher.wants_fetch:
                self._fetcher.wants_fetch = False
                self._guard.wake_background()  # before the decoding, so that the next fetch is under way meanwhile
        position = chunk.state.position
        assert position is not None
        return chunk, position

    def begin_again(self, cursor: Cursor) -> None:
        """Forget all that `cursor` has taken since it was last finished: who asked for it was interrupted, and has got
        nothing. It is fetched again, so that a signal, or a lack of memory, neither makes a gap nor a copy."""
        with self._guard.lock:
            cursor.drop(lambda _state: True)
            for state in self._subscription.partitions.values():
                if cursor.accepts(state.tp) and state.done is not None:
                    state.position = state.done
                    state.refetch()
            self._fetcher.drop_stale()
            self._guard.wake_background()

    def _fetch_again_from(self, chunk: Chunk, offset: int) -> None:
        """What came after damage is not to be handed out before it: fetch that again. Under the guard."""
        self._fetcher.refetch_from(chunk.state, offset)
        self._guard.wake_background()


def _damaged(chunk: Chunk, offset: int, damage: CorruptBatchError) -> CorruptBatchError:
    next_offset = offset_after_batch(chunk, offset)
    place = "" if next_offset is None else f" (the next batch begins at offset {next_offset})"
    error = CorruptBatchError(f"{chunk.state.tp} at offset {offset}: {damage}; seek past it to go on{place}")
    error.next_offset = next_offset
    error.__cause__ = damage
    return error
