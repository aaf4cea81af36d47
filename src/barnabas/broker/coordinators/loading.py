"""Loads the state machine of a shard: applies all records of the partition, from the first to the last.

The log is read on a thread, a piece at a time, and replayed in slices, so that other clients hardly notice. Records of
unknown kinds and later versions are skipped, and so are damaged ones; one log line counts them at the end. Records of a
transaction, which Kafka's brokers may have written, count when the transaction was committed.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Generic, TypeVar

from barnabas.broker.pipeline.reply import is_pause_due
from barnabas.errors import CorruptBatchError, MalformedMessageError, StorageError
from barnabas.records import check_batch, decompress, iter_headers
from barnabas.records.codec import decode_records
from barnabas.records.header import BATCH_HEADER_SIZE, BatchHeader

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.broker.cooperative_scheduler import CooperativeScheduler
    from barnabas.broker.coordinators.led_replica import LedReplica
    from barnabas.broker.pipeline.reply import Steps
    from barnabas.records import Record
    from barnabas.state_machine import RecordCodec

log = logging.getLogger(__name__)

RecordT = TypeVar("RecordT")

_COMMIT_KEY = b"\0\0\0\1"
"""The key of the record that ends a transaction which was committed: a version, and the kind of end (KIP-98)."""


class Replay(Generic[RecordT]):
    """Applies the records of whole batches, in their order."""

    def __init__(self, codec: RecordCodec[RecordT], apply: Callable[[RecordT], None]) -> None:
        self.records = 0
        self.damaged = 0
        """Records and batches that were skipped."""
        self.first_damage = ""
        self._decode = codec.decode
        self._apply = apply
        self._open: dict[int, list[RecordT]] = {}  # of transactions without an end, by producer id

    def replay(self, data: bytes) -> Steps[int]:
        """Apply whole batches; return the offset behind them, or -1 if none could be read."""
        view = memoryview(data)
        next_offset = -1
        try:
            for position, header in iter_headers(view, partial_ok=True):
                next_offset = header.next_offset
                try:
                    records = _records(view, position, header)
                except CorruptBatchError as error:
                    self._note_damage(f"the batch at offset {header.base_offset}: {error}")
                    continue
                yield from self._replay_batch(header, records)
        except CorruptBatchError as error:
            self._note_damage(str(error))
        return next_offset

    def _replay_batch(self, header: BatchHeader, records: list[Record]) -> Steps[None]:
        if header.is_control:
            ended = self._open.pop(header.producer_id, [])
            if records and records[0].key is not None and bytes(records[0].key)[:4] == _COMMIT_KEY:
                for each in ended:
                    self._apply(each)
            return
        self.records += len(records)
        for number, record in enumerate(records):
            if is_pause_due(number):
                yield
            try:
                change = self._decode(record.key, record.value)
            except MalformedMessageError as error:
                self._note_damage(f"the record at offset {record.offset}: {error}")
                continue
            if change is None:
                continue
            if header.is_transactional:
                self._open.setdefault(header.producer_id, []).append(change)
            else:
                self._apply(change)
        yield

    def _note_damage(self, what: str) -> None:
        self.damaged += 1
        self.first_damage = self.first_damage or what


def _records(view: memoryview, position: int, header: BatchHeader) -> list[Record]:
    """:raises CorruptBatchError: the batch is damaged."""
    check_batch(view, position, header)
    body = decompress(header.compression, view[position + BATCH_HEADER_SIZE : position + header.size])
    return decode_records(body, header, "", 0)


async def replay_log(
    replica: LedReplica,
    replay: Replay[RecordT],
    scheduler: CooperativeScheduler,
    buffer_bytes: int,
    is_given_up: Callable[[], bool],
) -> None:
    """Apply all that is in the log of a replica, unless the load is given up.

    :raises BarnabasError: the disk refused.
    """
    if replica.log.is_offline:
        # The offsets of an offline log may be unknown, and an unknown log is not an empty one.
        raise StorageError(f"the log {replica.topic_partition} is offline")
    offset = replica.log.log_start_offset
    while offset < replica.log.log_end_offset and not is_given_up():
        batches = (await replica.read_stored(offset, buffer_bytes)).batches
        assert isinstance(batches, bytes)
        next_offset = await scheduler.finish(replay.replay(batches))
        if next_offset <= offset:
            where, reason = replica.topic_partition, replay.first_damage
            log.error("%s: cannot read offset %d: %s; loading ends before it", where, offset, reason)
            return
        offset = next_offset
    if replay.damaged:
        count, first = replay.damaged, replay.first_damage
        log.warning(
            "%s: skipped %d damaged records while loading; the first: %s", replica.topic_partition, count, first
        )
