"""One partition's log: composes its parts, and changes several of them at once.

| part | module |
|---|---|
| `OffsetTracker`: where the log begins and ends, what is readable, what is durable | `log_offsets.py` |
| `SegmentList`: the segments in order, and their files | `segment_list.py` |
| `LogReader`: reads by offset and by time | `log_reader.py` |
| `LogAppender`: appends and rolls | `log_appender.py` |
| `LogFlusher`: flushes, and the files beside the segments | `log_flusher.py` |
| `ProducerStates`: the last batches of idempotent producers | `producer_state.py` |
| `LeaderEpochs`: the epoch history | `leader_epochs.py` |
| `LogHealth`: whether the log can be used | `filesystem.py` |

`Log` itself deletes old records, puts compacted segments in place, truncates, and closes.

Invariants. `log_offsets.py` has the order of the offsets. The segments are contiguous, except for gaps that compaction
left. The recovery point and the high watermark are lowered and stored before a truncation changes files. Files of
deleted records are renamed only after the log start was stored.

Threads. One thread, the owner's, appends and reads. These calls may wait for the disk and come from other threads:
`roll` and `write_append`, while no append runs; `flush`, `rename_deleted_files`, `replace_segments`, `truncate_to`,
`close`. The state lock guards what they share with the owner; it is never held while the disk works.
`LogFlusher.file_lock` keeps two of them from working on the same files. Searches (`time_search`, `retention_search`,
`cleaning_search`) work on a snapshot and need neither lock.

Errors. If the disk fails, the log goes offline: this call and all later ones raise StorageError. The next start
recovers what is whole. A shortage of room, file descriptors or memory is not a failure of the disk: only the call
fails, what it wrote is taken back, and reads go on.
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
    """Does nothing, for a log without listeners."""


class Log:
    """A log. Made with `Log.open` or `Log.offline`.

    :param on_truncated: called before and after a truncation; the manager stores the recovery point and the start of
        the log then.
    :param on_rolled: called after a segment was sealed, which keeps its file open until it is flushed.
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
        """See `LogReader.read`: the only call of each fetch, so it is bound once."""
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
        """The part of `appended_bytes` that was fetched from leaders."""
        self.replicated_records = 0
        """The part of `appended_records` that was fetched from leaders."""
        self.replicated_out_bytes = 0
        """Bytes that followers fetched."""
        self.consumed_bytes = 0
        """Bytes that consumers fetched."""

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
        """Open the log in a folder, or begin one there; recover it if needed.

        :param clean: the log was closed cleanly, so all of it is durable; the offsets: see `StoredOffsets`.
        :param first_dirty_offset: the log is compacted up to there.
        :param lost_memory: the machine has crashed since the log was written to.
        :raises StorageError: the disk refuses.
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
            # If the end is lost, tombstones that come in its place must not go before what they delete.
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
        """Return what stands for a log that could not be loaded: every use raises StorageError, and no file is touched.

        :param stored: its offsets by the checkpoints, which the next checkpoints hold too.
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
        """Use these settings from now on."""
        self.config = config
        self._appender.configure(config)

    # --- state ---

    @property
    def folder(self) -> Path:
        """Where its files are."""
        return Path(self._folder)

    @property
    def is_offline(self) -> bool:
        """Whether the disk failed; the log must be opened again, which recovers it."""
        return self._health.is_offline

    def put_offline(self, reason: str) -> None:
        """Take the log offline with all others of its data folder. May be called from any thread."""
        self._health.put_offline(reason)

    @property
    def size_bytes(self) -> int:
        """Bytes of batches."""
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
        """Note that bytes and records that were just appended came from a leader."""
        self.replicated_bytes += size
        self.replicated_records += count

    def note_replicated_out(self, size: int) -> None:
        """Count bytes that a follower fetches."""
        self.replicated_out_bytes += size

    def note_consumed(self, size: int) -> None:
        """Note that a consumer fetches so many bytes."""
        self.consumed_bytes += size

    def take_over_counts(self, other: Log) -> None:
        """Go on with the counts of the log that this one is a copy of."""
        self._appender.take_over_counts(other.appended_bytes, other.appended_records)
        self.replicated_bytes, self.replicated_records = other.replicated_bytes, other.replicated_records
        self.replicated_out_bytes, self.consumed_bytes = other.replicated_out_bytes, other.consumed_bytes

    @property
    def active_base_offset(self) -> int:
        """Where the active segment begins."""
        return self._segments.active.base_offset

    @property
    def truncation_count(self) -> int:
        """Truncations that have begun."""
        return self._reader.truncation_count

    @property
    def producers(self) -> dict[int, ProducerEntry]:
        """A copy of the remembered idempotent producers, by producer id."""
        return self._producers.entries()

    @property
    def highest_producer_id(self) -> int:
        """The highest producer id in the log that a broker may have allocated, or -1."""
        return self._producers.highest_id

    def knows_producer(self, producer_id: int) -> bool:
        """Return whether a producer with this id wrote to the log and is remembered."""
        return producer_id in self._producers

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
        """See `OffsetTracker.move_high_watermark`. The role of the replica calls it, and nothing else does."""
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
        """The log start offset; if the log begins behind lost records, the first lost offset: nobody deleted them."""
        start = self._offsets.current.log_start_offset
        return start if self._lost_from is None else min(self._lost_from, start)

    # --- doubts about its records ---

    @property
    def lost_from(self) -> int | None:
        """The first lost offset, if records were lost and the log goes on behind them. Other replicas may have them."""
        return self._lost_from

    def note_loss(self, offset: int) -> None:
        """Note that records from an offset on are lost."""
        self._lost_from = offset

    def accept_loss(self) -> None:
        """End the search for lost records: no other replica has them, or they are fetched again."""
        self._lost_from = None

    @property
    def is_newer_than_tree(self) -> bool:
        """Whether the metadata tree was older than the log directory when the broker started, and no leader's log was
        compared with this one since. This log may have acknowledged records that the leader lacks."""
        return self._is_newer_than_tree

    def mark_newer_than_tree(self) -> None:
        """Note that the metadata tree is older than the log."""
        self._is_newer_than_tree = True

    def mark_compared(self) -> None:
        """Note that this broker leads, or that its leader's log does not differ from this one."""
        self._is_newer_than_tree = False

    # --- reading ---

    async def read_remote(self, offset: int, max_bytes: int, max_offset: int, min_one_batch: bool = True) -> ReadResult:
        """See `LogReader.read_remote`."""
        return await self._reader.read_remote(offset, max_bytes, max_offset, min_one_batch)

    def bytes_of(self, batches: Batches) -> bytes:
        """See `LogReader.bytes_of`. May be called from any thread."""
        return self._reader.bytes_of(batches)

    def time_search(self) -> TimeSearch:
        """See `LogReader.time_search`."""
        return self._reader.time_search()

    # --- appending ---

    def append(self, records: Buffer, leader_epoch: int) -> AppendInfo:
        """Append the batch of one produce request.

        Base offset and leader epoch are stamped into `records` in place if it is writable. The batch is in the page
        cache when this returns; `flush` makes it durable.

        :raises CorruptBatchError: the batch is damaged; nothing was appended.
        :raises ApiError: MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE, INVALID_RECORD, INVALID_PRODUCER_EPOCH,
            OUT_OF_ORDER_SEQUENCE_NUMBER, FENCED_LEADER_EPOCH; nothing was appended.
        :raises StorageError: the disk refused; nothing may be acknowledged.
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
        """See `LogAppender.write_append`. May be called from any thread."""
        self._appender.write_append(group)

    def finish_append(self, group: AppendGroup) -> Outcome:
        """See `LogAppender.finish_append`."""
        return self._appender.finish_append(group)

    def roll(self, base_offset: int | None = None) -> None:
        """See `LogAppender.roll`. May be called from another thread, while no append runs."""
        self._appender.roll(base_offset)

    @property
    def is_roll_due(self) -> bool:
        """Whether the active segment has been written to for as long as the settings allow."""
        return self._appender.is_roll_due

    # --- durability ---

    def flush(self) -> None:
        """See `LogFlusher.flush`. May be called from any thread."""
        self._flusher.flush()

    @property
    def is_flush_due(self) -> bool:
        """Whether a flush is due: a segment was sealed since the last one, or much was appended."""
        return self._flusher.is_due

    def close(self) -> None:
        """Make everything durable and let go of the files. Does nothing the second time.

        :raises StorageError: the disk refused, now or before; the log is closed, but not cleanly.
        """
        if self._health.closed:
            return
        try:
            with self._flusher.file_lock:
                self._flusher.flush_at_end()
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Let go of the files without flushing, as a crash would. Regions that were handed out stay readable."""
        with self._flusher.file_lock, self._flusher.files.lock:
            self._health.closed = True
            self._segments.close()

    # --- deletion of old records ---

    def delete_records_before(self, offset: int) -> int:
        """Delete the records before `offset`; return the new log start offset.

        Nobody can read the records when this returns. The log lets go of sealed segments that hold nothing else;
        `rename_deleted_files` removes their files, after the new start was stored. Where all records go, `roll` first.

        :raises ApiError: OFFSET_OUT_OF_RANGE: negative, or above the high watermark.
        :raises StorageError: the log is offline.
        """
        self._health.check()
        with self._state_lock:
            offsets = self._offsets.current
            high_watermark = offsets.high_watermark
            if not 0 <= offset <= high_watermark:
                message = f"{self.partition}: delete before offset {offset}, the high watermark is {high_watermark}"
                raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, message)
            if offset <= offsets.log_start_offset:
                return offsets.log_start_offset
            self._offsets.move_log_start(offset)
            self._removed += self._segments.remove_before(offset)
        self.leader_epochs.truncate_before(self._segments.first.base_offset)
        return offset

    def retention_search(self) -> RetentionSearch | None:
        """Return a search for the segments that the settings no longer keep; any thread can carry it out.

        :returns: None where it is clear that all are kept.
        :raises StorageError: the log is offline.
        """
        self._health.check()
        now_ms, config = self._clock.expiry_ms(), self.config
        if now_ms is None:
            # Segments still go by size: the disk is not to fill up meanwhile.
            now_ms, config = self._clock.time_ms(), replace(config, retention_ms=UNLIMITED)
        high_watermark = self._offsets.current.high_watermark
        return RetentionSearch.of(self._segments, config, now_ms, high_watermark, self._appender.active_since_ms)

    def rename_deleted_files(self) -> list[Path]:
        """Rename the files of deleted segments, and return their new names, to be removed later.

        May be called from any thread, after the log start was stored durably: a crash in between must not bring back a
        part of the deleted records.

        :raises StorageError: the disk refused.
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
        """The log is compacted up to here, unless it ends before; the manager stores it."""
        return self._first_dirty_offset

    def mark_dirty_from(self, offset: int) -> None:
        """Set the offset up to which the log counts as compacted; at most the log end offset."""
        self._first_dirty_offset = min(offset, self._offsets.current.log_end_offset)

    def mark_compacted(self, end_offset: int, truncation_count: int) -> None:
        """Count the log as compacted up to an offset, unless it was truncated since it had that `truncation_count`."""
        with self._state_lock:
            if truncation_count == self._reader.truncation_count:
                self._first_dirty_offset = end_offset

    def cleaning_search(self) -> CleaningSearch | None:
        """Return a search for the part of the log that can be compacted; any thread can carry it out.

        :returns: None where it is clear that there is none, and while no data expires (`Clock.expiry_ms`).
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
        """Put the segment that a cleaner wrote in place of the segments that it was made of.

        May be called from any thread. Reads that have begun go on in the old files.

        :param old: what `segments_before` returned, or a part of it.
        :param size: of the new segment, in bytes.
        :returns: where the old files are now, to be removed later.
        :raises SegmentReplacedError: not all of the old segments are in the log any more; nothing was changed.
        :raises StorageError: the disk refused.
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
                raise SegmentReplacedError(f"{self.partition}: segments from {base_offset} on are not what they were")
            with self._health.offline_on_error("compact"):
                begin_swap(self._filesystem, self.folder, base_offset)
                renamed = end_swap(self._filesystem, self.folder, base_offset, bases)
                new.end_hold()
                self._flusher.files.remove_snapshots_at(bases[1:])
                return renamed

    def remove_cleaned(self) -> None:
        """Remove what a cleaner wrote and is not to be used.

        :raises StorageError: the disk refused, or the log is closed.
        """
        with self._flusher.file_lock:
            self._health.check()
            with self._health.offline_on_error("compact", even_if_short=False):
                remove_cleaned(self._filesystem, self.folder)

    # --- truncation ---

    def truncate_to(self, offset: int) -> None:
        """Remove all records from `offset` on, and the batch that holds it.

        Where there is a gap before `offset`, the log ends where the gap begins. An offset below the log start empties
        the log, which then begins with `offset`. An offset in the batch or gap that the log begins in empties it too;
        the log start stays.

        :raises StorageError: the disk refused.
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
        """Remove all records; the log begins and ends with `offset` from now on.

        :raises StorageError: the disk refused.
        """
        self._health.check()
        with self._truncating(min(offset, self._offsets.current.log_start_offset)):
            self._start_over(offset, offset)

    def lower_log_end_to(self, offset: int) -> None:
        """Let an empty log take the batch that it begins in, whose base offset is `offset`.

        Until then the log ends before it begins. The log start stays: it may have been stored already, and other
        brokers may know it, so no crash may undo it.

        :raises StorageError: the disk refused.
        """
        self._health.check()
        with self._truncating(offset):
            self._start_over(offset, self._offsets.current.log_start_offset)

    @contextmanager
    def _truncating(self, offset: int) -> Iterator[None]:
        """Lower recovery point and high watermark to `offset`, and store both, before files are changed."""
        self._flusher.note_change()
        with self._flusher.file_lock, self._reader.shut_out_readers(), self._health.offline_on_error("truncate"):
            self._offsets.begin_truncation(offset)
            with self._state_lock:
                self._first_dirty_offset = min(self._first_dirty_offset, offset)
            self._on_truncated()  # a crash after the cut must not look as if the disk had lost flushed records
            yield

    def _start_over(self, offset: int, log_start_offset: int) -> None:
        """Replace all segments with an empty one.

        :param offset: its base offset.
        :param log_start_offset: the new log start offset. The log start is never lower meanwhile: checkpoints are
            written at any time, and during the truncation.
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
        """Let all parts end where the segments end that were cut."""
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
