"""The search for records by timestamp. Apart from compaction, no other module of the storage package parses records.

Invariants. A search reads a snapshot of a log's segments with its own open files. So the log may change during the
search. It finds candidate batches by their headers. Producers write the headers, so a header may contradict the
records. Therefore, a search decompresses and checks the records, up to a maximum number and size of batches. The search
trusts the header and returns the first offset of the batch in two cases: beyond these limits, and if the records are
unreadable. Records may be unreadable because the broker has checked only the CRC and the number of records.

Threads. Any thread may run a search. A search object can be used only once.

Errors. CorruptBatchError is raised for damaged batches, and OSError if a file cannot be read.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from barnabas.errors import CorruptBatchError
from barnabas.model import NO_OFFSET, NO_TIMESTAMP, OffsetAndTimestamp
from barnabas.records import Record, read_records
from barnabas.storage.segment import PlacedBatch, SealedSegment

SEARCHED_BYTES_MAX = 16 * 1024 * 1024
SEARCHED_RECORDS_MAX = 100_000
"""The maximum number of records of a batch that a search decompresses. `SEARCHED_BYTES_MAX` limits its decompressed
size."""

SEARCHED_BATCHES_MAX = 64
SEARCHED_RECORDS_IN_ALL_MAX = 1_000_000
"""The maximum number of records that one search decompresses. `SEARCHED_BATCHES_MAX` limits the number of batches."""


class TimeSearch:
    """A search by timestamp in the segments of a log.

    :param segments: snapshots of the segments, oldest first.
    :param min_offset: the log start offset. Records before it are ignored, because they are deleted.
    """

    def __init__(self, segments: Sequence[SealedSegment], min_offset: int) -> None:
        self._segments = segments
        self._min_offset = min_offset
        self._batches_left = SEARCHED_BATCHES_MAX
        self._records_left = SEARCHED_RECORDS_IN_ALL_MAX

    def first_at(self, timestamp_ms: int) -> OffsetAndTimestamp | None:
        """Return the first record whose timestamp is at least `timestamp_ms`, or None.

        :raises CorruptBatchError: the batches are damaged.
        :raises OSError: the files cannot be read.
        """
        for segment in self._segments:
            if _latest_ms(segment) >= timestamp_ms:
                found = self._first_in(segment, timestamp_ms)
                if found is not None:
                    return found
        return None

    def latest(self) -> OffsetAndTimestamp:
        """Return the first record with the greatest timestamp, or (-1, -1) if there are no records.

        :raises CorruptBatchError: the batches are damaged.
        :raises OSError: the files cannot be read.
        """
        # The record with the greatest timestamp in a segment may have been deleted or compacted. In this case, the
        # search continues in the next segment.
        latest = OffsetAndTimestamp(NO_OFFSET, NO_TIMESTAMP)
        for claimed_ms, _, segment in sorted(
            (-_latest_ms(segment), number, segment) for number, segment in enumerate(self._segments)
        ):
            if latest.offset != NO_OFFSET and -claimed_ms < latest.timestamp_ms:
                break
            found = self._latest_in(segment)
            if found is not None and (found.timestamp_ms, -found.offset) > (latest.timestamp_ms, -latest.offset):
                latest = found
        return latest

    def _first_in(self, segment: SealedSegment, timestamp_ms: int) -> OffsetAndTimestamp | None:
        for batch in segment.find_timestamp(timestamp_ms):
            if batch.header.last_offset >= self._min_offset:
                for record in self._records(segment, batch):
                    if record.timestamp_ms >= timestamp_ms:
                        return OffsetAndTimestamp(record.offset, record.timestamp_ms)
        return None

    def _latest_in(self, segment: SealedSegment) -> OffsetAndTimestamp | None:
        latest_ms = _latest_ms(segment)
        if latest_ms == NO_TIMESTAMP:
            return None
        if self._min_offset <= segment.base_offset and (found := self._first_in(segment, latest_ms)) is not None:
            return found
        latest: OffsetAndTimestamp | None = None
        for batch in segment.headers(self._min_offset):
            if latest is None or batch.header.max_timestamp_ms > latest.timestamp_ms:
                for record in self._records(segment, batch):
                    if latest is None or record.timestamp_ms > latest.timestamp_ms:
                        latest = OffsetAndTimestamp(record.offset, record.timestamp_ms)
        return latest

    def _records(self, segment: SealedSegment, batch: PlacedBatch) -> Sequence[Record | OffsetAndTimestamp]:
        header = batch.header
        if not header.record_count:
            return []
        if self._batches_left and header.record_count <= min(SEARCHED_RECORDS_MAX, self._records_left):
            self._batches_left -= 1
            self._records_left -= header.record_count
            with suppress(CorruptBatchError):  # if the records are damaged, the search trusts the header
                data = segment.read_batch(batch)
                return read_records(data, "", 0, self._min_offset, max_batch_bytes=SEARCHED_BYTES_MAX)
        return [OffsetAndTimestamp(max(header.base_offset, self._min_offset), header.max_timestamp_ms)]


def _latest_ms(segment: SealedSegment) -> int:
    """Return the greatest timestamp in a segment, according to its time index."""
    segment.check_time_index()
    return segment.max_timestamp_ms
