"""The log of one partition. `Log` combines these parts, and has the operations that change several of them:

| part | module |
|---|---|
| `OffsetTracker`: log start offset, log end offset, high watermark, recovery point | `log_offsets.py` |
| `SegmentList`: the segments in order, and their files | `segment_list.py` |
| `LogReader`: reads by offset and by time | `log_reader.py` |
| `LogAppender`: appends and rolls | `log_appender.py` |
| `LogFlusher`: flushes, and the derived files beside the segments | `log_flusher.py` |
| `ProducerStates`: the last batches of idempotent producers | `producer_state.py` |
| `LeaderEpochs`: the history of leader epochs | `leader_epochs.py` |
| `LogHealth`: whether the log is offline or closed | `filesystem.py` |

`Log` itself deletes old records, replaces compacted segments, truncates, and closes.

Invariants. `log_offsets.py` defines the order of the offsets. The segments are contiguous, except for gaps from
compaction. A truncation lowers and stores the recovery point and the high watermark before it changes files. The log
start offset is stored before the files of deleted records are renamed.

Threads. One thread, the owner, appends and reads. Other threads may call the methods that may block on the disk: `roll`
and `write_append` while no append runs, and `flush`, `rename_deleted_files`, `replace_segments`, `truncate_to` and
`close` at any time. The state lock guards the data that these methods share with the owner; no thread holds the state
lock during disk I/O. `LogFlusher.file_lock` prevents two of these methods from changing the same files. Searches
(`time_search`, `retention_search`, `cleaning_search`) use a snapshot and need neither lock.

Errors. If the disk fails, the log goes offline: the current call and all later calls raise StorageError. The next start
recovers the undamaged batches. A shortage of disk space, file descriptors or memory does not put the log offline. Only
the current call fails, the log removes the bytes that this call wrote, and reads continue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from barnabas.clock import Clock
from barnabas.errors import ApiError, BarnabasError, ErrorCode, StorageError
from barnabas.model import TopicPartition
from barnabas.records.header import Buffer
from barnabas.storage.checkpoints import StoredOffsets
from barnabas.storage.cleaner.planning import CleaningSearch, first_dirty_offset
from barnabas.storage.cleaner.swap import CleanedSegment, begin_swap, end_swap, remove_cleaned
from barnabas.storage.filesystem import DataFile, FileSystem, LogHealth
from barnabas.storage.leader_epochs import LeaderEpochs
from barnabas.storage.log_appender import AppendGroup, AppendInfo, LogAppender, Outcome
from barnabas.storage.log_config import LogConfig
from barnabas.storage.log_flusher import DerivedFiles, LogFlusher
from barnabas.storage.log_offsets import LogOffsets, OffsetTracker
from barnabas.storage.log_reader import Batches, LogReader, ReadResult
from barnabas.storage.producer_state import ProducerEntry
from barnabas.storage.recovery import TRUST_ALL, LoadedLog, load_log, load_producers
from barnabas.storage.retention import UNLIMITED, RetentionSearch
from barnabas.storage.segment import ActiveSegment, SealedSegment, SegmentReplacedError, rename_deleted_segments
from barnabas.storage.segment_list import OpenSegments, SegmentList
from barnabas.storage.time_search import TimeSearch


def _ignore() -> None:
    """Do nothing. This is the default callback."""


class Log:
    """The log of one partition. `Log.open` and `Log.offline` create instances.

    :param on_truncated: called before and after a truncation, so that `LogManager` stores the checkpoints.
    :param on_rolled: called after a segment was sealed. The file of the segment stays open until a flush.
    """

    __slots__ = (
        "_appender",
        "_clock",
        "_filesystem",
        "_first_dirty_offset",
        "_flusher",
        "_folder",
        "_health",
        "_is_newer_than_tree",
        "_lost_from",
        "_offsets",
        "_on_truncated",
        "_producers",
        "_reader",
        "_removed",
        "_segments",
        "_state_lock",
        "config",
        "consumed_bytes",
        "leader_epochs",
        "partition",
        "read",
        "replicated_bytes",
        "replicated_out_bytes",
        "replicated_records",
    )

    def __init__(
        self,
        folder: Path,
        partition: TopicPartition,
        config: LogConfig,
        clock: Clock,
        filesystem: FileSystem,
        loaded: LoadedLog,
        offsets: OffsetTracker,
        health: LogHealth,
        open_segments: OpenSegments | None = None,
        first_dirty_offset: int = 0,
        *,
        has_new_names: bool = True,
        on_truncated: Callable[[], None] | None = None,
        on_rolled: Callable[[], None] | None = None,
    ) -> None:
        self._folder = str(folder)
        self.partition = partition
        self.config = config
        self._clock = clock
        self._filesystem = filesystem
        self._health = health
        self._offsets = offsets
        self._on_truncated = on_truncated or _ignore
        self._removed: list[SealedSegment] = []
        self._first_dirty_offset = first_dirty_offset
        self._state_lock = offsets.state_lock
        self.leader_epochs = loaded.epochs
        self._producers = loaded.producers
        self._segments = SegmentList(filesystem, folder, loaded.sealed, loaded.active, open_segments)
        self._reader = LogReader(partition, self._segments, offsets, self.leader_epochs, health)
        self.read = self._reader.read
        """The method `LogReader.read`. It is an attribute for speed, because each fetch calls it."""
        now = offsets.current
        self._flusher = LogFlusher(
            filesystem,
            folder,
            self._segments,
            offsets,
            self.leader_epochs,
            self._producers,
            health,
            DerivedFiles(filesystem, folder, clock, loaded.snapshots, loaded.stored_epochs),
            is_as_closed=not loaded.is_changed and now.recovery_point == now.log_end_offset,
            has_new_names=has_new_names,
        )
        self._appender = LogAppender(
            partition,
            config,
            clock,
            self._segments,
            offsets,
            self.leader_epochs,
            self._producers,
            self._flusher,
            health,
            on_rolled or _ignore,
        )
        self._lost_from = loaded.lost_from
        self._is_newer_than_tree = False
        self.replicated_bytes = 0
        """The part of `appended_bytes` that this broker, as a follower, fetched from the leader."""
        self.replicated_records = 0
        """The part of `appended_records` that this broker, as a follower, fetched from the leader."""
        self.replicated_out_bytes = 0
        """The number of bytes that followers fetched from this log."""
        self.consumed_bytes = 0
        """The number of bytes that consumers fetched from this log."""

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
        first_dirty_offset: int = 0,
        lost_memory: bool = False,
        on_truncated: Callable[[], None] | None = None,
        on_rolled: Callable[[], None] | None = None,
    ) -> Log:
        """Open the log in a partition directory, or create a log there. Recover the log if needed.

        :param clean: True if the log was closed cleanly, so that all its records are durable.
        :param recovery_point: the stored recovery point. `StoredOffsets` describes this offset and the other stored
            offsets.
        :param first_dirty_offset: the offset up to which the cleaner has compacted the log.
        :param lost_memory: True if the machine has crashed since the last write to the log.
        :raises StorageError: the file system returned an error.
        """
        stored = StoredOffsets(recovery_point, log_start_offset, high_watermark)
        try:
            loaded = load_log(filesystem, directory, config, stored, clock, clean=clean, lost_memory=lost_memory)
        except OSError as error:
            raise StorageError(f"{directory}: cannot open the log: {error}") from error
        start, end = loaded.log_start_offset, loaded.active.next_offset
        durable = TRUST_ALL if clean else recovery_point
        return cls(
            directory,
            topic_partition,
            config,
            clock,
            filesystem,
            loaded,
            OffsetTracker(start, end, durable, high_watermark if end > start else None),
            LogHealth(directory, topic_partition),
            open_segments,
            # If the end of the log is lost, new records get the lost offsets and must be dirty. Otherwise, new
            # tombstones could be removed before the records that they delete.
            min(first_dirty_offset, end),
            has_new_names=not clean,
            on_truncated=on_truncated,
            on_rolled=on_rolled,
        )

    @classmethod
    def offline(
        cls,
        folder: Path,
        partition: TopicPartition,
        config: LogConfig,
        clock: Clock,
        filesystem: FileSystem,
        stored: StoredOffsets,
        reason: str,
        first_dirty_offset: int = 0,
    ) -> Log:
        """Return an offline placeholder for a log that cannot be loaded.

        Each use of it raises StorageError, and no file is changed.

        :param stored: the offsets of the log in the checkpoints. Later checkpoints keep these offsets.
        :param reason: the text of the StorageError.
        """
        active = ActiveSegment(filesystem, folder, max(stored), DataFile(-1, folder))
        loaded = LoadedLog([], active, LeaderEpochs(), epochs_changed=False, log_start_offset=stored.log_start_offset)
        offsets = OffsetTracker(stored.log_start_offset, active.next_offset, stored.recovery_point)
        offsets.move_high_watermark(stored.high_watermark)
        health = LogHealth(folder, partition, reason)
        return cls(
            folder, partition, config, clock, filesystem, loaded, offsets, health, first_dirty_offset=first_dirty_offset
        )

    def configure(self, config: LogConfig) -> None:
        """Apply new settings. Later operations use them."""
        self.config = config
        self._appender.configure(config)

    # --- state ---

    @property
    def folder(self) -> Path:
        """The partition directory."""
        return Path(self._folder)

    @property
    def is_offline(self) -> bool:
        """True if the log is offline. The next start opens the log again and recovers it."""
        return self._health.is_offline

    def put_offline(self, reason: str) -> None:
        """Put this log offline because its data directory is offline. Any thread may call this method."""
        self._health.put_offline(reason)

    @property
    def size_bytes(self) -> int:
        """The total size of the batches, in bytes."""
        return self._segments.size_bytes

    @property
    def appended_bytes(self) -> int:
        """See `LogAppender.appended_bytes`."""
        return self._appender.appended_bytes

    @property
    def appended_records(self) -> int:
        """See `LogAppender.appended_records`."""
        return self._appender.appended_records

    @property
    def segment_count(self) -> int:
        return len(self._segments.sealed) + 1

    def note_replicated(self, size: int, count: int) -> None:
        """Count appended bytes and records as replicated from the leader."""
        self.replicated_bytes += size
        self.replicated_records += count

    def note_replicated_out(self, size: int) -> None:
        """Count bytes that a follower fetched."""
        self.replicated_out_bytes += size

    def note_consumed(self, size: int) -> None:
        """Count bytes that a consumer fetched."""
        self.consumed_bytes += size

    def take_over_counts(self, other: Log) -> None:
        """Copy the counters of another log of the same partition, which this log replaces."""
        self._appender.take_over_counts(other.appended_bytes, other.appended_records)
        self.replicated_bytes, self.replicated_records = other.replicated_bytes, other.replicated_records
        self.replicated_out_bytes, self.consumed_bytes = other.replicated_out_bytes, other.consumed_bytes

    @property
    def active_base_offset(self) -> int:
        """The base offset of the active segment."""
        return self._segments.active.base_offset

    @property
    def truncation_count(self) -> int:
        """The number of truncations that have started since the log was opened."""
        return self._reader.truncation_count

    @property
    def producers(self) -> dict[int, ProducerEntry]:
        """A copy of the states of idempotent producers, by producer id."""
        return self._producers.entries()

    @property
    def highest_producer_id(self) -> int:
        """The highest producer id in the log that may have been allocated by a broker; -1 if there is none."""
        return self._producers.highest_id

    def knows_producer(self, producer_id: int) -> bool:
        """Return whether the log has a state of this idempotent producer."""
        return producer_id in self._producers

    # --- offsets ---

    @property
    def offsets(self) -> LogOffsets:
        """All offsets of the log at one moment."""
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
        """See `OffsetTracker.move_high_watermark`.

        Only the leader or follower role of the replica may call this method.
        """
        self._offsets.move_high_watermark(offset)

    def release_high_watermark(self, *, follows_end: bool) -> None:
        """See `OffsetTracker.release_high_watermark`."""
        self._offsets.release_high_watermark(follows_end=follows_end)

    def hold_high_watermark(self) -> None:
        """See `OffsetTracker.hold_high_watermark`."""
        self._offsets.hold_high_watermark()

    @property
    def high_watermark_to_store(self) -> int:
        """See `OffsetTracker.high_watermark_to_store`."""
        return self._offsets.high_watermark_to_store

    @property
    def log_start_offset_to_store(self) -> int:
        """The log start offset to store in the checkpoint.

        If the log continues after lost records, it is the first lost offset, because the lost records were not deleted
        on purpose.
        """
        start = self._offsets.current.log_start_offset
        return start if self._lost_from is None else min(self._lost_from, start)

    # --- lost records ---

    @property
    def lost_from(self) -> int | None:
        """The first lost offset if the log has lost records and continues after them; otherwise None.

        Other replicas may have these records.
        """
        return self._lost_from

    def note_loss(self, offset: int) -> None:
        """Record that the log has lost the records from `offset` on."""
        self._lost_from = offset

    def accept_loss(self) -> None:
        """Stop the search for lost records, because no other replica has them or this broker fetches them again."""
        self._lost_from = None

    @property
    def is_newer_than_tree(self) -> bool:
        """True if the metadata store was older at start, and this log has not been compared with the leader's log
        since.

        The log may contain acknowledged records that the leader lacks.
        """
        return self._is_newer_than_tree

    def mark_newer_than_tree(self) -> None:
        """Record that the metadata store is older than the log."""
        self._is_newer_than_tree = True

    def mark_compared(self) -> None:
        """Record that the log was compared: this broker is the leader, or no record differs from the leader's log."""
        self._is_newer_than_tree = False

    # --- reading ---

    async def read_remote(self, offset: int, max_bytes: int, max_offset: int, min_one_batch: bool = True) -> ReadResult:
        """See `LogReader.read_remote`."""
        return await self._reader.read_remote(offset, max_bytes, max_offset, min_one_batch)

    def bytes_of(self, batches: Batches) -> bytes:
        """See `LogReader.bytes_of`. Any thread may call this method."""
        return self._reader.bytes_of(batches)

    def time_search(self) -> TimeSearch:
        """See `LogReader.time_search`."""
        return self._reader.time_search()

    # --- appending ---

    def append(self, records: Buffer, leader_epoch: int) -> AppendInfo:
        """Append the batch of one produce request.

        If `records` is writable, this method writes the base offset and the leader epoch into `records`. The batch is
        in the page cache when this method returns; `flush` makes it durable.

        :raises CorruptBatchError: the batch is damaged; nothing was appended.
        :raises ApiError: MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE, INVALID_RECORD, INVALID_PRODUCER_EPOCH,
            OUT_OF_ORDER_SEQUENCE_NUMBER, FENCED_LEADER_EPOCH; nothing was appended.
        :raises StorageError: the write failed; the batch must not be acknowledged.
        """
        (outcome,) = self._appender.append_all([records], leader_epoch)
        if isinstance(outcome, BarnabasError):
            raise outcome
        return outcome

    def append_all(self, requests: Sequence[Buffer], leader_epoch: int) -> list[Outcome]:
        """See `LogAppender.append_all`."""
        return self._appender.append_all(requests, leader_epoch)

    def append_until_roll(self, requests: Sequence[Buffer], leader_epoch: int) -> list[Outcome]:
        """See `LogAppender.append_until_roll`."""
        return self._appender.append_until_roll(requests, leader_epoch)

    def append_own_batch(self, batch: bytearray, leader_epoch: int) -> bool:
        """See `LogAppender.append_own_batch`."""
        return self._appender.append_own_batch(batch, leader_epoch)

    def append_as_follower(self, records: Buffer, leader_epoch: int) -> AppendInfo:
        """See `LogAppender.append_as_follower`."""
        return self._appender.append_as_follower(records, leader_epoch)

    def begin_append(self, take: Callable[[AppendGroup], bool], leader_epoch: int) -> AppendGroup | None:
        """See `LogAppender.begin_append`."""
        return self._appender.begin_append(take, leader_epoch)

    def write_append(self, group: AppendGroup) -> None:
        """See `LogAppender.write_append`. Any thread may call this method."""
        self._appender.write_append(group)

    def finish_append(self, group: AppendGroup) -> Outcome:
        """See `LogAppender.finish_append`."""
        return self._appender.finish_append(group)

    def roll(self, base_offset: int | None = None) -> None:
        """See `LogAppender.roll`. Any thread may call this method while no append runs."""
        self._appender.roll(base_offset)

    @property
    def is_roll_due(self) -> bool:
        """True if the active segment is older than `segment.ms` allows."""
        return self._appender.is_roll_due

    # --- durability ---

    def flush(self) -> None:
        """See `LogFlusher.flush`. Any thread may call this method."""
        self._flusher.flush()

    @property
    def is_flush_due(self) -> bool:
        """True if a flush is due: a segment was sealed since the last flush, or many bytes were appended."""
        return self._flusher.is_due

    def close(self) -> None:
        """Flush the log and close its files. A second call does nothing.

        :raises StorageError: a write has failed, in this call or earlier. The log is closed, but not cleanly.
        """
        if self._health.closed:
            return
        try:
            with self._flusher.file_lock:
                self._flusher.flush_at_end()
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Close the files without a flush, as in a crash. `FileRegion`s from earlier reads stay readable."""
        with self._flusher.file_lock, self._flusher.files.lock:
            self._health.closed = True
            self._segments.close()

    # --- deletion of old records ---

    def delete_records_before(self, offset: int) -> int:
        """Delete the records before `offset`; return the new log start offset.

        After this call, the records can no longer be read. Sealed segments that contain no other records are removed
        from the segment list. `rename_deleted_files` renames their files once the new log start offset is stored. To
        delete all records, call `roll` first.

        :raises ApiError: OFFSET_OUT_OF_RANGE if `offset` is negative or above the high watermark.
        :raises StorageError: the log is offline.
        """
        self._health.check()
        with self._state_lock:
            offsets = self._offsets.current
            high_watermark = offsets.high_watermark
            if not 0 <= offset <= high_watermark:
                message = f"{self.partition}: cannot delete before {offset}; the high watermark is {high_watermark}"
                raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, message)
            if offset <= offsets.log_start_offset:
                return offsets.log_start_offset
            self._offsets.move_log_start(offset)
            self._removed += self._segments.remove_before(offset)
        self.leader_epochs.truncate_before(self._segments.first.base_offset)
        return offset

    def retention_search(self) -> RetentionSearch | None:
        """Return a search for the segments that retention must delete. Any thread may run the search.

        :returns: None if it is certain that retention keeps all segments.
        :raises StorageError: the log is offline.
        """
        self._health.check()
        now_ms, config = self._clock.expiry_ms(), self.config
        if now_ms is None:
            # While the clock is not trusted, only retention by time stops. Retention by size continues, so the disk
            # does not fill up.
            now_ms, config = self._clock.time_ms(), replace(config, retention_ms=UNLIMITED)
        high_watermark = self._offsets.current.high_watermark
        return RetentionSearch.of(self._segments, config, now_ms, high_watermark, self._appender.active_since_ms)

    def rename_deleted_files(self) -> list[Path]:
        """Rename the files of deleted segments; return the new paths. The caller removes these files later.

        Any thread may call this method, but only after the log start offset was stored durably. Otherwise, deleted
        records could become visible again after a crash.

        :raises StorageError: the file system returned an error.
        """
        with self._flusher.file_lock:
            removed = list(self._removed)
            if self._health.closed or not removed:
                return []
            with self._health.offline_on_error("delete", even_if_short=False):
                bases = [segment.base_offset for segment in removed]
                renamed = rename_deleted_segments(self._filesystem, self.folder, bases)
                with self._state_lock:
                    del self._removed[: len(removed)]
                self._flusher.files.remove_snapshots_before(self._segments.first.base_offset)
                return renamed

    # --- compaction ---

    @property
    def first_dirty_offset(self) -> int:
        """The offset up to which the log is compacted.

        It never exceeds the log end offset, and `LogManager` stores it.
        """
        return self._first_dirty_offset

    def mark_dirty_from(self, offset: int) -> None:
        """Set the first dirty offset to `offset`, or to the log end offset if that is lower."""
        self._first_dirty_offset = min(offset, self._offsets.current.log_end_offset)

    def mark_compacted(self, end_offset: int, truncation_count: int) -> None:
        """Set the first dirty offset, unless `truncation_count` has changed because the log was truncated."""
        with self._state_lock:
            if truncation_count == self._reader.truncation_count:
                self._first_dirty_offset = end_offset

    def cleaning_search(self) -> CleaningSearch | None:
        """Return a search for the segments that the cleaner can compact. Any thread may run the search.

        :returns: None if it is certain that there are no such segments, or while data does not expire
            (`Clock.expiry_ms`).
        :raises StorageError: the log is offline.
        """
        self._health.check()
        now_ms = self._clock.expiry_ms()
        if now_ms is None:
            return None
        offsets = self._offsets.current
        first_dirty = first_dirty_offset(self._first_dirty_offset, offsets.log_start_offset, self.active_base_offset)
        limit = min(offsets.last_stable_offset, offsets.recovery_point)
        return CleaningSearch.of(self._segments, first_dirty, limit, self.config, now_ms)

    def segments_before(self, offset: int) -> list[SealedSegment]:
        """Return the sealed segments that end at or before an offset."""
        return [segment for segment in self._segments.sealed if segment.next_offset <= offset]

    def replace_segments(self, old: Sequence[SealedSegment], size: int) -> list[Path]:
        """Replace segments with the segment that the cleaner made from them.

        Any thread may call this method. Reads that have already started continue in the old files.

        :param old: adjacent segments returned by `segments_before`.
        :param size: the size of the new segment, in bytes.
        :returns: the new paths of the old files, which the caller removes later.
        :raises SegmentReplacedError: an old segment is no longer in the log. Nothing was changed.
        :raises StorageError: the file system returned an error.
        """
        base_offset, bases = old[0].base_offset, [segment.base_offset for segment in old]
        with self._flusher.file_lock:
            self._health.check()
            with self._health.offline_on_error("compact", even_if_short=False):
                new = CleanedSegment(
                    self._filesystem, self.folder, base_offset, size=size, next_offset=old[-1].next_offset
                )
            with self._state_lock:
                is_replaced = self._segments.replace_some(old, new)
            if not is_replaced:
                raise SegmentReplacedError(f"{self.partition}: segments from offset {base_offset} on have changed")
            with self._health.offline_on_error("compact"):
                begin_swap(self._filesystem, self.folder, base_offset)
                renamed = end_swap(self._filesystem, self.folder, base_offset, bases)
                new.end_hold()
                self._flusher.files.remove_snapshots_at(bases[1:])
                return renamed

    def remove_cleaned(self) -> None:
        """Remove the files of a cleaned segment that will not be used.

        :raises StorageError: the file system returned an error, or the log is closed.
        """
        with self._flusher.file_lock:
            self._health.check()
            with self._health.offline_on_error("compact", even_if_short=False):
                remove_cleaned(self._filesystem, self.folder)

    # --- truncation ---

    def truncate_to(self, offset: int) -> None:
        """Remove all records from `offset` on. A batch that contains `offset` is removed as a whole.

        If a gap precedes `offset`, the log end offset becomes the start of the gap. If `offset` is below the log start
        offset, all records are removed, and the log then starts at `offset`. If `offset` is in the first batch of the
        log, or in a gap at its start, all records are removed, and the log start offset stays.

        :raises StorageError: the file system returned an error.
        """
        self._health.check()
        if offset >= self._offsets.current.log_end_offset:
            return
        with self._truncating(offset):
            start = self._offsets.current.log_start_offset
            if offset < start or self._segments.end_before(offset) < start:
                self._start_over(min(offset, start), min(offset, start))
            else:
                self._end_at(*self._segments.cut(offset, self.config.index_interval_bytes))

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Remove all records. `offset` becomes the log start offset and the log end offset.

        :raises StorageError: the file system returned an error.
        """
        self._health.check()
        with self._truncating(min(offset, self._offsets.current.log_start_offset)):
            self._start_over(offset, offset)

    def lower_log_end_to(self, offset: int) -> None:
        """Lower the log end offset of an empty log to `offset`, so that a batch with this base offset can be appended.

        The batch begins before the log start offset and ends after it. Until the batch is appended, the log end offset
        is below the log start offset. The log start offset does not change, because it may already be stored and other
        brokers may use it.

        :raises StorageError: the file system returned an error.
        """
        self._health.check()
        with self._truncating(offset):
            self._start_over(offset, self._offsets.current.log_start_offset)

    @contextmanager
    def _truncating(self, offset: int) -> Iterator[None]:
        """A context that lowers the recovery point and the high watermark, and stores both, before files change."""
        self._flusher.note_change()
        with self._flusher.file_lock, self._reader.shut_out_readers(), self._health.offline_on_error("truncate"):
            self._offsets.begin_truncation(offset)
            with self._state_lock:
                self._first_dirty_offset = min(self._first_dirty_offset, offset)
            # The lowered offsets are stored first. Otherwise, recovery after a crash would report the removed records
            # as lost.
            self._on_truncated()
            yield

    def _start_over(self, offset: int, log_start_offset: int) -> None:
        """Replace all segments with one empty segment.

        :param offset: the base offset of the empty segment.
        :param log_start_offset: the new log start offset. During the truncation, the log start offset is never lower
            than this offset, because a checkpoint may be written at any time.
        """
        self._segments.delete_files([*self._removed, *self._segments.all])
        self._flusher.files.remove_all_snapshots()
        self._removed = []
        with self._state_lock:
            self._offsets.end_truncation(log_start_offset, offset)
        if self.leader_epochs.truncate_from(0):
            self._flusher.files.write_epochs(self.leader_epochs)
        active = ActiveSegment.create(self._filesystem, self.folder, offset, self.config.index_interval_bytes)
        self._end_at([], active)

    def _end_at(self, sealed: list[SealedSegment], active: ActiveSegment) -> None:
        """Install the segments that remain after a truncation.

        Truncate epochs, producer states and snapshots to the new log end offset.
        """
        end_offset = active.next_offset
        with self._state_lock:
            self._segments.replace(sealed, active)
            self._offsets.end_truncation(self._offsets.current.log_start_offset, end_offset)
            self._flusher.note_new_segment()
        if self.leader_epochs.truncate_from(end_offset):
            self._flusher.files.write_epochs(self.leader_epochs)
        self._producers.replace_with(
            load_producers(self._filesystem, self.folder, self._segments.all, end_offset, self._clock)
        )
        self._flusher.files.find_snapshots()
        self._on_truncated()
