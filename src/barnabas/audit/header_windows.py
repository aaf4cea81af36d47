"""The windows of batches, derived from batch headers without decompressing the records.

A header contains the timestamp of the first record and the latest timestamp. If both are in one window, all records are
probably in it, although some record could be earlier than the first. A later check makes this safe: an audited producer
has reported its records by window. If counts and fingerprints of the likely windows agree with the report, the windows
are correct. Otherwise the scan reads the records. Records that are not reported yet need no check.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from barnabas.audit.batch_windows import RecordRange, batches_by_window
from barnabas.audit.reported_counts import ReportedCounts
from barnabas.audit.windows import window_of
from barnabas.records.header import BatchHeader, Buffer, check_batch, iter_headers
from barnabas.records.mirror_identity import MIRROR_MARK


def believable(reported: ReportedCounts) -> frozenset[int]:
    """Return the ids of producers that have reported records and have no unacknowledged batches.

    Mirrors are left out, because each mirror instance continues the sequence numbers of the previous instance.
    """
    doubtful = {producer.producer_id for _window_ms, producer in reported.doubts}
    return frozenset(each for each in reported.instance_of if each < MIRROR_MARK and each not in doubtful)


def likely_window(header: BatchHeader, width_ms: int) -> int | None:
    """Return the window that probably contains all records of a batch; None if there are several or it is unknown. The
    result is right unless a record is earlier than the first one.
    """
    window_ms = window_of(header.max_timestamp_ms, width_ms)
    is_certain = header.delete_horizon_ms is None and window_of(header.base_timestamp_ms, width_ms) == window_ms
    return window_ms if is_certain else None


def batches_by_likely_window(
    buffer: Buffer, width_ms: int, believed: Collection[int]
) -> Iterator[tuple[BatchHeader, list[RecordRange], bool]]:
    """Yield each batch in `buffer`, its records by window, and whether these windows are only likely.

    :param believed: the producers whose batch headers are trusted. For other producers, the records are read.
    :raises CorruptBatchError: a batch is damaged.
    """
    view = memoryview(buffer)
    for position, header in iter_headers(view, partial_ok=True):
        window_ms = likely_window(header, width_ms) if header.producer_id in believed else None
        if window_ms is None or header.is_control:
            for _header, ranges in batches_by_window(view[position : position + header.size], width_ms):
                yield header, ranges, False
        else:
            check_batch(view, position, header)
            yield header, [RecordRange(header.record_count, window_ms)], True
