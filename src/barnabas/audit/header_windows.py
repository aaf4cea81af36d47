"""Into which windows batches fall, as their headers say: without decompressing them, or a look at their records.

A header tells the time of the first record and the latest time. Where both are in one window, so are most likely all
records; only that some could be earlier than the first. This may be believed where it is checked afterwards: a producer
that is audited has told what it has sent in which window. If the likely windows agree with that, by counts and
fingerprints, they are right. If they do not, the records are to be looked at; unless there is only more than was told:
these are open, in one window or the one before.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from barnabas.audit.batch_windows import RecordRange, batches_by_window
from barnabas.audit.reported_counts import ReportedCounts
from barnabas.audit.windows import window_of
from barnabas.records.header import BatchHeader, Buffer, check_batch, iter_headers
from barnabas.records.mirror_identity import MIRROR_MARK


def believable(reported: ReportedCounts) -> frozenset[int]:
    """Return the ids of producers that have told what they sent, and that know of all of it what became of it.

    Mirrors are none: each of their lives goes on with the numbers of the one before, whatever that has told.
    """
    doubtful = {producer.producer_id for _window_ms, producer in reported.doubts}
    return frozenset(each for each in reported.instance_of if each < MIRROR_MARK and each not in doubtful)


def likely_window(header: BatchHeader, width_ms: int) -> int | None:
    """Return in which window all records of a batch are, if none is earlier than the first; None: in several, or it
    cannot be told."""
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
            for _header, stretches in batches_by_window(view[position : position + header.size], width_ms):
                yield header, stretches, False
        else:
            check_batch(view, position, header)
            yield header, [RecordRange(header.record_count, window_ms)], True
