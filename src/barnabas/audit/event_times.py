"""Into which windows the records of a batch fall; its header tells only the latest time, so its records are read."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import NamedTuple

from barnabas.audit.windows import window_of
from barnabas.model import TimestampType
from barnabas.records.codec import ColumnDecoder
from barnabas.records.header import BatchHeader, Buffer
from barnabas.records.reader import iter_bodies


class Stretch(NamedTuple):
    """Records in a row that are in the same window."""

    records: int
    window_ms: int


def batches_by_window(
    buffer: Buffer, width_ms: int, *, check_crc: bool = True
) -> Iterator[tuple[BatchHeader, list[Stretch]]]:
    """Yield each batch in `buffer` with its records by windows; batches of markers have none, and are left out.

    :raises CorruptBatchError: a batch is damaged.
    """
    for header, body in iter_bodies(buffer, check_crc=check_crc):
        if header.timestamp_type is TimestampType.LOG_APPEND_TIME:
            yield header, [Stretch(header.record_count, window_of(header.max_timestamp_ms, width_ms))]
            continue
        decoder = ColumnDecoder(False)
        decoder.decode(body, header)
        yield header, stretches_of(memoryview(decoder.finish().timestamps_ms).cast("q"), width_ms)


def stretches_of(timestamps_ms: memoryview, width_ms: int) -> list[Stretch]:
    """Return the records that have these event times by windows, in their order.

    >>> stretches_of(memoryview(bytes(16)).cast("q"), 60_000)
    [Stretch(records=2, window_ms=0)]
    """
    if not timestamps_ms:
        return []
    window_ms = window_of(min(timestamps_ms), width_ms)
    if window_ms == window_of(max(timestamps_ms), width_ms):
        return [Stretch(len(timestamps_ms), window_ms)]
    windows = (window_of(each, width_ms) for each in timestamps_ms)
    return [Stretch(sum(1 for _ in group), window_ms) for window_ms, group in groupby(windows)]
