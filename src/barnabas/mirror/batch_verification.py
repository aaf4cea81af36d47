"""Compares a batch of the target with the source records that the batch claims to contain. The module does no I/O.

The source offsets in a batch header are only a claim. Any client with write access can send such a batch, and a source
that lost its last records may have other records at the same offsets. So the mirror accepts a claim only if the source
has the same records: equal keys, values, headers and timestamps.

Compaction and retention may later remove records from either log. So the comparison works in only one direction: the
batch must contain each record that the source still has in the claimed range, in the same order. If the range has no
gaps in the source, it has as many records as the batch. Then the rule requires that both are equal. Timestamps are
compared only if both topics keep the producers' timestamps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from barnabas.mirror.errors import DivergedError
from barnabas.model import TimestampType, TopicPartition
from barnabas.records import BatchHeader, Record, read_records
from barnabas.records.header import BATCH_HEADER_SIZE, DELETE_HORIZON_MASK


class Claim(NamedTuple):
    """The source offsets that a target batch claims to cover: from `source_from` to `source_next` (exclusive)."""

    source_from: int
    source_next: int


class Batch(NamedTuple):
    """A record batch and its decoded header."""

    header: BatchHeader
    data: memoryview


class SourceBatch(NamedTuple):
    """Header fields of the source batch that was mirrored last. They show whether the source still has this batch after
    the target has deleted its copy."""

    base_offset: int
    next_offset: int
    crc: int


def remedy_text(where: TopicPartition) -> str:
    """Return the end of an error message about a diverged partition: the remedy."""
    return (
        "the partition stays stopped: restore the records in the source, or delete the topic in the target"
        f" (barnabas topic delete {where.topic}) to mirror it again from the start"
    )


def verify_batch(where: TopicPartition, batch: Batch, claim: Claim, source: Sequence[Batch], log_start: int) -> bool:
    """Return whether the source confirms a target batch. Return False if the source no longer has records of the
    claimed range.

    :param where: the target partition, for messages.
    :param source: all source batches that overlap the claimed range.
    :param log_start: the source's log start offset.
    :raises DivergedError: the source has a record that differs from the batch's or is missing in the batch.
    :raises CorruptBatchError: a batch is damaged.
    """
    source_from = max(claim.source_from, log_start)
    if len(source) == 1 and _is_copy(batch, source[0], claim):
        return True
    wanted = _records(where, source, source_from, claim.source_next)
    if not wanted:
        return False
    there = _records(where, [batch], batch.header.base_offset, batch.header.next_offset)
    compacted_away = batch.header.last_offset_delta + 1 - len(there)
    place, missing = 0, 0
    for record in wanted:
        found = next((at for at in range(place, len(there)) if _is_same(record, there[at])), None)
        if found is None:
            missing += 1
            if missing > compacted_away:
                raise DivergedError(
                    f"{where}: the batch at target offset {batch.header.base_offset} claims source offsets"
                    f" {claim.source_from} to {claim.source_next - 1}, but the source has another record at offset"
                    f" {record.offset}: the source lost records, or another writer wrote the batch;"
                    f" {remedy_text(where)}"
                )
        else:
            place = found + 1
    return missing < len(wanted)


def verify_source(where: TopicPartition, known: SourceBatch, source: Sequence[Batch]) -> bool:
    """Return whether the source still has the batch that was mirrored last. Return False if the source has deleted
    these offsets, so that the answer is unknown.

    :param source: all source batches that overlap the offsets of that batch.
    :raises DivergedError: the source has another batch at these offsets.
    """
    for batch in source:
        header = batch.header
        if SourceBatch(header.base_offset, header.next_offset, header.crc) == known:
            return True
        is_rewritten = header.record_count <= header.last_offset_delta or header.attributes & DELETE_HORIZON_MASK
        if not is_rewritten:
            raise DivergedError(
                f"{where}: the batch at source offset {header.base_offset} differs from the mirrored batch that ended"
                f" at offset {known.next_offset - 1}: the source lost records; {remedy_text(where)}"
            )
    return False


def _is_copy(batch: Batch, source: Batch, claim: Claim) -> bool:
    """Return whether both batches contain the same record bytes: This is the usual case, which needs no decoding."""
    ours, theirs = batch.header, source.header
    return (
        theirs.next_offset == claim.source_next
        and ours.record_count == theirs.record_count == theirs.last_offset_delta + 1 == ours.last_offset_delta + 1
        and ours[5:9] == theirs[5:9]  # compare attributes, last offset delta and timestamps
        and batch.data[BATCH_HEADER_SIZE:] == source.data[BATCH_HEADER_SIZE:]
    )


def _records(where: TopicPartition, batches: Sequence[Batch], first: int, end: int) -> list[Record]:
    return [
        record
        for batch in batches
        for record in read_records(batch.data, where.topic, where.partition, first)
        if record.offset < end
    ]


def _is_same(source: Record, target: Record) -> bool:
    if (source.key, source.value, source.headers) != (target.key, target.value, target.headers):
        return False
    has_broker_time = TimestampType.LOG_APPEND_TIME in (source.timestamp_type, target.timestamp_type)
    return has_broker_time or source.timestamp_ms == target.timestamp_ms
