"""Compares a batch of the target with the source records that the batch claims to hold. Pure.

The identity in a batch header is a claim: anybody who may write to the target can send it, and a source that lost its
end may hold other records at the same offsets. The mirror therefore believes a claim only where the source has the
same records: key, value, headers and timestamp.

Compaction and retention remove records from either log later. So the rule is one-sided: the batch must contain each
record that the source still has in the claimed range, in the same order. A range without holes has as many records as
the batch, so the rule then demands equality. Timestamps count only where both clusters keep the producer's time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from barnabas.mirror.errors import DivergedError
from barnabas.model import TimestampType, TopicPartition
from barnabas.records import BatchHeader, Record, read_records
from barnabas.records.header import BATCH_HEADER_SIZE, DELETE_HORIZON_MASK


class Claim(NamedTuple):
    """The source offsets that a target batch covers: from `source_from` up to before `source_next`."""

    source_from: int
    source_next: int


class Batch(NamedTuple):
    """A batch and its header."""

    header: BatchHeader
    data: memoryview


class SourceBatch(NamedTuple):
    """The source batch that was mirrored last, as its header had it: proof where the target has no records any more."""

    base_offset: int
    next_offset: int
    crc: int


def remedy_text(where: TopicPartition) -> str:
    """Return the operator's way out of a divergence, as error messages end."""
    return (
        "the partition stays stopped: restore the records in the source, or delete the topic in the target"
        f" (barnabas topic delete {where.topic}) to have it mirrored anew"
    )


def verify_batch(where: TopicPartition, batch: Batch, claim: Claim, source: Sequence[Batch], log_start: int) -> bool:
    """Return whether the source confirms a target batch; False: the source has no record of the range any more.

    :param where: the target's partition, for messages.
    :param source: all source batches that overlap the claimed range.
    :param log_start: where the source's log starts; retention deleted the records before it.
    :raises DivergedError: the source has other records, or records that the batch lacks.
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
                    f" {record.offset}: the source lost records, or somebody else wrote the batch; {remedy_text(where)}"
                )
        else:
            place = found + 1
    return missing < len(wanted)


def verify_source(where: TopicPartition, known: SourceBatch, source: Sequence[Batch]) -> bool:
    """Return whether the source still has the batch that was mirrored last; False: it cannot be known.

    :param source: all source batches that overlap the offsets of that batch.
    :raises DivergedError: the source has another batch there.
    """
    for batch in source:
        header = batch.header
        if SourceBatch(header.base_offset, header.next_offset, header.crc) == known:
            return True
        is_rewritten = header.record_count <= header.last_offset_delta or header.attributes & DELETE_HORIZON_MASK
        if not is_rewritten:
            raise DivergedError(
                f"{where}: the source has another batch at offset {header.base_offset} than the one that was mirrored"
                f" up to offset {known.next_offset - 1}: the source lost records; {remedy_text(where)}"
            )
    return False


def _is_copy(batch: Batch, source: Batch, claim: Claim) -> bool:
    """Return whether the records of both batches are the same bytes, which is the usual case and needs no decoding."""
    ours, theirs = batch.header, source.header
    return (
        theirs.next_offset == claim.source_next
        and ours.record_count == theirs.record_count == theirs.last_offset_delta + 1 == ours.last_offset_delta + 1
        and ours[5:9] == theirs[5:9]  # attributes, last offset delta, timestamps
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
