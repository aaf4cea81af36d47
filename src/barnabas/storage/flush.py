"""Makes a log durable: a plan is made at one moment, and carried out while appends go on.

A flush is one fsync of the active segment, as a rule. After a roll the sealed segments and their indexes are
fsynced as well, and every 16 MiB the active segment's indexes and the producers are stored: the recovery point must
never be ahead of what the files beside the batches say durably, or a start would have to read all that was flushed.

On closing they are stored, and not fsynced: that would be most of the time that a stop takes. Should the machine lose
its power right after, the next start finds them damaged, and reads one segment.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from barnabas.storage.active_segment import ActiveSegment
from barnabas.storage.checkpoints import EpochStart, encode_leader_epochs
from barnabas.storage.file_names import LEADER_EPOCH_CHECKPOINT, SNAPSHOT_SUFFIX, offset_name
from barnabas.storage.filesystem import (
    OPEN_FILES,
    SHORTAGES,
    FilePath,
    FileSystem,
    is_shortage,
    remove_if_there,
    replace_file,
)
from barnabas.storage.leader_epochs import LeaderEpochs
from barnabas.storage.producer_state import ProducerEntry, encode_snapshot
from barnabas.storage.recovery import snapshot_offsets
from barnabas.storage.segment import SealedSegment

CHECKPOINT_BYTES = 16 * 1024 * 1024
"""After this many bytes a flush stores indexes and producers too. It bounds how much of the flushed part of the
active segment is read again at start."""


class PutOffError(Exception):
    """A flush was put off, because room on the disk or open files were short. No fsync failed; the next flush does it
    all."""

    def __init__(self, reason: OSError) -> None:
        super().__init__(str(reason))
        self.reason = reason


class FlushPlan(NamedTuple):
    """What a flush has to make durable, as of one moment."""

    end_offset: int
    sealed: list[SealedSegment]
    active: ActiveSegment
    indexes: tuple[bytes, bytes] | None
    """The active segment's, if they are to be stored."""
    producers: dict[int, ProducerEntry] | None
    """As of the end offset, if they are to be stored."""
    epochs: tuple[EpochStart, ...]
    """As of the end offset."""
    new_names: bool
    """Files were made or renamed since the folder was fsynced."""
    closing: bool
    """It is the last flush, on closing. The caller makes the name of the log's folder durable."""


class BesideFiles:
    """The files of a log that are not a segment's batches, and their durability.

    Writing is done by the appending thread and by the flushing one: `lock` is held while a file is replaced, and
    never while the disk works.

    :param snapshots: the offsets of the snapshots that are there.
    :param epochs: what the checkpoint of the leader epochs says; None: it is missing, or not believed.
    """

    def __init__(
        self, filesystem: FileSystem, folder: FilePath, snapshots: Sequence[int], epochs: tuple[EpochStart, ...] | None
    ) -> None:
        self._filesystem = filesystem
        self._folder = str(folder)
        self._epochs_unflushed = True
        self._stored_epochs = epochs
        self._last_snapshot = max(snapshots, default=None)
        self.lock = threading.Lock()

    def find_snapshots(self) -> None:
        """Look in the folder for the latest snapshot."""
        self._last_snapshot = max(snapshot_offsets(self._filesystem, self._folder), default=None)

    def write_epochs(self, epochs: LeaderEpochs) -> None:
        """Store the leader epochs of a log that was cut; not durable yet: recovery learns them from batches that are
        not flushed. Where there is no room for them, remove those that were stored, and leave it to the next flush.

        :raises OSError: the disk refuses.
        """
        with self.lock:
            try:
                self._write_epochs(epochs.entries)
            except OSError as error:
                if not is_shortage(error):
                    raise
                # Epochs of what is gone would be believed; where there are none, recovery takes those of the batches.
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
        """Store the producers as of `offset`; delete the snapshot before, unless it is at a segment's start.

        The name is made durable by the caller, with others.
        """
        content = encode_snapshot(producers)
        replace_file(self._filesystem, self._snapshot(offset), content, durable=durable, name_later=True)
        before, self._last_snapshot = self._last_snapshot, offset
        if before is not None and before != offset and before not in segment_starts:
            self._filesystem.unlink(self._snapshot(before))

    def remove_snapshots_before(self, offset: int) -> None:
        """Delete the snapshots before `offset`, except for the latest of all.

        :raises OSError: some of them may be left.
        """
        with self.lock:
            for snapshot in snapshot_offsets(self._filesystem, self._folder):
                if snapshot < offset and snapshot != self._last_snapshot:
                    self._filesystem.unlink(self._snapshot(snapshot))

    def remove_snapshots_at(self, offsets: Collection[int]) -> None:
        """Delete the snapshots at starts of segments that are no more, except for the latest of all.

        :raises OSError: some of them may be left.
        """
        with self.lock:
            for snapshot in snapshot_offsets(self._filesystem, self._folder):
                if snapshot in offsets and snapshot != self._last_snapshot:
                    self._filesystem.unlink(self._snapshot(snapshot))

    def remove_all_snapshots(self) -> None:
        """Forget what producers wrote.

        :raises OSError: some of the snapshots may be left.
        """
        with self.lock:
            for snapshot in snapshot_offsets(self._filesystem, self._folder):
                self._filesystem.unlink(self._snapshot(snapshot))
            self._last_snapshot = None

    def carry_out(self, plan: FlushPlan, segment_starts: set[int]) -> None:
        """Do what a plan says. The caller carries out one plan at a time.

        :raises PutOffError: something was short.
        :raises OSError: the disk refuses; none of it may be relied on.
        """
        for segment in plan.sealed:
            self._fsync_sealed(segment)
        with _put_off_if_short(OPEN_FILES):
            self._filesystem.fsync(plan.active.file)
        with _put_off_if_short():
            stored = self._store_beside(plan, segment_starts)
        if not plan.closing:
            for path in stored:
                self._fsync_if_there(path)
        if plan.new_names or (stored and not plan.closing):
            self._filesystem.fsync_folder(Path(self._folder))
        if plan.new_names and not plan.closing:
            self._filesystem.fsync_folder(Path(self._folder).parent)
        self._epochs_unflushed = self._epochs_unflushed and self._stored_epochs != plan.epochs

    def _store_beside(self, plan: FlushPlan, segment_starts: set[int]) -> list[Path]:
        """Store what a plan says of the files beside the batches; return those that are to be fsynced."""
        stored = []
        with self.lock:
            if plan.epochs != (self._stored_epochs or ()):
                self._write_epochs(plan.epochs)
            if self._epochs_unflushed:
                stored.append(self._path(LEADER_EPOCH_CHECKPOINT))
            if plan.indexes is not None and plan.producers is not None:
                # If it was sealed meanwhile, its last indexes are stored already; the next flush makes them durable.
                if not plan.active.is_sealed:
                    plan.active.write_indexes(*plan.indexes)
                    stored += [plan.active.paths.time_index, plan.active.paths.index]
                self.write_snapshot(plan.end_offset, plan.producers, segment_starts, durable=False)
                stored.append(self._snapshot(plan.end_offset))
        return stored

    def _fsync_sealed(self, segment: SealedSegment) -> None:
        # Retention may remove it at any time, and then there is nothing to make durable.
        file = segment.unflushed_file
        if file is not None:
            self._filesystem.fsync(file)
            # Closed at once: when open files are short, the next step needs the descriptor.
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
            # What is missing can always be rebuilt from the batches.
            return
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
            raise PutOffError(error) from error
        raise
