"""Finds a record by its timestamp within a segment: the one place where storage looks into a batch.

It decodes one batch per search. Should its records be unreadable (the broker checks the CRC of what producers
send, not their records), or too many, the batch's first offset stands for the record.
"""

from __future__ import annotations

from collections.abc import Iterator

from barnabas.errors import CorruptBatchError
from barnabas.model import NO_TIMESTAMP, OffsetAndTimestamp
from barnabas.records import read_records
from barnabas.storage.batch_scan import PlacedBatch
from barnabas.storage.segment import Segment

SEARCHED_BYTES_MAX = 16 * 1024 * 1024
"""A batch that holds more than this when decompressed is not looked into."""


def first_record_at(segment: Segment, timestamp_ms: int, min_offset: int) -> OffsetAndTimestamp | None:
    """Return the first record of a segment, from `min_offset` on, with this timestamp or a later one."""
    for batch in segment.find_timestamp(timestamp_ms):
        if batch.header.last_offset >= min_offset:
            for record in _records(segment, batch, min_offset):
                if record.timestamp_ms >= timestamp_ms:
                    return record
    return None


def latest_record(segment: Segment, min_offset: int) -> OffsetAndTimestamp | None:
    """Return the first of the records of a segment, from `min_offset` on, that have the greatest timestamp."""
    if segment.max_timestamp_ms == NO_TIMESTAMP:
        return None
    if min_offset <= segment.base_offset:
        return first_record_at(segment, segment.max_timestamp_ms, min_offset)
    latest: OffsetAndTimestamp | None = None
    for batch in segment.headers(min_offset):
        if latest is None or batch.header.max_timestamp_ms > latest.timestamp_ms:
            for record in _records(segment, batch, min_offset):
                if latest is None or record.timestamp_ms > latest.timestamp_ms:
                    latest = record
    return latest


def _records(segment: Segment, batch: PlacedBatch, min_offset: int) -> Iterator[OffsetAndTimestamp]:
    header = batch.header
    try:
        data = segment.read_batch(batch)
        records = read_records(data, "", 0, min_offset, max_batch_bytes=SEARCHED_BYTES_MAX)
    except CorruptBatchError:
        yield OffsetAndTimestamp(max(header.base_offset, min_offset), header.max_timestamp_ms)
        return
    for record in records:
        yield OffsetAndTimestamp(record.offset, record.timestamp_ms)
