"""Finds a record by its timestamp within a segment: the one place where storage looks into a batch.

It decodes one batch per search. Should its records be unreadable (the broker checks the CRC of what producers
send, not their records), the batch's first offset stands for the record.
"""

from __future__ import annotations

from barnabas.errors import CorruptBatchError
from barnabas.model import NO_TIMESTAMP, OffsetAndTimestamp
from barnabas.records import read_columns
from barnabas.storage.batch_scan import PlacedBatch
from barnabas.storage.segment import Segment


def first_record_at(segment: Segment, timestamp_ms: int) -> OffsetAndTimestamp | None:
    """Return the first record of a segment with this timestamp or a later one."""
    for batch in segment.find_timestamp(timestamp_ms):
        found = _first_in_batch(segment, batch, timestamp_ms)
        if found is not None:
            return found
    return None


def latest_record(segment: Segment) -> OffsetAndTimestamp | None:
    """Return the first of the records of a segment that have its greatest timestamp."""
    if segment.max_timestamp_ms == NO_TIMESTAMP:
        return None
    return first_record_at(segment, segment.max_timestamp_ms)


def _first_in_batch(segment: Segment, batch: PlacedBatch, timestamp_ms: int) -> OffsetAndTimestamp | None:
    try:
        columns = read_columns(segment.read_batch(batch))
    except CorruptBatchError:
        return OffsetAndTimestamp(batch.header.base_offset, batch.header.max_timestamp_ms)
    for offset, record_timestamp_ms in zip(columns.offsets, columns.timestamps_ms, strict=True):
        if record_timestamp_ms >= timestamp_ms:
            return OffsetAndTimestamp(offset, record_timestamp_ms)
    return None
