"""Reads of a log, by offset and by timestamp.

Invariants. A read returns complete batches of one segment, and the offsets of the log at the time of the read. If
compaction has removed all batches from the requested offset up to `max_offset`, the read returns an empty batch that
covers the gap. So a reader always reaches `max_offset`. A read never parses records.

Extensions. `LogReader` creates each `ReadResult`, so a later version can add the aborted transactions there. A later
version may also store the offsets below the local log start offset in remote segments; `read_remote` reads them.

Threads. The owner of the log reads; any thread may call `bytes_of`. A `TimeSearch` reads a snapshot of the segments, on
any thread. During a truncation on another thread, reads return no batches (`shut_out_readers`).

Errors. A read below the log start offset or above the log end offset raises OFFSET_OUT_OF_RANGE. `IndexDamagedError` is
raised if an index of a sealed segment must be rebuilt, because a rebuild would block the owner too long. If the file
system returns an error, the log goes offline, unless file descriptors or memory are short.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from typing import NamedTuple, Protocol

from barnabas.errors import ApiError, ErrorCode
from barnabas.model import FileRegion, TopicPartition
from barnabas.records.header import empty_batch
from barnabas.records.scan import RELATIVE_OFFSET_MAX
from barnabas.storage.filesystem import DataFile, LogHealth
from barnabas.storage.leader_epochs import LeaderEpochs
from barnabas.storage.log_offsets import LogOffsets, OffsetTracker
from barnabas.storage.segment import SegmentReplacedError
from barnabas.storage.segment_list import SegmentList
from barnabas.storage.time_search import TimeSearch

Batches = FileRegion | bytearray | bytes
"""Complete batches: a region of a segment's file, or bytes that are not in a local file. The batches may be empty."""

NO_BATCHES = b""


class AbortedTransaction(NamedTuple):
    """An aborted transaction. `read_committed` consumers must skip its records."""

    producer_id: int
    first_offset: int


class ReadResult(NamedTuple):
    """The batches of a read, and the state of the log at that time."""

    batches: Batches
    offsets: LogOffsets
    """The offsets of the log at the time of the read."""
    aborted_transactions: tuple[AbortedTransaction, ...] = ()
    """The aborted transactions, in the order of their first offsets."""


_new_tuple = tuple.__new__


class RemoteSegments(Protocol):
    """The segments of a log below its local log start offset, in remote storage."""

    def read(self, offset: int, max_bytes: int, max_offset: int, min_one_batch: bool) -> Awaitable[bytes]:
        """Return complete batches; see `LogReader.read`.

        :raises BarnabasError: the segment cannot be read.
        """


