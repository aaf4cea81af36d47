"""The flush of a log. It makes records durable, and stores the files that are derived from the batches.

Usually, a flush is one fsync of the active segment. After a roll, a flush also fsyncs the sealed segments, their
indexes and their snapshots. Every 16 MiB, it also stores the indexes of the active segment and the producer states.

Invariants. The recovery point is never ahead of the durable derived files. Otherwise, a start would have to read all
flushed batches. A flush records the state of the log in a plan, and executes the plan while appends continue. Then the
recovery point moves to the end offset of the plan. A clean shutdown stores the indexes and the snapshot of the active
segment without fsync, because the fsyncs would take most of the time. If a power failure damages these files, the next
start reads the active segment.

Threads. Any thread may flush. A thread must hold `LogFlusher.file_lock` while it flushes, renames, truncates or removes
files of the log. A roll or a flush holds `DerivedFiles.lock` while it replaces a derived file.

Errors. If a flush fails, the log goes offline. A failed fsync is never repeated: the kernel may have dropped the dirty
pages, and then reports success for the next fsync ("fsyncgate"). If disk space or file descriptors are short before the
fsync, only this call fails, and the next flush makes the records durable.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from barnabas.clock import Clock
from barnabas.storage.checkpoints import EpochStart, encode_leader_epochs
from barnabas.storage.file_names import LEADER_EPOCH_CHECKPOINT, SNAPSHOT_SUFFIX, offset_name
from barnabas.storage.filesystem import (
    OPEN_FILES,
    SHORTAGES,
    FilePath,
    FileSystem,
    LogHealth,
    is_shortage,
    remove_if_there,
    replace_file,
)
from barnabas.storage.leader_epochs import LeaderEpochs
from barnabas.storage.log_offsets import OffsetTracker
from barnabas.storage.producer_state import ProducerEntry, ProducerStates, encode_snapshot
from barnabas.storage.recovery import snapshot_offsets
from barnabas.storage.segment import ActiveSegment, SealedSegment
from barnabas.storage.segment_list import SegmentList

CHECKPOINT_BYTES = 16 * 1024 * 1024
"""The number of appended bytes after which a flush also stores indexes and producer states.

