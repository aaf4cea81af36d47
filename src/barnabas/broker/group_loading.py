"""Reads a partition of `__consumer_offsets` from its beginning to its end, and tells what it comes to.

The log is read beside the event loop, a piece at a time, and understood in slices, so that others hardly notice.
Records of unknown kinds and later versions are skipped, and so is what is damaged; that is told once at the end.
Records of transactions, which Kafka's brokers may have written, count when their transaction was committed.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from barnabas.broker.pipeline.reply import is_pause_due
from barnabas.errors import CorruptBatchError, MalformedMessageError, StorageError
from barnabas.groups.offsets import GroupOffsets
from barnabas.groups.records import Change, OffsetRecord, decode_change
from barnabas.records import check_batch, decompress, iter_headers
from barnabas.records.codec import decode_records
from barnabas.records.header import BATCH_HEADER_SIZE, BatchHeader

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.broker.leader_replica import LeaderReplica
    from barnabas.broker.pipeline.reply import Steps
    from barnabas.broker.turns import Turns
    from barnabas.groups.stored import Committed, StoredGroup
    from barnabas.model import TopicPartition
    from barnabas.records import Record

log = logging.getLogger(__name__)

_COMMIT_KEY = b"\0\0\0\1"
"""The key of the record that ends a transaction which was committed: a version, and the kind of end (KIP-98)."""

Share = "Callable[[TopicPartition, Committed], tuple[TopicPartition, Committed]]"
"""Returns the same out of objects that are there already, where it can: there may be millions of offsets."""


class Loaded:
    """What the records of a partition come to.

    :param share: see `Share`.
    """

    def __init__(
        self, share: Callable[[TopicPartition, Committed], tuple[TopicPartition, Committed]] = lambda *both: both
    ) -> None:
        self.groups: dict[str, StoredGroup] = {}
        self.offsets = GroupOffsets()
        self.damaged = 0
        """Records, or batches, that could not be understood."""
        self.first_damage = ""
        self._share = share
        self._open: dict[int, list[Change]] = {}  # of transactions without an end, by producer id

    def replay(self, data: bytes) -> Steps[int]:
        """Take in whole batches; return the offset behind them, or -1 if there was none that could be read."""
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
                    self.apply(each)
            return
        for number, record in enumerate(records):
            if is_pause_due(number):
                yield
            try:
                change = decode_change(record.key, record.value)
            except MalformedMessageError as error:
                self._note_damage(f"the record at offset {record.offset}: {error}")
                continue
            if change is None:
                continue
            if header.is_transactional:
                self._open.setdefault(header.producer_id, []).append(change)
            else:
                self.apply(change)
        yield

    def apply(self, change: Change) -> None:
        """Do what a record says."""
        if isinstance(change, OffsetRecord):
            where, committed = change.where, change.committed
            if committed is not None:
                where, committed = self._share(where, committed)
            self.offsets.apply(change.group_id, where, committed)
        elif change.stored is None:
            self.groups.pop(change.group_id, None)
        else:
            self.groups[change.group_id] = change.stored

    def _note_damage(self, what: str) -> None:
        self.damaged += 1
        self.first_damage = self.first_damage or what


def _records(view: memoryview, position: int, header: BatchHeader) -> list[Record]:
    """:raises CorruptBatchError: the batch is damaged."""
    check_batch(view, position, header)
    body = decompress(header.compression, view[position + BATCH_HEADER_SIZE : position + header.size])
    return decode_records(body, header, "", 0)


async def load_partition(partition: LeaderReplica, loaded: Loaded, turns: Turns, buffer_bytes: int) -> None:
    """Read all that is in the log.

    :raises BarnabasError: the disk refused.
    """
    if partition.log.is_offline:
        # It may be that nothing is known of what it holds, which is not the same as that it holds nothing.
        raise StorageError(f"the log {partition.topic_partition} is offline")
    offset = partition.log.log_start_offset
    while offset < partition.log.log_end_offset:
        batches = (await partition.read_stored(offset, buffer_bytes)).batches
        assert isinstance(batches, bytes)
        next_offset = await turns.finish(loaded.replay(batches))
        if next_offset <= offset:
            where, reason = partition.topic_partition, loaded.first_damage
            log.error("%s: what stands at offset %d and behind it cannot be read: %s", where, offset, reason)
            return
        offset = next_offset
    if loaded.damaged:
        count, first = loaded.damaged, loaded.first_damage
        log.warning("%s: skipped %d damaged records of groups; first %s", partition.topic_partition, count, first)
