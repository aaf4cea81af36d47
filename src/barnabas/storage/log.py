"""One partition's log, whole: opened and closed, its old records deleted, its segments compacted, its end cut off.

`ReadableLog` is the part that reads, `WritableLog` the one that appends and flushes.

Threads. One thread, the owner's, appends and reads. These calls may wait for the disk and come from other threads:
`roll` and `write`, while nobody appends; `flush`, `remove_old_files`, `truncate_to`, `close`. What they share with the
owner is guarded by `_state_lock`, which is never held while the disk works; `_flush_lock` keeps two of them from
working on the same files. Searches (`time_search`, `old_segments`) work on what the log was when they were made, and
need neither.

Errors: when the disk fails, the log goes offline: this call and all later ones raise StorageError. A flush
that failed is never tried again, since the kernel may have dropped the pages and would then report success
(shared wisdom since "fsyncgate"). The next start recovers what is whole. A shortage of room, file descriptors or
memory is not the disk's fault: only the call fails, what it wrote is taken back, and reads go on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from barnabas.clock import Clock
from barnabas.errors import ApiError, ErrorCode, StorageError
from barnabas.model import TopicPartition
from barnabas.storage.active_segment import ActiveSegment
from barnabas.storage.checkpoints import StoredOffsets
from barnabas.storage.cleaner.cleaned_segment import CleanedSegment
from barnabas.storage.cleaner.planning import first_dirty_offset
from barnabas.storage.cleaner.search import CleaningSearch
from barnabas.storage.cleaner.swap import begin_swap, end_swap, remove_cleaned
from barnabas.storage.filesystem import FileSystem
from barnabas.storage.log_config import LogConfig
from barnabas.storage.recovery import TRUST_ALL, load_log, load_producers
from barnabas.storage.replacement import SegmentReplacedError
from barnabas.storage.retention import UNLIMITED, OldSegments
from barnabas.storage.segment import SealedSegment
from barnabas.storage.segment_files import set_segment_files_aside
from barnabas.storage.segment_list import OpenSegments
from barnabas.storage.truncation import cut_segments, delete_segments
from barnabas.storage.writable_log import WritableLog


class Log(WritableLog):
    """A log. Made with `Log.open`."""

    @classmethod
    def open(
        cls,
        directory: Path,
        topic_partition: TopicPartition,
        config: LogConfig,
        clock: Clock,
        filesystem: FileSystem,
        clean: bool = False,
        recovery_point: int = 0,
        log_start_offset: int = 0,
        high_watermark: int = 0,
        open_segments: OpenSegments | None = None,
        *,
        lost_memory: bool = False,
    ) -> Log:
        """Open the log in a folder, or begin one there; recover it if needed.

        :param clean: it was closed cleanly, so that all of it is durable; the offsets: see `StoredOffsets`.
        :param lost_memory: the machine has crashed since it was written to.
        :raises StorageError: the disk refuses.
        """
        stored = StoredOffsets(recovery_point, log_start_offset, high_watermark)
        try:
            loaded = load_log(filesystem, directory, config, stored, clean=clean, lost_memory=lost_memory)
            durable = TRUST_ALL if clean else recovery_point
            has_records = loaded.active.next_offset > loaded.log_start_offset
            log = cls(
                directory, topic_partition, config, clock, filesystem, loaded, durable, open_segments,
                stored_high_watermark=high_watermark if has_records else None,
            )  # fmt: skip
        except OSError as error:
            raise StorageError(f"{directory}: cannot open the log: {error}") from error
        log._as_closed = not loaded.is_changed and log.recovery_point == log.log_end_offset
        log._new_names = not clean
        return log

    # --- deletion of old records ---

    def delete_records_before(self, offset: int) -> int:
        """Forget the records before `offset`; return where the log begins now.

        Nobody can read them when this returns. Sealed segments that hold nothing else are let go; `remove_old_files`
        removes their files, after the new start was stored. Where all records go, `roll` first.

        :raises ApiError: OFFSET_OUT_OF_RANGE: negative, or above the high watermark.
        :raises StorageError: the log is offline.
        """
        self._health.check()
        if not 0 <= offset <= self.high_watermark:
            message = f"{self.partition}: delete before offset {offset}, the high watermark is {self.high_watermark}"
            raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, message)
        if offset > self.log_start_offset:
            self._begin_with(offset)
        return self.log_start_offset

    def old_segments(self) -> OldSegments | None:
        """Return a search for the segments that the settings no longer keep; it can be carried out on any thread.

        :returns: None where it is clear that all are kept.
        :raises StorageError: the log is offline.
        """
        self._health.check()
        now_ms, config = self._clock.expiry_ms(), self.config
        if now_ms is None:
            # Segments still go by size: the disk is not to fill up meanwhile.
            now_ms, config = self._clock.time_ms(), replace(config, retention_ms=UNLIMITED)
        return OldSegments.of(self._segments, config, now_ms, self.high_watermark, self._active_since_ms)

    def remove_old_files(self) -> list[Path]:
        """Rename the files of the segments that were let go, and return their new names, to be deleted later.

        May be called from any thread, after it was stored durably where the log begins: a crash in between must
        not bring back a part of what was deleted.

        :raises StorageError: the disk refused.
        """
        with self._flush_lock:
            removed = list(self._removed)
            if self._health.closed or not removed:
                return []
            with self._health.offline_on_error("delete", even_if_short=False):
                bases = [segment.base_offset for segment in removed]
                renamed = set_segment_files_aside(self._filesystem, self.folder, bases)
                with self._state_lock:
                    del self._removed[: len(removed)]
                self._beside.remove_snapshots_before(self._segments.first.base_offset)
                return renamed

    def _begin_with(self, offset: int) -> None:
        with self._state_lock:
            self._offsets.move_log_start(offset)
            self._removed += self._segments.remove_before(offset)
        self.leader_epochs.truncate_before(self._segments.first.base_offset)

    # --- compaction ---

    def cleaning_search(self) -> CleaningSearch | None:
        """Return a search for the part of the log that can be compacted; it can be carried out on any thread.

        :returns: None where it is clear that there is none, and while no data expires (`Clock.expiry_ms`).
        :raises StorageError: the log is offline.
        """
        self._health.check()
        now_ms = self._clock.expiry_ms()
        if now_ms is None:
            return None
        first_dirty = first_dirty_offset(self.first_dirty_offset, self.log_start_offset, self.active_base_offset)
        offsets = self.offsets
        limit = min(offsets.last_stable_offset, offsets.recovery_point)
        return CleaningSearch.of(self._segments, first_dirty, limit, self.config, now_ms)

    @property
    def must_roll(self) -> bool:
        """Whether the active segment has been written to for as long as the settings allow."""
        since_ms = self._clock.time_ms() - self._active_since_ms
        return self._segments.active.size > 0 and since_ms > self.config.roll_ms

    def replace_segments(self, old: Sequence[SealedSegment], size: int) -> list[Path]:
        """Put the segment that a cleaner wrote in place of those that it was made of.

        May be called from any thread. Reads that have begun go on in the old files.

        :param old: what `segments_before` returned, or a part of it.
        :param size: of the new segment, in bytes.
        :returns: where the old files are now, to be deleted later.
        :raises SegmentReplacedError: not all of the old segments are in the log any more; nothing was changed.
        :raises StorageError: the disk refused.
        """
        base_offset, bases = old[0].base_offset, [segment.base_offset for segment in old]
        with self._flush_lock:
            self._health.check()
            with self._health.offline_on_error("compact", even_if_short=False):
                new = CleanedSegment(
                    self._filesystem, self.folder, base_offset, size=size, next_offset=old[-1].next_offset
                )
            with self._state_lock:
                is_replaced = self._segments.replace_some(old, new)
            if not is_replaced:
                raise SegmentReplacedError(f"{self.partition}: segments from {base_offset} on are not what they were")
            with self._health.offline_on_error("compact"):
                begin_swap(self._filesystem, self.folder, base_offset)
                renamed = end_swap(self._filesystem, self.folder, base_offset, bases)
                new.end_hold()
                self._beside.remove_snapshots_at(bases[1:])
                return renamed

    def mark_compacted(self, end_offset: int, truncation_count: int) -> None:
        """Note that the log is compacted up to an offset, unless it was truncated since that count was had."""
        with self._state_lock:
            if truncation_count == self.truncation_count:
                self.first_dirty_offset = end_offset

    def remove_cleaned(self) -> None:
        """Remove what a cleaner wrote and is not to be used.

        :raises StorageError: the disk refused, or the log is closed.
        """
        with self._flush_lock:
            self._health.check()
            with self._health.offline_on_error("compact", even_if_short=False):
                remove_cleaned(self._filesystem, self.folder)

    # --- truncation; the end ---

    def truncate_to(self, offset: int) -> None:
        """Remove all records from `offset` on, and with them the batch that holds it.

        Where there is a gap before `offset`, the log ends where the gap begins.
        An offset below the start of the log empties it; the log then begins with `offset`. So does one in the batch
        that the log begins in, or in the gap; the log then begins where it did.

        :raises StorageError: the disk refused.
        """
        self._health.check()
        if offset >= self.log_end_offset:
            return
        with self._truncating(offset):
            start = self.log_start_offset
            if offset < start or self._segments.end_before(offset) < start:
                self._start_over(min(offset, start), min(offset, start))
            else:
                self._end_at(*cut_segments(self._filesystem, self.folder, self._segments, offset, self.config))

    def start_over_at(self, offset: int) -> None:
        """Remove all records; the log begins and ends with `offset` from now on.

        :raises StorageError: the disk refused.
        """
        self._health.check()
        with self._truncating(min(offset, self.log_start_offset)):
            self._start_over(offset, offset)

    def reach_back_to(self, offset: int) -> None:
        """Let an empty log take the batch that it begins in, whose first offset is this one.

        Until then it ends before it begins. Where it begins stays as it is, since that may have been stored already,
        and told others, as what no crash undoes.

        :raises StorageError: the disk refused.
        """
        self._health.check()
        with self._truncating(offset):
            self._start_over(offset, self.log_start_offset)

    @contextmanager
    def _truncating(self, offset: int) -> Iterator[None]:
        """Have it stored, before anything is removed, that what is from `offset` on cannot be counted on."""
        self._as_closed = False
        with self._flush_lock, self._reader.shut_out_readers(), self._health.offline_on_error("truncate"):
            self._offsets.begin_truncation(offset)
            with self._state_lock:
                self.first_dirty_offset = min(self.first_dirty_offset, offset)
            self.on_truncated()  # a crash after the cut must not look as if the disk had lost what was flushed
            yield

    def close(self) -> None:
        """Make everything durable and let go of the files. Does nothing the second time.

        :raises StorageError: the disk refused, now or before; the log is closed, but not cleanly.
        """
        if self._health.closed:
            return
        try:
            with self._flush_lock:
                self._health.check()
                if not self._as_closed:
                    self._flush(closing=True)
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Let go of the files without flushing, as a crash would. Regions that were handed out stay readable."""
        with self._flush_lock, self._beside.lock:
            self._health.closed = True
            self._segments.close()

    def _start_over(self, offset: int, log_start_offset: int) -> None:
        """Replace all segments with an empty one.

        :param offset: its base offset.
        :param log_start_offset: the new log start offset. No moment may have a lower one: checkpoints are written
            at any time, and when the log is cut.
        """
        delete_segments(self._filesystem, self.folder, [*self._removed, *self._segments.all])
        self._beside.remove_all_snapshots()
        self._removed = []
        with self._state_lock:
            self._offsets.end_truncation(log_start_offset, offset)
        if self.leader_epochs.truncate_from(0):
            self._beside.write_epochs(self.leader_epochs)
        active = ActiveSegment.create(self._filesystem, self.folder, offset, self.config.index_interval_bytes)
        self._end_at([], active)

    def _end_at(self, sealed: list[SealedSegment], active: ActiveSegment) -> None:
        """Make everything else agree with segments that were cut."""
        end_offset = active.next_offset
        with self._state_lock:
            self._segments.replace(sealed, active)
            self._offsets.end_truncation(self.log_start_offset, end_offset)
            self._new_names = True
            self._bytes_since_checkpoint = active.size
        if self.leader_epochs.truncate_from(end_offset):
            self._beside.write_epochs(self.leader_epochs)
        self._producers = load_producers(self._filesystem, self.folder, self._segments.all, end_offset, self._clock)
        self._beside.find_snapshots()
        self.on_truncated()