It limits the part of the active segment that a start must read.
"""


class FlushPostponedError(Exception):
    """A flush did not start because disk space or file descriptors were short. No fsync has failed."""

    def __init__(self, reason: OSError) -> None:
        super().__init__(str(reason))
        self.reason = reason


class FlushPlan(NamedTuple):
    """The state of a log at one moment, which a flush makes durable."""

    end_offset: int
    sealed: list[SealedSegment]
    active: ActiveSegment
    indexes: tuple[bytes, bytes] | None
    """The indexes of the active segment; None if this flush does not store them."""
    producers: dict[int, ProducerEntry] | None
    """The producer states at the end offset; None if this flush does not store them."""
    epochs: tuple[EpochStart, ...]
    """The leader epochs at the end offset."""
    new_names: bool
    """True if files were created or renamed since the last fsync of the directory."""
    closing: bool
    """True if the log is closed after this flush. The caller then makes the name of the partition directory durable."""


class DerivedFiles:
    """The files of a log that are not segments: the leader epoch checkpoint and the producer snapshots.

    :param snapshots: the offsets of the existing snapshots.
    :param epochs: the content of the leader epoch checkpoint, or None if it is missing or damaged.
    """

    __slots__ = ("_clock", "_epochs_unflushed", "_filesystem", "_folder", "_last_snapshot", "_stored_epochs", "lock")

    def __init__(
        self,
        filesystem: FileSystem,
        folder: FilePath,
        clock: Clock,
        snapshots: Sequence[int],
        epochs: tuple[EpochStart, ...] | None,
    ) -> None:
        self._filesystem = filesystem
        self._folder = str(folder)
        self._clock = clock
        self._epochs_unflushed = True
        self._stored_epochs = epochs
        self._last_snapshot = max(snapshots, default=None)
        self.lock = threading.Lock()

    def find_snapshots(self) -> None:
        """Find the latest snapshot in the partition directory."""
        self._last_snapshot = max(snapshot_offsets(self._filesystem, self._folder), default=None)

    def write_epochs(self, epochs: LeaderEpochs) -> None:
        """Store the leader epochs of a truncated log, without fsync.

        If the disk is full, remove the old checkpoint; the next flush then stores the epochs.

        :raises OSError: the file system returned an error.
        """
        with self.lock:
            try:
                self._write_epochs(epochs.entries)
            except OSError as error:
                if not is_shortage(error):
                    raise
                # The old checkpoint contains epochs of removed batches, and recovery would trust it. Without a
                # checkpoint, recovery reads the epochs from the batches.
                remove_if_there(self._filesystem, self._path(LEADER_EPOCH_CHECKPOINT))
                self._stored_epochs, self._epochs_unflushed = None, True

    def _write_epochs(self, entries: tuple[EpochStart, ...]) -> None:
        content = encode_leader_epochs(entries)
        replace_file(self._filesystem, self._path(LEADER_EPOCH_CHECKPOINT), content, durable=False)
        self._epochs_unflushed = True
        self._stored_epochs = entries

    def write_snapshot(
        self, offset: int, producers: dict[int, ProducerEntry], segment_starts: set[int], *, durable: bool
    ) -> None:
        """Store the producer states at `offset`. Delete the previous snapshot, unless a segment starts at its offset.

        The caller must make the new file name durable.
        """
        content = encode_snapshot(producers, self._clock)
        replace_file(self._filesystem, self._snapshot(offset), content, durable=durable, name_later=True)
        before, self._last_snapshot = self._last_snapshot, offset
        if before is not None and before != offset and before not in segment_starts:
            self._filesystem.unlink(self._snapshot(before))

    def remove_snapshots_before(self, offset: int) -> None:
        """Delete the snapshots before `offset`, except the latest snapshot.

        :raises OSError: some of the snapshots may remain.
        """
        with self.lock:
            for snapshot in snapshot_offsets(self._filesystem, self._folder):
                if snapshot < offset and snapshot != self._last_snapshot:
                    self._filesystem.unlink(self._snapshot(snapshot))

    def remove_snapshots_at(self, offsets: Collection[int]) -> None:
        """Delete the snapshots at the base offsets of removed segments, except the latest snapshot.

        :raises OSError: some of the snapshots may remain.
        """
        with self.lock:
            for snapshot in snapshot_offsets(self._filesystem, self._folder):
                if snapshot in offsets and snapshot != self._last_snapshot:
                    self._filesystem.unlink(self._snapshot(snapshot))

    def remove_all_snapshots(self) -> None:
        """Delete all snapshots.

        :raises OSError: some of the snapshots may remain.
        """
        with self.lock:
            for snapshot in snapshot_offsets(self._filesystem, self._folder):
                self._filesystem.unlink(self._snapshot(snapshot))
            self._last_snapshot = None

    def execute(self, plan: FlushPlan, segment_starts: set[int]) -> None:
        """Execute the plan of a flush. Callers must execute one plan at a time.

        :raises FlushPostponedError: disk space or file descriptors were short.
        :raises OSError: the file system returned an error. The state in the plan may not be durable.
        """
        for segment in plan.sealed:
            self._fsync_sealed(segment)
        with _put_off_if_short(OPEN_FILES):
            self._filesystem.fsync(plan.active.file)
        with _put_off_if_short():
            stored = self._store_derived(plan, segment_starts)
        if not plan.closing:
            for path in stored:
                self._fsync_if_there(path)
        if plan.new_names or (stored and not plan.closing):
            self._filesystem.fsync_folder(Path(self._folder))
        if plan.new_names and not plan.closing:
            self._filesystem.fsync_folder(Path(self._folder).parent)
        self._epochs_unflushed = self._epochs_unflushed and self._stored_epochs != plan.epochs

    def _store_derived(self, plan: FlushPlan, segment_starts: set[int]) -> list[Path]:
        """Store the derived files in a plan; return the files that must be fsynced."""
        stored = []
        with self.lock:
            if plan.epochs != (self._stored_epochs or ()):
                self._write_epochs(plan.epochs)
            if self._epochs_unflushed:
                stored.append(self._path(LEADER_EPOCH_CHECKPOINT))
            if plan.indexes is not None and plan.producers is not None:
                # If the segment was sealed in the meantime, its final indexes are already stored. The next flush makes
                # them durable.
                if not plan.active.is_sealed:
                    plan.active.write_indexes(*plan.indexes)
                    stored += [plan.active.paths.time_index, plan.active.paths.index]
                self.write_snapshot(plan.end_offset, plan.producers, segment_starts, durable=False)
                stored.append(self._snapshot(plan.end_offset))
        return stored

    def _fsync_sealed(self, segment: SealedSegment) -> None:
        # The file may not exist, because retention may remove the segment at any time.
        file = segment.unflushed_file
        if file is not None:
            self._filesystem.fsync(file)
            # Close the file immediately, because the next step may need its descriptor if descriptors are short.
            segment.unflushed_file = file = None
        else:
            self._fsync_if_there(segment.paths.log)
        for path in (segment.paths.index, segment.paths.time_index, self._snapshot(segment.next_offset)):
            self._fsync_if_there(path)

    def _fsync_if_there(self, path: Path) -> None:
        try:
            with _put_off_if_short():
                file = self._filesystem.open(path, writable=False)
        except FileNotFoundError:
            return  # recovery can rebuild this file from the batches
        try:
            self._filesystem.fsync(file)
        finally:
            file.close()

    def _snapshot(self, offset: int) -> Path:
        return self._path(offset_name(offset, SNAPSHOT_SUFFIX))

    def _path(self, name: str) -> Path:
        return Path(f"{self._folder}/{name}")


@contextmanager
def _put_off_if_short(shortages: Collection[int] = SHORTAGES) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in shortages:
            raise FlushPostponedError(error) from error
        raise


class LogFlusher:
    """The part of a log that makes records durable.

    :param is_as_closed: True if all files match the state of the log. If the log does not change, it then needs no
        flush when it is closed.
    :param has_new_names: True if files were created or renamed since the last fsync of the directory.
    """

    __slots__ = (
        "_epochs",
        "_filesystem",
        "_folder",
        "_has_new_names",
        "_health",
        "_is_as_closed",
        "_offsets",
        "_producers",
        "_segments",
        "_state_lock",
        "_stored_size",
        "file_lock",
        "files",
    )

    def __init__(
        self,
        filesystem: FileSystem,
        folder: FilePath,
        segments: SegmentList,
        offsets: OffsetTracker,
        epochs: LeaderEpochs,
        producers: ProducerStates,
        health: LogHealth,
        files: DerivedFiles,
        *,
        is_as_closed: bool,
        has_new_names: bool,
    ) -> None:
        self._filesystem = filesystem
        self._folder = str(folder)
        self._segments = segments
        self._offsets = offsets
        self._epochs = epochs
        self._producers = producers
        self._health = health
        self._state_lock = offsets.state_lock
        self.files = files
        self.file_lock = threading.Lock()
        self._is_as_closed = is_as_closed
        self._has_new_names = has_new_names
        self._stored_size = 0
        """The size of the active segment when its indexes were last stored."""

    @property
    def is_due(self) -> bool:
        """True if a background flush is due: a segment was sealed, or many bytes were appended."""
        offsets = self._offsets.current
        if self._unstored_bytes >= CHECKPOINT_BYTES and offsets.log_end_offset > offsets.recovery_point:
            return True
        return bool(self._segments.sealed_since(offsets.recovery_point))

    def flush(self) -> None:
        """Make all records durable that were appended before this call.

        :raises StorageError: a write has failed, in this call or earlier. The recovery point does not move.
        """
        with self.file_lock:
            self._health.check()
            self._flush(closing=False)

    def flush_at_end(self) -> None:
        """Make all records durable before the log is closed. The caller must hold `file_lock`.

        :raises StorageError: a write has failed, in this call or earlier.
        """
        self._health.check()
        if not self._is_as_closed or self._segments.active.is_changed:
            self._flush(closing=True)

    def seal(self, indexes: tuple[bytes, bytes], base_offset: int, index_interval_bytes: int) -> ActiveSegment:
        """Store the final indexes of the active segment and the producer states.

        Create and return a new, empty segment.

        :raises OSError: the file system returned an error; the active segment remains in use.
        """
        sealed = self._segments.active
        try:
            with self.files.lock:
                self._health.check()  # after the log is closed, its directory may belong to another log
                sealed.write_indexes(*indexes)
                sealed.is_sealed = True
                starts = self._segments.base_offsets
                self.files.write_snapshot(base_offset, self._producers.entries(), starts, durable=False)
                return ActiveSegment.create(self._filesystem, Path(self._folder), base_offset, index_interval_bytes)
        except OSError:
            sealed.is_sealed = False  # the new segment does not exist, because its `.log` file is created last
            raise

    # --- methods for other parts of the log ---

    def note_change(self) -> None:
        """Record a change of the log that is not an append."""
        self._is_as_closed = False

    def note_new_segment(self) -> None:
        """Record that the active segment is a new file. The caller must hold the state lock."""
        self._has_new_names = True
        self._stored_size = 0

    # --- implementation ---

    @property
    def _unstored_bytes(self) -> int:
        return self._segments.active.size - self._stored_size

    def _flush(self, *, closing: bool) -> None:
        with self._state_lock:
            plan = self._plan(closing=closing)
        if plan is None:
            return
        with self._health.offline_on_error("flush", even_if_unforeseen=True):
            try:
                self.files.execute(plan, self._segments.base_offsets)
            except FlushPostponedError as error:
                self._has_new_names = True
                self._stored_size = min(self._stored_size, self._segments.active.size - CHECKPOINT_BYTES)
                raise self._health.refused("flush", error.reason) from error
        self._offsets.move_recovery_point(plan.end_offset)

    def _plan(self, *, closing: bool) -> FlushPlan | None:
        offsets, active = self._offsets.current, self._segments.active
        sealed = self._segments.sealed_since(offsets.recovery_point)
        if offsets.log_end_offset <= offsets.recovery_point and not sealed and not closing:
            return None
        with_derived = closing or self._unstored_bytes >= CHECKPOINT_BYTES
        plan = FlushPlan(
            offsets.log_end_offset,
            sealed,
            active,
            active.encode_indexes(closing=closing) if with_derived else None,
            self._producers.entries() if with_derived else None,
            self._epochs.entries,
            self._has_new_names,
            closing,
        )
        self._has_new_names = False
        if with_derived:
            self._stored_size = active.size
        return plan
