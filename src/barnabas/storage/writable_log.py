"""The part of a log that lets it grow: appends, rolls, flushes.

Neither an append nor a read looks at a single record, and neither does any other work on files: an append that first
needs a new segment says so (`append_ready`), and `roll` makes it. A new leader epoch is noted in memory; its file is
written with the next flush, and recovery learns it from the batches.

An append is one transaction: everything is checked before the first byte is written; then the batches are written,
accounted for, and told. Any error between the write and the accounting takes the log offline, so that
no later batch is acknowledged behind bytes that are not accounted for.

Threads and errors: see `barnabas.storage.log`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from barnabas.clock import Clock
from barnabas.errors import ApiError, BarnabasError, ErrorCode
from barnabas.model import TopicPartition
from barnabas.records.header import Buffer
from barnabas.records.scan import StampedBatch
from barnabas.storage.active_segment import ActiveSegment
from barnabas.storage.append import AppendInfo
from barnabas.storage.append_group import AppendGroup, LogState, Outcome, stamp_made
from barnabas.storage.filesystem import FileSystem
from barnabas.storage.flush import CHECKPOINT_BYTES, BesideFiles, FlushPlan, PutOffError
from barnabas.storage.health import LogHealth
from barnabas.storage.log_config import LogConfig
from barnabas.storage.log_offsets import LogOffsets, OffsetTracker
from barnabas.storage.log_reader import LogReader
from barnabas.storage.producer_state import ProducerEntry
from barnabas.storage.recovery import LoadedLog, load_producers
from barnabas.storage.segment import SealedSegment
from barnabas.storage.segment_list import OpenSegments, SegmentList

UNFLUSHED_SEGMENTS_MAX = 8
"""The most segments sealed and not flushed: each holds a file open. More rolls wait until some are flushed."""


class WritableLog:
    """What is common to all that is done to a log by its leader or a follower as it grows."""

    def __init__(
        self,
        folder: Path,
        partition: TopicPartition,
        config: LogConfig,
        clock: Clock,
        filesystem: FileSystem,
        loaded: LoadedLog,
        recovery_point: int,
        open_segments: OpenSegments | None = None,
        offline: str | None = None,
        stored_high_watermark: int | None = None,
    ) -> None:
        self._folder = str(folder)
        self.partition = partition
        self.leader_epochs = loaded.epochs
        self._health = LogHealth(folder, partition, offline)
        self._segments = SegmentList(loaded.sealed, loaded.active, open_segments)
        self._state_lock = threading.Lock()
        self._offsets = OffsetTracker(
            self._state_lock, loaded.log_start_offset, loaded.active.next_offset, recovery_point, stored_high_watermark
        )
        self._reader = LogReader(partition, self._segments, self._offsets, self.leader_epochs, self._health)
        self.read = self._reader.read
        self.read_remote = self._reader.read_remote
        self.bytes_of = self._reader.bytes_of
        self.time_search = self._reader.time_search
        self.lost_from = loaded.lost_from
        """The offset from which records were found to be lost, if the log went on behind them: another replica may have
        them."""
        self.is_newer_than_tree = False
        """Whether the metadata tree was older than the log directory when the broker started, and the log has not been
        compared with a leader's since: it may have acknowledged records that the leader lacks."""
        self.config = config
        """May be replaced at any time."""
        self._clock = clock
        self._filesystem = filesystem
        self._removed: list[SealedSegment] = []
        self._active_since_ms = clock.time_ms()
        end = loaded.active.next_offset
        self._producers = load_producers(filesystem, folder, loaded.segments, end, clock, loaded.snapshots)
        self._beside = BesideFiles(filesystem, folder, loaded.snapshots, loaded.stored_epochs)
        self._new_names = True
        self._as_closed = False
        self._unaccounted: AppendGroup | None = None
        self._bytes_since_checkpoint = loaded.active.size
        self._flush_lock = threading.Lock()
        self.first_dirty_offset = 0
        """Up to here the log is compacted, unless it does not reach so far; the manager stores it."""
        self.on_truncated: Callable[[], None] = lambda: None
        """Called after a truncation; the manager stores the recovery point and the start of the log then."""
        self.on_rolled: Callable[[], None] = lambda: None
        """Called after a segment was sealed, which keeps its file open until it is flushed."""

    @property
    def folder(self) -> Path:
        """Where its files are."""
        return Path(self._folder)

    # --- offsets ---

    @property
    def offsets(self) -> LogOffsets:
        """All offsets, as of one moment."""
        return self._offsets.current

    @property
    def log_start_offset(self) -> int:
        return self._offsets.current.log_start_offset

    @property
    def log_end_offset(self) -> int:
        return self._offsets.current.log_end_offset

    @property
    def high_watermark(self) -> int:
        return self._offsets.current.high_watermark

    @property
    def recovery_point(self) -> int:
        return self._offsets.current.recovery_point

    def move_high_watermark(self, offset: int) -> None:
        """See `OffsetTracker.move_high_watermark`. The replica's role calls it, and nothing else does."""
        self._offsets.move_high_watermark(offset)

    def release_high_watermark(self, *, follows_end: bool) -> None:
        """See `OffsetTracker.release_high_watermark`."""
        self._offsets.release_high_watermark(follows_end=follows_end)

    def hold_high_watermark(self) -> None:
        """See `OffsetTracker.hold_high_watermark`."""
        self._offsets.hold_high_watermark()

    @property
    def high_watermark_to_store(self) -> int:
        return self._offsets.high_watermark_to_store

    @property
    def log_start_offset_to_store(self) -> int:
        """The log start offset; if the log begins behind records that are lost, where the lost records began: nobody
        has deleted them."""
        start = self._offsets.current.log_start_offset
        return start if self.lost_from is None else min(self.lost_from, start)

    @property
    def truncation_count(self) -> int:
        """Truncations that have begun."""
        return self._reader.truncation_count

    @property
    def size_bytes(self) -> int:
        """Bytes of batches."""
        return self._segments.size_bytes

    @property
    def segment_count(self) -> int:
        return len(self._segments.sealed) + 1

    @property
    def active_base_offset(self) -> int:
        """Where the active segment begins."""
        return self._segments.active.base_offset

    @property
    def is_offline(self) -> bool:
        """Whether the disk refused; such a log must be opened anew, which recovers it."""
        return self._health.is_offline

    def put_offline(self, reason: str) -> None:
        """Take the log offline with all others of its data folder. May be called from any thread."""
        self._health.put_offline(reason)

    def segments_before(self, offset: int) -> list[SealedSegment]:
        """Return the sealed segments that end at or before an offset."""
        return [segment for segment in self._segments.sealed if segment.next_offset <= offset]

    @property
    def has_unflushed_segments(self) -> bool:
        """Whether a flush off the event loop is due: a segment was sealed since the last one, or much was appended."""
        if self._bytes_since_checkpoint >= CHECKPOINT_BYTES and self.log_end_offset > self.recovery_point:
            return True
        return bool(self._segments.sealed_since(self.recovery_point))

    @property
    def producers(self) -> dict[int, ProducerEntry]:
        """A copy of what is remembered of idempotent producers, by producer id."""
        return self._producers.entries()

    @property
    def highest_producer_id(self) -> int:
        """The highest producer id in the log that a broker may have allocated, or -1."""
        return self._producers.highest_id

    def knows_producer(self, producer_id: int) -> bool:
        """Return whether a producer with this id wrote to the log and is remembered."""
        return producer_id in self._producers

    # --- append ---

    def append(self, records: Buffer, leader_epoch: int) -> AppendInfo:
        """Append the batches of one produce request.

        Base offset and leader epoch are stamped into `records` in place if it is writable. The batches are in
        the page cache when this returns; `flush` makes them durable.

        :raises CorruptBatchError: a batch is damaged; nothing was appended.
        :raises ApiError: MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE, INVALID_RECORD, INVALID_PRODUCER_EPOCH,
            OUT_OF_ORDER_SEQUENCE_NUMBER, FENCED_LEADER_EPOCH; nothing was appended.
        :raises StorageError: the disk refused; nothing may be acknowledged.
        """
        (outcome,) = self.append_all([records], leader_epoch)
        if isinstance(outcome, BarnabasError):
            raise outcome
        return outcome

    def append_all(self, requests: Sequence[Buffer], leader_epoch: int) -> list[Outcome]:
        """Append the batches of several requests, in their order, as a leader does; wait for the disk if need be.

        Each request is judged alone, as by `append`, after those before it; what `append` raises is its outcome.
        """
        outcomes = self.append_ready(requests, leader_epoch)
        while len(outcomes) < len(requests):
            try:
                self.roll()
            except BarnabasError as error:
                outcomes.append(error)
            outcomes += self.append_ready(requests[len(outcomes) :], leader_epoch)
        return outcomes

    def append_ready(self, requests: Sequence[Buffer], leader_epoch: int) -> list[Outcome]:
        """Do as `append_all` does, with one write, up to the first request that needs a new segment: `roll` makes it.

        :returns: the outcomes of the requests before that one; of all if there is none.
        """
        if (refusal := self._refusal(leader_epoch)) is not None:
            return [refusal] * len(requests)
        group = self._begin_group(leader_epoch)
        group.take_all(requests)
        with suppress(BarnabasError):  # it stands in the outcomes
            self._write(group)
        return group.outcomes

    def append_made(self, batch: bytearray, leader_epoch: int) -> bool:
        """Append a batch that this broker made, of records with keys, if nothing stands in the way of that.

        It is checked and stamped as `append_ready` does, which costs most of an append of a few bytes otherwise.

        :returns: False where it is not in the log: `append_ready` says why, or what has to be done first.
        """
        if self._refusal(leader_epoch) is not None or leader_epoch > self.leader_epochs.latest:
            return False
        stamped = stamp_made(batch, self._segments.active, self.log_end_offset, leader_epoch, self.config)
        if not stamped:
            return False
        self._as_closed = False
        with suppress(BarnabasError):  # whoever tries again is told
            self._segments.active.append([batch], self._health)
            self._note(stamped, len(batch))
            return True
        return False

    def begin_append(self, take: Callable[[AppendGroup], bool], leader_epoch: int) -> AppendGroup | None:
        """Begin an append in three steps, for records that are too many to be written at once by the owner's thread.

        After this, `write` puts them into the file, on any thread, and then `account` ends the append, on the
        owner's; nobody else appends from here to there.

        :param take: puts one request into a group, by `AppendGroup.take` or `AppendGroup.replicate`.
        :returns: None if there has to be another segment first: `roll`.
        :raises BarnabasError: as `append` does.
        """
        if (refusal := self._refusal(leader_epoch)) is not None:
            raise refusal
        group = self._begin_group(leader_epoch)
        return group if take(group) else None

    def write(self, group: AppendGroup) -> None:
        """Write what an append brings; may be called from any thread. What goes wrong is told by `account`."""
        self._unaccounted = group
        try:
            self._health.check()
            if group.chunks:
                self._as_closed = False
                self._segments.active.append(group.chunks, self._health)
        except BarnabasError as error:
            group.fail(error)

    def account(self, group: AppendGroup) -> Outcome:
        """End an append; return its outcome."""
        self._unaccounted = None
        with suppress(BarnabasError):  # it stands in the outcomes
            self._account_for(group)
        return group.outcomes[0]

    def roll(self, base_offset: int | None = None) -> None:
        """Begin a new segment, unless the active one is empty.

        May be called from another thread; nobody appends meanwhile.

        :param base_offset: with which the new segment is to begin if the active one is empty; the log ends there from
            now on. Else it begins with the end of the log: a gap between two segments looks like a loss
            (`barnabas.storage.recovery`), so there is none but where offsets would not fit a segment.
        :raises StorageError: the disk refused.
        """
        self._health.check()
        is_empty = not self._segments.active.size
        base_offset = max(base_offset or 0, self.log_end_offset) if is_empty else self.log_end_offset
        if not is_empty or base_offset > self.log_end_offset:
            self._as_closed = False
            if self._segments.unflushed_count >= UNFLUSHED_SEGMENTS_MAX:
                self.flush()
            with self._health.offline_on_error("roll", even_if_short=False):
                self._roll(base_offset, self._clock.time_ms())

    # --- durability ---

    def flush(self) -> None:
        """Make all that was appended before this call durable. May be called from any thread.

        :raises StorageError: the disk refused, now or before; nothing that was not durable can be counted on.
        """
        with self._flush_lock:
            self._health.check()
            self._flush(closing=False)

    # --- inside ---

    def _refusal(self, leader_epoch: int) -> BarnabasError | None:
        """Return why nothing can be appended in this epoch, or None."""
        try:
            if self._unaccounted is not None:
                self._health.go_offline("append", RuntimeError("an append before it has not come to its end"))
            self._health.check()
        except BarnabasError as error:
            return error
        if leader_epoch < (latest := self.leader_epochs.latest):
            message = f"{self.partition}: leader epoch {leader_epoch}, {latest} is known"
            return ApiError(ErrorCode.FENCED_LEADER_EPOCH, message)
        return None

    def _begin_group(self, leader_epoch: int) -> AppendGroup:
        active, since_ms, latest_epoch = self._segments.active, self._active_since_ms, self.leader_epochs.latest
        state = LogState(active, since_ms, self.log_start_offset, latest_epoch, self._producers, self.config)
        return AppendGroup(state, leader_epoch, self._clock.time_ms())

    def _write(self, group: AppendGroup) -> None:
        """Write what the group gathered, and account for it.

        :raises BarnabasError: the disk refused, or the log was closed; the outcomes say so.
        """
        self.write(group)
        self._unaccounted = None
        self._account_for(group)

    def _account_for(self, group: AppendGroup) -> None:
        """:raises BarnabasError: what was written may not be acknowledged; the outcomes say so."""
        if group.failure is not None:
            raise group.failure
        if not group.chunks:
            return
        try:
            self._note(group.batches, group.size - self._segments.active.size, group)
        except BarnabasError as error:
            group.fail(error)
            raise

    def _note(self, batches: Sequence[StampedBatch], size: int, group: AppendGroup | None = None) -> None:
        """Account for batches that are in the file.

        :raises BarnabasError: they may not be acknowledged.
        """
        try:
            with self._state_lock:
                self._bytes_since_checkpoint += size
                self._segments.active.note_all(batches)
                if group is not None:
                    group.producers.settle()
                    for epoch in group.epochs:
                        self.leader_epochs.assign(*epoch)
                self._offsets.move_log_end(batches[-1][1] + 1)
            # A flush may have failed meanwhile: these batches may never reach the disk.
            self._health.check()
        except BarnabasError:
            raise
        except BaseException as error:
            # An unexpected error: it is not known what is accounted for.
            raise self._health.go_offline("append", error) from error
        self._health.note_success()

    def _roll(self, base_offset: int, now_ms: int) -> None:
        sealed, expiry_ms = self._segments.active, self._clock.expiry_ms()
        with self._state_lock:
            if expiry_ms is not None:
                self._producers.expire(expiry_ms)
            indexes = sealed.encode_indexes(closing=True)
        try:
            with self._beside.lock:
                self._health.check()  # once it is closed, the folder may be another log's
                sealed.write_indexes(*indexes)
                sealed.is_sealed = True
                self._beside.write_snapshot(
                    base_offset, self._producers.entries(), self._segments.base_offsets, durable=False
                )
                interval = self.config.index_interval_bytes
                active = ActiveSegment.create(self._filesystem, self.folder, base_offset, interval)
        except OSError:
            sealed.is_sealed = False  # of the new segment, the .log is made last: it is not there
            raise
        with self._state_lock:
            self._segments.seal_active(active)
            self._offsets.move_log_end(base_offset)
            self._new_names = True
            self._bytes_since_checkpoint = 0
        self._active_since_ms = now_ms
        self.on_rolled()

    def _flush(self, *, closing: bool) -> None:
        with self._state_lock:
            plan = self._plan_flush(closing=closing)
        if plan is None:
            return
        with self._health.offline_on_error("flush", even_if_unforeseen=True):
            try:
                self._beside.carry_out(plan, self._segments.base_offsets)
            except PutOffError as error:
                self._new_names = True
                self._bytes_since_checkpoint = max(self._bytes_since_checkpoint, CHECKPOINT_BYTES)
                raise self._health.refused("flush", error.reason) from error
        self._offsets.move_recovery_point(plan.end_offset)

    def _plan_flush(self, *, closing: bool) -> FlushPlan | None:
        sealed = self._segments.sealed_since(self.recovery_point)
        if self.log_end_offset <= self.recovery_point and not sealed and not closing:
            return None
        with_derived = closing or self._bytes_since_checkpoint >= CHECKPOINT_BYTES
        end_offset, active, epochs = self.log_end_offset, self._segments.active, self.leader_epochs.entries
        indexes = active.encode_indexes(closing=closing) if with_derived else None
        producers = self._producers.entries() if with_derived else None
        plan = FlushPlan(end_offset, sealed, active, indexes, producers, epochs, self._new_names, closing)
        self._new_names = False
        if with_derived:
            self._bytes_since_checkpoint = 0
        return plan
