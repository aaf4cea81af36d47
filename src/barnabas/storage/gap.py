"""A batch without records for offsets that have none: lost ones, which are never used again, or compacted ones.

Kafka's cleaner leaves such batches too, and every client skips them.
"""

from __future__ import annotations

from barnabas.model import NO_TIMESTAMP
from barnabas.records import BATCH_HEADER_SIZE
from barnabas.records.header import empty_batch
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
