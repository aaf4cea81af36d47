"""Rewrites a batch of the source as a batch of the target: the same records, with producer fields that contain their
source offsets.

For most batches, only header fields and the CRC change; the bytes of the records stay the same. Three kinds of batches
are encoded again: batches with compaction gaps (a produced batch must have consecutive offsets), batches with records
that are already mirrored, and batches with LogAppendTime. Brokers ignore the append time in produced batches. Without
the new encoding, consumers of the target would see the producers' timestamps, which consumers of the source never see.
"""

from __future__ import annotations

from typing import NamedTuple

from barnabas.mirror.errors import UnmirrorableBatchError
from barnabas.model import TopicPartition
from barnabas.records import BatchBuilder, BatchHeader, check_batch, read_records
from barnabas.records.header import CONTROL_MASK, DELETE_HORIZON_MASK, TIMESTAMP_TYPE_MASK, TRANSACTIONAL_MASK

UNUSUAL = TRANSACTIONAL_MASK | CONTROL_MASK | DELETE_HORIZON_MASK | TIMESTAMP_TYPE_MASK
"""The attributes of batches that must be encoded again."""


class RewrittenBatch(NamedTuple):
    """A rewritten batch, before `set_identity` writes its producer fields."""

    batch: bytearray | memoryview
    records: int
    source_next: int
    source_first: int | None
    """The source offset of the first record; None if the source offsets have gaps."""


def rewrite_batch(
    view: memoryview, place: int, header: BatchHeader, wanted: int, where: TopicPartition
) -> RewrittenBatch | None:
    """Return a batch of the records at `place`, starting at source offset `wanted`; None if there are no such records.

    :raises CorruptBatchError: the batch is damaged.
    :raises UnmirrorableBatchError: the batch belongs to a transaction, whose outcome the mirror does not know.
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
            f"{where}: offset {first} was written in a transaction; the mirror does not support transactional topics"
        )
    return _encoded_anew(batch, header, wanted, where)


def _encoded_anew(batch: memoryview, header: BatchHeader, wanted: int, where: TopicPartition) -> RewrittenBatch | None:
    records = read_records(batch, where.topic, where.partition, wanted, check_crc=False)
    if not records:
        return None
    builder = BatchBuilder(header.compression)  # `records` contains the timestamps that consumers see
    for record in records:
        builder.append(record.timestamp_ms, record.key, record.value, record.headers)
    first = records[0].offset
    has_holes = first + len(records) != header.next_offset
    return RewrittenBatch(builder.build(), len(records), header.next_offset, None if has_holes else first)
