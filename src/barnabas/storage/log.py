"""One partition's log: batches appended, found, read, flushed, truncated.

    log_start_offset <= high_watermark <= log_end_offset

Appending gives batches their offsets and writes them with one writev; reading gives a `FileRegion` that the
socket layer hands to sendfile. Neither looks at a single record.

Threads: all calls come from one thread, except `flush`, which may run on another at any time. What both touch is
guarded by `_state_lock`, which is never held while the disk works. Flushes, truncation and closing exclude each
other by `_flush_lock`.

Errors: when the disk refuses, the log goes offline: this call and all later ones raise StorageError. A flush
that failed is never tried again, since the kernel may have dropped the pages and would then report success
(shared wisdom since "fsyncgate"). The next start recovers what is whole. A shortage of file descriptors or memory
is not the disk's fault: where no batch was written yet, only the call fails.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from barnabas.clock import Clock
from barnabas.errors import BarnabasError, ErrorCode, KafkaError, StorageError
from barnabas.model import (
    NO_OFFSET,
    NO_TIMESTAMP,
    FileRegion,
    OffsetAndTimestamp,
    TimestampType,
    TopicPartition,
)
from barnabas.records.header import Buffer
from barnabas.storage.append import AppendInfo, checked_batches, find_duplicate
from barnabas.storage.append_group import AppendGroup, Outcome
from barnabas.storage.config import LogConfig
from barnabas.storage.filesystem import FileSystem
from barnabas.storage.flush import CHECKPOINT_BYTES, BesideFiles, FlushPlan
from barnabas.storage.health import LogHealth
from barnabas.storage.recovery import (
    TRUST_ALL,
    EpochCheck,
    LoadedLog,
    load_log,
    load_producers,
    load_segment,
)
from barnabas.storage.retention import count_deletable
from barnabas.storage.rolling import must_roll
from barnabas.storage.segment import ActiveSegment, SealedSegment, Segment
from barnabas.storage.segment_files import delete_segment_files, set_segment_files_aside
from barnabas.storage.segment_list import SegmentList
from barnabas.storage.time_search import first_record_at, latest_record

__all__ = ["AppendInfo", "Log", "LogConfig"]


class Log:
    """A log. Made with `Log.open`."""

    def __init__(
        self,
        folder: Path,
        partition: TopicPartition,
        config: LogConfig,
        clock: Clock,
        filesystem: FileSystem,
        loaded: LoadedLog,
        recovery_point: int,
    ) -> None:
        self.folder = folder
        self.partition = partition
        self.config = config
        """May be replaced at any time."""
        self.leader_epochs = loaded.epochs
        self.high_watermark_follows_end = True
        """Whether an append moves the high watermark; replication switches it off and sets it itself."""
        self._clock = clock
        self._filesystem = filesystem
        self._segments = SegmentList(loaded.sealed, loaded.active)
        self._removed: list[SealedSegment] = []
        self._active_since_ms = clock.time_ms()
        self._log_start_offset = loaded.log_start_offset
        self._log_end_offset = loaded.active.next_offset
        self._high_watermark = self._log_end_offset
        self._recovery_point = min(recovery_point, self._log_end_offset)
        self._producers = load_producers(filesystem, folder, loaded.segments, self._log_end_offset, clock.time_ms())
        self._beside = BesideFiles(filesystem, folder)
        self._new_names = True
        self._as_closed = False
        self._bytes_since_checkpoint = loaded.active.size
        self._health = LogHealth(folder, partition)
        self._state_lock = threading.Lock()
        self._flush_lock = threading.Lock()
        self.on_truncated: Callable[[], None] = lambda: None
        """Called after a truncation; the manager stores the recovery point and the start of the log then."""
        self.on_rolled: Callable[[], None] = lambda: None
        """Called after a segment was sealed, which keeps its file open until it is flushed."""

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
    ) -> Log:
        """Open the log in a folder, or begin one there; recover it if needed.

        :param clean: it was closed cleanly, so that all of it is durable.
        :param recovery_point: the offset up to which it was flushed.
        :param log_start_offset: the offset before which records were deleted.
        :raises StorageError: the disk refuses.
        """
        try:
            filesystem.make_folder(directory)
            recovery_point = TRUST_ALL if clean else recovery_point
            loaded = load_log(filesystem, directory, config, recovery_point, log_start_offset)
            log = cls(directory, topic_partition, config, clock, filesystem, loaded, recovery_point)
            if loaded.epochs_changed:
                log._beside.write_epochs(log.leader_epochs)
            log._as_closed = clean and not loaded.epochs_changed and loaded.damage is None
        except OSError as error:
            raise StorageError(f"{directory}: cannot open the log: {error}") from error
        return log

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
    def is_offline(self) -> bool:
        """Whether the disk refused; such a log must be opened anew, which recovers it."""
        return self._health.is_offline

    @property
    def has_unflushed_segments(self) -> bool:
        """Whether a segment was sealed and not flushed since; a flush off the event loop is then due."""
        return any(each.unflushed_file or each.next_offset > self._recovery_point for each in self._segments.sealed)

    # --- append ---

    def append(self, records: Buffer, leader_epoch: int) -> AppendInfo:
        """Append the batches of one produce request.

        Base offset and leader epoch are stamped into `records` in place if it is writable. The batches are in
        the page cache when this returns; `flush` makes them durable.

        :raises CorruptBatchError: a batch is damaged; nothing was appended.
        :raises KafkaError: MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE, INVALID_RECORD, INVALID_PRODUCER_EPOCH,
            OUT_OF_ORDER_SEQUENCE_NUMBER, DUPLICATE_SEQUENCE_NUMBER, FENCED_LEADER_EPOCH; nothing was appended.
        :raises StorageError: the disk refused; nothing may be acknowledged.
        """
        (outcome,) = self.append_all([records], leader_epoch)
        if isinstance(outcome, BarnabasError):
            raise outcome
        return outcome

    def append_all(self, requests: Sequence[Buffer], leader_epoch: int) -> list[Outcome]:
        """Append the batches of several requests, in their order, with one write.

        Each request is judged alone, as by `append`, after those before it; what `append` raises is its outcome.
        """
        try:
            self._health.check()
            self._check_epoch(leader_epoch)
        except BarnabasError as error:
            return [error] * len(requests)
        now_ms = self._clock.time_ms()
        by_broker = self.config.message_timestamp_type is TimestampType.LOG_APPEND_TIME
        new_ms = now_ms if by_broker else NO_TIMESTAMP
        group = AppendGroup(self._producers, leader_epoch, now_ms, new_ms, self._log_start_offset)
        group.begin(self._segments.active)
        for records in requests:
            try:
                outcome: Outcome = self._gather(group, records, leader_epoch, now_ms)
            except BarnabasError as error:
                outcome = error
            group.outcomes.append(outcome)
        with suppress(StorageError):  # it stands in the outcomes
            self._write(group)
        return group.outcomes

    def roll(self) -> None:
        """Begin a new segment, unless the active one is empty.

        :raises StorageError: the disk refused.
        """
        self._health.check()
        if self._segments.active.size:
            self._as_closed = False
            with self._health.offline_on_error("roll", even_if_short=False):
                self._roll(self._clock.time_ms())

    # --- read ---

    def read(self, offset: int, max_bytes: int, max_offset: int, min_one_batch: bool = True) -> FileRegion | None:
        """Return whole batches, the first of them the one that holds `offset`, all from one segment.

        :param max_bytes: of the result; the first batch may be larger if `min_one_batch`.
        :param max_offset: nothing from this offset on is returned; the high watermark, for consumers.
        :returns: None if there is nothing to return.
        :raises KafkaError: OFFSET_OUT_OF_RANGE.
        :raises CorruptBatchError: the batches are damaged.
        :raises StorageError: the disk refused.
        """
        self._health.check()
        if not self.log_start_offset <= offset <= self._log_end_offset:
            message = (
                f"{self.partition}: offset {offset}, the log has {self.log_start_offset} to {self._log_end_offset}"
            )
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, message)
        if offset >= min(max_offset, self._log_end_offset):
            if offset == self._log_end_offset:
                self._segments.active.hint(offset, self._segments.active.size)
            return None
        with self._health.offline_on_error("read", even_if_short=False):
            return self._segments.holding(offset).read(offset, max_bytes, max_offset, min_one_batch=min_one_batch)

    def offset_for_timestamp(self, timestamp_ms: int) -> OffsetAndTimestamp | None:
        """Return the first record with this timestamp or a later one; None if there is none.

        :raises CorruptBatchError: the batches are damaged.
        :raises StorageError: the disk refused.
        """
        self._health.check()
        with self._health.offline_on_error("search", even_if_short=False):
            for segment in self._segments.all:
                if segment.max_timestamp_ms >= timestamp_ms:
                    found = first_record_at(segment, timestamp_ms, self._log_start_offset)
                    if found is not None:
                        return found
        return None

    def max_timestamp(self) -> OffsetAndTimestamp:
        """Return the first record with the greatest timestamp of all; (-1, -1) if there are no records."""
        self._health.check()
        with self._health.offline_on_error("search", even_if_short=False):
            # The first segment's own greatest timestamp may be that of a record before the start of the log.
            first, *others = self._segments.all
            candidates = [first, max(others, key=lambda each: each.max_timestamp_ms)] if others else [first]
            found = [latest_record(segment, self._log_start_offset) for segment in candidates]
        nothing = OffsetAndTimestamp(NO_OFFSET, NO_TIMESTAMP)
        return max((each for each in found if each), key=lambda each: each.timestamp_ms, default=nothing)

    # --- deletion of old records ---

    def delete_records_before(self, offset: int) -> int:
        """Forget the records before `offset`; return where the log begins now.

        Nobody can read them when this returns. Segments that hold nothing else are let go; `remove_old_files`
        removes their files, after the new start was stored.

        :raises KafkaError: OFFSET_OUT_OF_RANGE: negative, or above the high watermark.
        :raises StorageError: the disk refused.
        """
        self._health.check()
        if not 0 <= offset <= self._high_watermark:
            message = f"{self.partition}: delete before offset {offset}, the high watermark is {self._high_watermark}"
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, message)
        if offset > self._log_start_offset:
            if offset == self._log_end_offset:
                self.roll()
            self._begin_with(offset)
        return self._log_start_offset

    def delete_old_segments(self) -> int:
        """Let go of the segments that the settings do not keep (`barnabas.storage.retention`); return how many.

        To be called now and then. It also closes an active segment after `segment.ms`, so that a log to which
        nothing is appended is not kept for longer than others.

        :raises StorageError: the disk refused.
        """
        self._health.check()
        now_ms = self._clock.time_ms()
        with self._health.offline_on_error("delete old segments", even_if_short=False):
            if now_ms - self._active_since_ms > self.config.segment_ms:
                self.roll()
            segments = self._segments.all
            count = count_deletable(segments, self.config, now_ms, self._high_watermark, Segment.newest_ms)
            if count:
                if count == len(segments):
                    self.roll()
                self._begin_with(segments[count - 1].next_offset)
        return count

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
                renamed = [
                    path
                    for segment in removed
                    for path in set_segment_files_aside(self._filesystem, self.folder, segment.base_offset)
                ]
                with self._state_lock:
                    del self._removed[: len(removed)]
                self._beside.remove_snapshots_before(self._segments.first.base_offset)
                return renamed

    def _begin_with(self, offset: int) -> None:
        with self._state_lock:
            self._log_start_offset = offset
            self._removed += self._segments.remove_before(offset)
        self.leader_epochs.truncate_before(self._segments.first.base_offset)

    # --- durability ---

    def flush(self) -> None:
        """Make all that was appended before this call durable. May be called from any thread.

        :raises StorageError: the disk refused, now or before; nothing that was not durable can be counted on.
        """
        with self._flush_lock:
            self._health.check()
            self._flush(closing=False)

    def truncate_to(self, offset: int) -> None:
        """Remove all records from `offset` on, and with them the batch that holds it.

        An offset below the start of the log empties it; the log then begins with `offset`. So does one in the batch
        that the log begins in; the log then begins where it did.

        :raises StorageError: the disk refused.
        """
        self._health.check()
        if offset >= self._log_end_offset:
            return
        self._as_closed = False
        with self._flush_lock, self._health.offline_on_error("truncate"):
            start = self._log_start_offset
            if offset < start or self._segments.holding(offset).locate(offset).header.base_offset < start:
                self._start_over(min(offset, start))
            else:
                self._truncate(offset)

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
        with self._flush_lock:
            self._health.closed = True
            self._segments.close()

    def delete(self) -> None:
        """Close the log and remove its folder.

        :raises StorageError: the disk refused; some of the files may be left.
        """
        self.abandon()
        try:
            self._filesystem.remove_folder(self.folder)
        except OSError as error:
            raise StorageError(f"{self.folder}: cannot be removed: {error}") from error

    # --- segments; flushes, one at a time ---

    def _gather(self, group: AppendGroup, records: Buffer, leader_epoch: int, now_ms: int) -> AppendInfo:
        """Check a request and put it into the group."""
        view = memoryview(records)
        batches = checked_batches(view, self.config)
        duplicate = find_duplicate(batches, group.producers)
        if duplicate is not None:
            return group.known(duplicate)
        if leader_epoch != self.leader_epochs.latest:
            self._health.check()
            self._as_closed = False
            with self._health.offline_on_error("append", even_if_short=False):
                self._begin_epoch(leader_epoch, group.next_offset)
        if must_roll(group, self.config, len(view), batches, now_ms, self._active_since_ms):
            self._health.check()
            self._write(group)
            self._as_closed = False
            with self._health.offline_on_error("append", even_if_short=False):
                self._roll(now_ms)
            group.begin(self._segments.active)
        return group.add(view, batches)

    def _write(self, group: AppendGroup) -> None:
        """Write what the group gathered, and account for it.

        :raises StorageError: the disk refused; the outcomes say so.
        """
        if not group.chunks:
            return
        self._as_closed = False
        active = self._segments.active
        try:
            self._health.check()
            with self._health.offline_on_error("append"):
                active.write(group.chunks)
            with self._state_lock:
                self._bytes_since_checkpoint += group.size - active.size
                active.note_all(group.batches)
                group.producers.settle()
                self._log_end_offset = group.next_offset
            if self.high_watermark_follows_end:
                self._high_watermark = self._log_end_offset
            # A flush may have failed meanwhile: these batches may never reach the disk.
            self._health.check()
        except StorageError as error:
            group.fail(error)
            raise
        group.begin(active)

    def _roll(self, now_ms: int) -> None:
        sealed, base_offset = self._segments.active, self._log_end_offset
        with self._state_lock:
            self._producers.expire(now_ms)
            indexes = sealed.encode_indexes(closing=True)
        try:
            with self._beside.lock:
                sealed.write_indexes(*indexes)
                sealed.is_sealed = True
                self._beside.write_snapshot(
                    base_offset, self._producers.entries(), self._segments.base_offsets, durable=False
                )
            active = ActiveSegment.create(self._filesystem, self.folder, base_offset, self.config.index_interval_bytes)
        except OSError:
            sealed.is_sealed = False  # of the new segment, the .log is made last: it is not there
            raise
        with self._state_lock:
            self._segments.seal_active(active)
            self._new_names = True
            self._bytes_since_checkpoint = 0
        self._active_since_ms = now_ms
        self.on_rolled()

    def _check_epoch(self, leader_epoch: int) -> None:
        latest = self.leader_epochs.latest
        if leader_epoch < latest:
            message = f"{self.partition}: leader epoch {leader_epoch}, {latest} is known"
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH, message)

    def _begin_epoch(self, leader_epoch: int, start_offset: int) -> None:
        self.leader_epochs.assign(leader_epoch, start_offset)
        try:
            self._beside.write_epochs(self.leader_epochs)
        except OSError:
            self.leader_epochs.truncate_from(start_offset)
            raise

    def _flush(self, *, closing: bool) -> None:
        with self._state_lock:
            plan = self._plan_flush(closing=closing)
        if plan is None:
            return
        with self._health.offline_on_error("flush"):
            try:
                self._beside.carry_out(plan, self._segments.base_offsets)
            except OSError as error:
                if error.errno not in {errno.EMFILE, errno.ENFILE}:
                    raise
                # A file could not be opened, but no fsync failed: the next flush does all that this one was to do.
                self._new_names = True
                raise StorageError(f"{self.partition}: flush failed: {error}") from error
        self._recovery_point = max(self._recovery_point, plan.end_offset)

    def _plan_flush(self, *, closing: bool) -> FlushPlan | None:
        sealed = [
            segment
            for segment in self._segments.sealed
            if segment.unflushed_file is not None or segment.next_offset > self._recovery_point
        ]
        if self._log_end_offset <= self._recovery_point and not sealed and not closing:
            return None
        with_derived = closing or self._bytes_since_checkpoint >= CHECKPOINT_BYTES
        plan = FlushPlan(
            end_offset=self._log_end_offset,
            sealed=sealed,
            active=self._segments.active,
            indexes=self._segments.active.encode_indexes(closing=closing) if with_derived else None,
            producers=self._producers.entries() if with_derived else None,
            new_names=self._new_names,
        )
        self._new_names = False
        if with_derived:
            self._bytes_since_checkpoint = 0
        return plan

    # --- truncation ---

    def _start_over(self, offset: int) -> None:
        self._delete_segments([*self._removed, *self._segments.all])
        self._beside.remove_all_snapshots()
        self._removed = []
        self._log_start_offset = offset
        if self.leader_epochs.truncate_from(0):
            self._beside.write_epochs(self.leader_epochs)
        active = ActiveSegment.create(self._filesystem, self.folder, offset, self.config.index_interval_bytes)
        self._end_at([], active)

    def _truncate(self, offset: int) -> None:
        self._delete_segments([segment for segment in self._segments.all if segment.base_offset > offset])
        kept = [segment for segment in self._segments.sealed if segment.base_offset <= offset]
        active = self._segments.active
        if active.base_offset > offset:
            last = kept.pop()
            active, damage = load_segment(
                self._filesystem,
                self.folder,
                last.base_offset,
                self.config.index_interval_bytes,
                TRUST_ALL,
                EpochCheck(None),
            )
            last.close()
            if damage is not None:
                raise OSError(f"{last.paths.log} is damaged: {damage}")
        if offset < active.next_offset:
            active.truncate(active.locate(offset))
        active.write_indexes(*active.encode_indexes(closing=False), durable=True)
        self._filesystem.fsync_folder(self.folder)
        self._end_at(kept, active)

    def _delete_segments(self, segments: list[Segment]) -> None:
        """Delete from the end, so that a crash in between leaves a log without a gap."""
        for segment in reversed(segments):
            delete_segment_files(self._filesystem, self.folder, segment.base_offset)
            segment.close()

    def _end_at(self, sealed: list[SealedSegment], active: ActiveSegment) -> None:
        """Make everything else agree with segments that were cut."""
        end_offset = active.next_offset
        with self._state_lock:
            self._segments.replace(sealed, active)
            self._log_end_offset = end_offset
            self._new_names = True
            self._bytes_since_checkpoint = active.size
        self.high_watermark = min(self._high_watermark, end_offset)
        if self.leader_epochs.truncate_from(end_offset):
            self._beside.write_epochs(self.leader_epochs)
        now_ms = self._clock.time_ms()
        self._producers = load_producers(self._filesystem, self.folder, self._segments.all, end_offset, now_ms)
        self._beside.find_snapshots()
        self._recovery_point = min(self._recovery_point, end_offset)
        self.on_truncated()
