"""Groups of consecutive records by windows of their timestamps, for the audit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from barnabas.records.codec_pure.decoding import Record

Stretches = list[tuple[int, int, int]]
"""Groups of records with consecutive offsets and timestamps in the same window: the offset of the first record, the
number of records, and the start of the window in ms."""


def record_stretches(records: Sequence[Record], width_ms: int) -> Stretches:
    """Group records by timestamp windows. The records must be in the order of their offsets.

    :param width_ms: the size of a window. The window of records without a timestamp starts at -1.
    """
    return stretches_of(((record.offset, record.timestamp_ms) for record in records), width_ms)


def stretches_of(rows: Iterable[tuple[int, int]], width_ms: int) -> Stretches:
    """Group pairs of offset and timestamp by timestamp windows.

    >>> stretches_of([(7, 0), (8, 59_999), (9, 60_000), (11, 60_000)], 60_000)
    [(7, 2, 0), (9, 1, 60000), (11, 1, 60000)]
    """
    found: Stretches = []
    first = following = window_ms = -1
    for offset, timestamp_ms in rows:
        begin_ms = -1 if timestamp_ms < 0 else timestamp_ms - timestamp_ms % width_ms
        if offset != following or begin_ms != window_ms:
            if following != first:
                found.append((first, following - first, window_ms))
            first, window_ms = offset, begin_ms
        following = offset + 1
    if following != first:
        found.append((first, following - first, window_ms))
    return found
