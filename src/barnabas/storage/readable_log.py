"""What can be asked of a log: its offsets, its batches, its records by their time.

    log_start_offset <= high_watermark <= log_end_offset

A read gives a `FileRegion` that the socket layer hands to sendfile. Compaction leaves gaps between offsets; a read in a
gap gives the batches behind it, and where none is left behind it, an empty batch over the gap: what a reader is told to
be there it comes to. Nothing here changes what the log holds: that is done by `barnabas.storage.writable_log`
and `barnabas.storage.log`, which tells of threads and of errors for all three.
"""

from __future__ import annotations

from pathlib import Path

from barnabas.errors import ErrorCode, KafkaError
from barnabas.model import FileRegion, TopicPartition
from barnabas.records.scan import RELATIVE_OFFSET_MAX
from barnabas.storage.filesystem import DataFile
from barnabas.storage.gap import empty_batch
from barnabas.storage.health import LogHealth
from barnabas.storage.recovery import LoadedLog
from barnabas.storage.replacement import SegmentReplacedError
from barnabas.storage.segment import SealedSegment
from barnabas.storage.segment_list import OpenSegments, SegmentList
from barnabas.storage.time_search import TimeSearch


class ReadableLog:
    """The part of a `Log` that reads.

    :param loaded: what was found in the folder.
    :param offline: why the log is offline from the beginning, if it is.
    """

    def __init__(
        self,
        folder: Path,
        partition: TopicPartition,
        loaded: LoadedLog,
        recovery_point: int,
        open_segments: OpenSegments | None,
        offline: str | None,
    ) -> None:
        self._folder = str(folder)
        self.partition = partition
        self._segments = SegmentList(loaded.sealed, loaded.active, open_segments)
        self.leader_epochs = loaded.epochs
        self._log_start_offset = loaded.log_start_offset
        self._log_end_offset = loaded.active.next_offset
        self._high_watermark = self._log_end_offset
        self.high_watermark_follows_end = True
        """Whether an append moves the high watermark; replication and flush policies switch it off and set it
        themselves."""
        self._stored_high_watermark: int | None = None
        """What was stored of a log that was opened and has no role yet."""
        self._recovery_point = min(recovery_point, self._log_end_offset)
        self.lost_from = loaded.lost_from
        """The offset from which records were found to be lost, if the log went on behind them: another replica may have
        them."""
        self.is_newer_than_tree = False
        """Whether the metadata tree was older than the log directory when the broker started, and the log has not been
        compared with a leader's since: it may have acknowledged records that the leader lacks."""
        self._health = LogHealth(folder, partition, offline)
        self.truncation_count = 0
        """Truncations that have begun."""
        self._is_truncating = False
        """Then readers, who are on other threads, have nothing for now: files and sizes do not agree."""

    @property
    def folder(self) -> Path:
        """Where its files are."""
        return Path(self._folder)

    # --- offsets ---

    @property
    def log_start_offset(self) -> int:
        """The first offset that can be read."""
        return self._log_start_offset

    @property
    def log_end_offset(self) -> int:
        """The offset that the next record will have."""
        return self._log_end_offset

    @property
    def high_watermark(self) -> int:
        """Records below it may be shown to consumers."""
        return self._high_watermark

    @high_watermark.setter
    def high_watermark(self, offset: int) -> None:
        self._high_watermark = max(self.log_start_offset, min(offset, self._log_end_offset))

    def release_high_watermark(self, *, follows_end: bool) -> None:
        """Let the only replica move the high watermark from now on: with the end of the log, or with its flushes."""
        self.high_watermark_follows_end = follows_end
        self._stored_high_watermark = None

    def hold_high_watermark(self) -> None:
        """Let replication set the high watermark from now on.

        A log that was just opened goes back to the one that was stored: what is above may lack in other replicas.
        """
        self.high_watermark_follows_end = False
        if self._stored_high_watermark is not None:
            self.high_watermark, self._stored_high_watermark = self._stored_high_watermark, None

    @property
    def high_watermark_to_store(self) -> int:
        """The high watermark; of a log that was opened and has no role yet, the one that is stored already."""
        return self._high_watermark if self._stored_high_watermark is None else self._stored_high_watermark

    @property
    def log_start_offset_to_store(self) -> int:
        """The log start; where a log begins behind records that are lost, these: nobody has deleted them."""
        return self._log_start_offset if self.lost_from is None else min(self.lost_from, self._log_start_offset)

    @property
    def recovery_point(self) -> int:
        """All records below it are durable."""
        return self._recovery_point

    @property
    def size_bytes(self) -> int:
        """Bytes of batches."""
        return self._segments.size_bytes

    @property
    def segment_count(self) -> int:
        return len(self._segments.sealed) + 1

    @property
    def active_base_offset(self) -> int:
        """Where the segment begins that is appended to."""
        return self._segments.active.base_offset

    @property
    def is_offline(self) -> bool:
        """Whether the disk refused; such a log must be opened anew, which recovers it."""
        return self._health.is_offline

    def put_offline(self, reason: str) -> None:
        """Take the log offline with all others of its data folder. May be called from any thread."""
        self._health.put_offline(reason)

    def segments_before(self, offset: int) -> list[SealedSegment]:
        """Return the segments that end at or before an offset, but the active one."""
        return [segment for segment in self._segments.sealed if segment.next_offset <= offset]

    # --- read ---

    def read(
        self, offset: int, max_bytes: int, max_offset: int, min_one_batch: bool = True
    ) -> FileRegion | bytearray | None:
        """Return whole batches, the first of them the first that ends at or after `offset`, all from one segment.

        :param max_bytes: of the result; the first batch may be larger if `min_one_batch`.
        :param max_offset: nothing from this offset on is returned; the high watermark, for consumers.
        :returns: None if there is nothing to return, or the log is truncated meanwhile; bytes where there are offsets,
            but no records: a batch without records that stands for them.
        :raises KafkaError: OFFSET_OUT_OF_RANGE.
        :raises IndexDamagedError: an index of a sealed segment has to be made anew first.
        :raises CorruptBatchError: the batches are damaged.
        :raises StorageError: the disk refused.
        """
        self._health.check()
        truncations = self.truncation_count  # before the other look: one that begins in between is seen by it
        if self._is_truncating:
            return None
        if not self.log_start_offset <= offset <= self._log_end_offset:
            message = (
                f"{self.partition}: offset {offset}, the log has {self.log_start_offset} to {self._log_end_offset}"
            )
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, message)
        end = min(max_offset, self._log_end_offset)
        if offset >= end:
            if offset == self._log_end_offset:
                self._segments.active.hint(offset, self._segments.active.size)
            return None
        if max_bytes <= 0 and not min_one_batch:
            return None
        try:
            try:
                found = self._read(offset, max_bytes, end, min_one_batch=min_one_batch)
            except SegmentReplacedError:
                # The one that is there now has its files open.
                found = self._read(offset, max_bytes, end, min_one_batch=min_one_batch)
        except Exception as error:
            if self.truncation_count != truncations:
                return None  # whatever it was: files and sizes did not agree
            if isinstance(error, OSError):
                raise self._health.failed("read", error, even_if_short=False) from error
            raise
        # Also what was found may be wrong then: a gap where there is none.
        return found if self.truncation_count == truncations else None

    def _read(self, offset: int, max_bytes: int, end: int, *, min_one_batch: bool) -> FileRegion | bytearray | None:
        segment, start = self._segments.find(offset)
        if start < segment.size:
            region = segment.read(start, max_bytes, end, min_one_batch=min_one_batch)
            if region is not None or end >= segment.next_offset or segment.header_at(start).base_offset < end:
                return region
        epoch = self.leader_epochs.epoch_for_offset(offset)
        gap = empty_batch(offset, min(end - 1, offset + RELATIVE_OFFSET_MAX), max(epoch, 0))
        return gap if min_one_batch or len(gap) <= max_bytes else None

    def bytes_of(self, region: FileRegion | bytearray) -> bytes:
        """Return the batches that `read` returned. May be called from any thread.

        :raises OSError: the disk refused.
        """
        if isinstance(region, bytearray):
            return bytes(region)
        assert isinstance(region.file, DataFile)
        return self._segments.active.filesystem.pread(region.file, region.length, region.position)

    def time_search(self) -> TimeSearch:
        """Return a search by time over the records that are in the log now, to be carried out on any thread.

        :raises StorageError: the log is offline.
        """
        self._health.check()
        return TimeSearch([segment.snapshot() for segment in self._segments.all], self._log_start_offset)