class LogReader:
    """Reads batches of one log.

    :param remote: the segments below the local log start offset, or None if all segments are local.
    """

    __slots__ = (
        "_epochs",
        "_health",
        "_is_truncating",
        "_offsets",
        "_partition",
        "_remote",
        "_segments",
        "truncation_count",
    )

    def __init__(
        self,
        partition: TopicPartition,
        segments: SegmentList,
        offsets: OffsetTracker,
        epochs: LeaderEpochs,
        health: LogHealth,
        remote: RemoteSegments | None = None,
    ) -> None:
        self._partition = partition
        self._segments = segments
        self._offsets = offsets
        self._epochs = epochs
        self._health = health
        self._remote = remote
        self._is_truncating = False
        self.truncation_count = 0
        """The number of truncations that have started since the log was opened."""

    def read(self, offset: int, max_bytes: int, max_offset: int, min_one_batch: bool = True) -> ReadResult:
        """Return complete batches of one local segment.

        The first of them is the first batch that ends at or after `offset`.

        :param max_bytes: the maximum size of the batches. With `min_one_batch`, the first batch may be larger.
        :param max_offset: the end of the readable offsets, for consumers the high watermark. Batches that do not end
            below it are left out.
        :returns: the batches. They are empty if there are none, or during a truncation.
        :raises ApiError: OFFSET_OUT_OF_RANGE: the offset is below the local log start offset or above the log end
            offset.
        :raises IndexDamagedError: an index of a sealed segment must be rebuilt first.
        :raises CorruptBatchError: the batches are damaged.
        :raises StorageError: the file system returned an error.
        """
        self._health.check()
        # The count is read before the flag. So if a truncation starts in between, the count will differ after the read.
        truncation_count = self.truncation_count
        if self._is_truncating:
            return ReadResult(NO_BATCHES, self._offsets.current)
        offsets = self._offsets.current
        log_end = offsets.log_end_offset
        if not offsets.local_log_start_offset <= offset <= log_end:
            raise self._out_of_range(offset, offsets)
        end = max_offset if max_offset < log_end else log_end
        if offset >= end:
            if offset == log_end:
                self._segments.active.hint(offset, self._segments.active.size)
            return ReadResult(NO_BATCHES, offsets)
        if max_bytes <= 0 and not min_one_batch:
            return ReadResult(NO_BATCHES, offsets)
        try:
            try:
                found = self._find(offset, max_bytes, end, min_one_batch=min_one_batch)
            except SegmentReplacedError:
                # The cleaner has just replaced the segment. A second lookup finds the new segment, whose files are
                # open.
                found = self._find(offset, max_bytes, end, min_one_batch=min_one_batch)
        except Exception as error:
            if self.truncation_count != truncation_count:
                # ignore all errors, because files and sizes were inconsistent
                return ReadResult(NO_BATCHES, self._offsets.current)
            if isinstance(error, OSError):
                raise self._health.failed("read", error, even_if_short=False) from error
            raise
        if self.truncation_count != truncation_count:
            # During the truncation, even batches without an error may be wrong, for example an empty batch for a gap
            # that does not exist.
            return ReadResult(NO_BATCHES, self._offsets.current)
        return _new_tuple(ReadResult, (found, offsets, ()))  # takes half the time of `ReadResult(...)`

    async def read_remote(self, offset: int, max_bytes: int, max_offset: int, min_one_batch: bool = True) -> ReadResult:
        """Read batches of a remote segment, at an offset between the log start offset and the local log start offset.

        :raises ApiError: OFFSET_OUT_OF_RANGE.
        :raises StorageError: the segment cannot be read.
        """
        self._health.check()
        offsets = self._offsets.current
        if self._remote is None or not offsets.log_start_offset <= offset < offsets.local_log_start_offset:
            raise self._out_of_range(offset, offsets)
        end = min(max_offset, offsets.local_log_start_offset)
        return ReadResult(await self._remote.read(offset, max_bytes, end, min_one_batch), offsets)

    def bytes_of(self, batches: Batches) -> bytes:
        """Return the batches of a `ReadResult` as bytes.

        :raises OSError: the read failed.
        """
        if not isinstance(batches, FileRegion):
            return bytes(batches)
        assert isinstance(batches.file, DataFile)
        return self._segments.filesystem.pread(batches.file, batches.length, batches.position)

    def time_search(self) -> TimeSearch:
        """Return a search by timestamp in the current records of the log.

        :raises StorageError: the log is offline.
        """
        self._health.check()
        segments = [segment.snapshot() for segment in self._segments.all]
        return TimeSearch(segments, self._offsets.current.log_start_offset)

    @contextmanager
    def shut_out_readers(self) -> Iterator[None]:
        """A context in which reads return no batches, because a truncation changes files and sizes."""
        self._is_truncating = True
        self.truncation_count += 1
        try:
            yield
        finally:
            # A read that started before the truncation may have added a hint for the old log end.
            self._segments.active.forget_hints()
            self._is_truncating = False

    def _find(self, offset: int, max_bytes: int, end: int, *, min_one_batch: bool) -> Batches:
        segment, start = self._segments.find(offset)
        if start < segment.size:
            region = segment.read(start, max_bytes, end, min_one_batch=min_one_batch)
            if region is not None:
                return region
            if end >= segment.next_offset or segment.header_at(start).base_offset < end:
                return NO_BATCHES
        epoch = self._epochs.epoch_for_offset(offset)
        gap = empty_batch(offset, min(end - 1, offset + RELATIVE_OFFSET_MAX), max(epoch, 0))
        return gap if min_one_batch or len(gap) <= max_bytes else NO_BATCHES

    def _out_of_range(self, offset: int, offsets: LogOffsets) -> ApiError:
        start, end = offsets.local_log_start_offset, offsets.log_end_offset
        message = f"{self._partition}: offset {offset} is out of range; the log has offsets {start} to {end}"
        return ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, message)
