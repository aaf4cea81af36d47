"""Divides the records of a batch into windows. The batch header has only the latest timestamp, so this module reads the
timestamp of each record.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from barnabas.audit.windows import window_of
from barnabas.model import TimestampType
from barnabas.records.codec import ColumnDecoder
from barnabas.records.header import BatchHeader, Buffer
from barnabas.records.reader import iter_bodies


class RecordRange(NamedTuple):
    """Consecutive records in the same window."""

    records: int
    window_ms: int


def batches_by_window(buffer: Buffer, width_ms: int) -> Iterator[tuple[BatchHeader, list[RecordRange]]]:
    """Yield each batch in `buffer` with the windows of its records; control batches are omitted.

    :raises CorruptBatchError: a batch is damaged.
    """
    for header, body in iter_bodies(buffer):
        if header.timestamp_type is TimestampType.LOG_APPEND_TIME:
            yield header, [RecordRange(header.record_count, window_of(header.max_timestamp_ms, width_ms))]
            continue
        decoder = ColumnDecoder(False)
        decoder.decode(body, header)
        ranges = decoder.stretches(0, width_ms)
        yield header, [RecordRange(records, window_ms) for _first, records, window_ms in ranges]
