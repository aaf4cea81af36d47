"""Rewrites a batch of the source as a batch of the target: the same records, with the identity of their origin.

The usual batch keeps every byte of its records: header fields are written over, and the CRC is computed anew. Only what
cannot be sent as it is is encoded anew: batches that lost records to compaction, since producers may leave no offset
out, batches of which only the end is wanted, and batches with the broker's time (LogAppendTime). Brokers ignore that
time in what is produced: records would have the times of their producers, which consumers of the source never see.
"""

from __future__ import annotations

from typing import NamedTuple

from barnabas.mirror.errors import UnmirrorableBatchError
from barnabas.model import TopicPartition
from barnabas.records import BatchBuilder, BatchHeader, check_batch, read_records
from barnabas.records.header import CONTROL_MASK, DELETE_HORIZON_MASK, TIMESTAMP_TYPE_MASK, TRANSACTIONAL_MASK

UNUSUAL = TRANSACTIONAL_MASK | CONTROL_MASK | DELETE_HORIZON_MASK | TIMESTAMP_TYPE_MASK
"""Attributes of batches that cannot be sent as they are."""


class RewrittenBatch(NamedTuple):
    """What one batch of the source brings, before it has its identity."""

    batch: bytearray | memoryview
    records: int
    source_next: int
    source_first: int | None
    """The source offset of the first record; None: there are holes between the offsets."""


def rewrite_batch(
    view: memoryview, place: int, header: BatchHeader, wanted: int, where: TopicPartition
) -> RewrittenBatch | None:
    """Return what the batch at `place` has from source offset `wanted` on; None: nothing.

    :raises CorruptBatchError: the batch is damaged.
    :raises UnmirrorableBatchError: it belongs to a transaction, whose end nobody knows here.
    """
    first, count = header.base_offset, header.last_offset_delta + 1
    if first + count <= wanted:
        return None
    check_batch(view, place, header)
    batch = view[place : place + header.size]
    if count == header.record_count and first >= wanted and not header.attributes & UNUSUAL:
        return RewrittenBatch(bytearray(batch), count, first + count, first)
    if header.is_control or not header.record_count:
        return None
    if header.is_transactional:
        raise UnmirrorableBatchError(
            f"{where}: offset {first} was written in a transaction; such topics are not mirrored"
        )
    return _encoded_anew(batch, header, wanted, where)


def _encoded_anew(batch: memoryview, header: BatchHeader, wanted: int, where: TopicPartition) -> RewrittenBatch | None:
    records = read_records(batch, where.topic, where.partition, wanted, check_crc=False)
    if not records:
        return None
    builder = BatchBuilder(header.compression)  # the times of `records` are those that consumers see
    for record in records:
        builder.append(record.timestamp_ms, record.key, record.value, record.headers)
    first = records[0].offset
    has_holes = first + len(records) != header.next_offset
    return RewrittenBatch(builder.build(), len(records), header.next_offset, None if has_holes else first)
