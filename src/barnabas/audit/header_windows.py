"""The windows of batches by their headers, without decompressing the records.

A header has the time of the first record and the latest time. If both are in one window, all records most likely are;
some record could be earlier than the first. A later check makes this safe: an audited producer has reported its records
by window. If counts and fingerprints of the likely windows agree with the report, the windows are right. Otherwise the
scan reads the records. Records beyond the reported ones need no second look: their report is still to come.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from barnabas.audit.batch_windows import RecordRange, batches_by_window
from barnabas.audit.reported_counts import ReportedCounts
from barnabas.audit.windows import window_of
from barnabas.records.header import BatchHeader, Buffer, check_batch, iter_headers
from barnabas.records.mirror_identity import MIRROR_MARK


def believable(reported: ReportedCounts) -> frozenset[int]:
    """Return the ids of producers that reported all records, and know the outcome of each.

    Mirrors are left out: an instance continues the sequence numbers of the previous one.
    """
    doubtful = {producer.producer_id for _window_ms, producer in reported.doubts}
    return frozenset(each for each in reported.instance_of if each < MIRROR_MARK and each not in doubtful)


def likely_window(header: BatchHeader, width_ms: int) -> int | None:
    """Return the window of all records of a batch if none is earlier than the first; None: several, or unknown."""
    window_ms = window_of(header.max_timestamp_ms, width_ms)
    is_certain = header.delete_horizon_ms is None and window_of(header.base_timestamp_ms, width_ms) == window_ms
    return window_ms if is_certain else None


def batches_by_likely_window(
    buffer: Buffer, width_ms: int, believed: Collection[int]
) -> Iterator[tuple[BatchHeader, list[RecordRange], bool]]:
    """Yield each batch in `buffer` with its records by windows, and whether these are only likely.

    :param believed: the producers whose headers are believed. The batches of others are read.
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
