"""A batch without records for offsets that have none: lost ones, which are never used again, or compacted ones.

Kafka's cleaner leaves such batches too, and every client skips them.
"""

from __future__ import annotations

from barnabas.model import NO_PRODUCER_ID, NO_TIMESTAMP
from barnabas.records import BATCH_HEADER_SIZE, BatchHeader
from barnabas.records.header import LENGTH_OVERHEAD, MAGIC, pack_header, write_crc
from barnabas.storage.batch_scan import PlacedBatch
from barnabas.storage.segment import ActiveSegment

_NONE = -1


def fill_gap(segment: ActiveSegment, end_offset: int, leader_epoch: int) -> None:
    """Append an empty batch, so that a segment ends at `end_offset`, which must fit its indexes.

    :raises OSError: the disk refuses.
    """
    batch = empty_batch(segment.next_offset, end_offset - 1, max(leader_epoch, 0))
    segment.write([batch])
    segment.note(segment.size, len(batch), end_offset - 1, NO_TIMESTAMP)


def gap_at_end(segment: ActiveSegment) -> int | None:
    """Return the first offset of the gap at the end of a segment, as `fill_gap` makes it; None if there is no gap.

    :raises CorruptBatchError: the batches are damaged.
    """
    start, end_offset, position = None, segment.next_offset, segment.size - BATCH_HEADER_SIZE
    while position >= 0:
        found = segment.locate(end_offset - 1)
        if found is None or found.position != position or not _is_gap(segment, found):
            break
        start = end_offset = found.header.base_offset
        position -= BATCH_HEADER_SIZE
    return start


def _is_gap(segment: ActiveSegment, found: PlacedBatch) -> bool:
    header = found.header
    made = empty_batch(header.base_offset, header.last_offset, header.leader_epoch)
    return segment.read_batch(found) == made


def empty_batch(base_offset: int, last_offset: int, leader_epoch: int) -> bytearray:
    """Return a batch without records that covers the offsets from the first to the last."""
    batch = bytearray(BATCH_HEADER_SIZE)
    header = BatchHeader(
        base_offset=base_offset,
        batch_length=BATCH_HEADER_SIZE - LENGTH_OVERHEAD,
        leader_epoch=leader_epoch,
        magic=MAGIC,
        crc=0,
        attributes=0,
        last_offset_delta=last_offset - base_offset,
        base_timestamp_ms=NO_TIMESTAMP,
        max_timestamp_ms=NO_TIMESTAMP,
        producer_id=NO_PRODUCER_ID,
        producer_epoch=_NONE,
        base_sequence=_NONE,
        record_count=0,
    )
    pack_header(batch, header)
    write_crc(batch, 0, len(batch))
    return batch
