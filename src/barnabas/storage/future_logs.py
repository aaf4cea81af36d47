"""Logs that move to another data folder of their broker (KIP-113): a copy, the future log, grows there.

`PendingMoves` stores the moves that an administrator asked for, so that a broker that starts again goes on with them.
The file `log-moves` in the target folder has a line for each log, with the id of its topic. It is replaced as a whole.
A damaged file counts as empty: an administrator can ask for a move again.

`LogMove` is a log and its copy. `FutureLogs` takes the steps on the disk.

Invariants. At each moment exactly one of the folders of a log counts. The copy is a log of its own, in a folder whose
name is no partition's. It appends batches as a follower does. When no batch is missing and the checkpoints hold its
offsets, the copy is closed, so all of it is durable. Then its folder gets the partition's name (`DataFolders.swap`);
from then on the copy counts, since a note in its folder has the old place. Then the old folder is renamed, and then the
note is removed. A start that finds both folders goes by the note; a start that finds a copy removes it.

Threads. Several threads may use `FutureLogs`, each with partitions of its own. One thread at a time uses the other
classes, except for `LogMove.missing` and `LogMove.is_truncated`, which any thread may read.

Errors. StorageError if the disk refuses, or the log was truncated meanwhile. The log that counts stays the one that it
was, or becomes the copy.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from barnabas.errors import StorageError
from barnabas.model import TopicPartition
from barnabas.records.header import read_header
from barnabas.storage.checkpoints import StoredOffsets
from barnabas.storage.file_names import WANTED_MOVES, partition_of
from barnabas.storage.filesystem import FileSystem, read_file, remove_if_there, replace_file
from barnabas.storage.log import Log
from barnabas.storage.log_folders import LogFolders
from barnabas.storage.log_loading import LogLoader

logger = logging.getLogger(__name__)

MOVES_MAX = 10_000
"""The most moves at a time."""

Wanted = Mapping[TopicPartition, uuid.UUID | None]
"""The partitions to move, with the ids of their topics."""


class PendingMoves:
    """The wanted moves in the notes of the data folders. Used by one thread at a time.

    :param folders: returns the healthy ones.
    :param topic_ids: of all logs.
    """

    def __init__(
        self,
        filesystem: FileSystem,
        folders: Callable[[], Sequence[Path]],
        topic_ids: Mapping[TopicPartition, uuid.UUID],
    ) -> None:
        self._filesystem = filesystem
        self._folders = folders
        self._topic_ids = topic_ids
        self._noted: dict[Path, Wanted] = {}

    def read(self) -> dict[TopicPartition, Path]:
        """Return the wanted moves of the last run whose topic ids have not changed; unreadable notes are skipped."""
        found = {}
        for folder in self._folders():
            try:
                noted = self._noted[folder] = _read(self._filesystem, folder)
            except OSError as error:
                logger.warning("%s: cannot read the wanted moves of logs: %s", folder, error)
            else:
                found.update({each: folder for each, id_ in noted.items() if id_ == self._topic_ids.get(each)})
        return found

    def store(self, wanted: Mapping[TopicPartition, Path]) -> None:
        """Store the wanted moves durably, so that the next run goes on with them."""
        for folder in self._folders():
            there = {each: self._topic_ids.get(each) for each, path in wanted.items() if path == folder}
            if there != self._noted.get(folder, {}):
                try:
                    _store(self._filesystem, folder, there)
                except OSError as error:
                    logger.warning("%s: cannot store the wanted moves of logs: %s", folder, error)
                else:
                    self._noted[folder] = there


def _store(filesystem: FileSystem, folder: Path, wanted: Wanted) -> None:
    path = folder / WANTED_MOVES
    if wanted:
        lines = [f"{'-' if topic_id is None else topic_id.hex} {where}\n" for where, topic_id in wanted.items()]
        replace_file(filesystem, path, "".join(lines).encode(), durable=True)
    else:
        remove_if_there(filesystem, path)


def _read(filesystem: FileSystem, folder: Path) -> Wanted:
    try:
        lines = read_file(filesystem, folder / WANTED_MOVES).decode("ascii", "replace").splitlines()
    except FileNotFoundError:
        return {}
    try:
        return dict(map(_parse, _checked(lines)))
    except ValueError as error:
        logger.warning("%s cannot be understood (%s): ask again for moves", folder / WANTED_MOVES, error)
        return {}


def _checked(lines: Sequence[str]) -> Sequence[str]:
    if len(lines) > MOVES_MAX:
        raise ValueError(f"{len(lines)} lines, and there may be {MOVES_MAX}")
    return lines


def _parse(line: str) -> tuple[TopicPartition, uuid.UUID | None]:
    topic_id, space, name = line.partition(" ")
    where = partition_of(name)
    if not space or where is None:
        raise ValueError(f"{line!r} is not the id of a topic and a partition")
    return where, None if topic_id == "-" else uuid.UUID(hex=topic_id)


class LogMove:
    """A log and its copy.

    :param current: the log that moves.
    :param future: its copy, still empty.
    :param target: the data folder of the copy.
    """

    def __init__(self, current: Log, future: Log, target: Path) -> None:
        self.current = current
        self.future = future
        self.target = target
        self._truncations = current.truncation_count
        self._first_dirty_offset = current.first_dirty_offset

    @property
    def missing(self) -> int:
        """The number of offsets that the copy lacks."""
        return max(0, self.current.log_end_offset - self.future.log_end_offset)

    @property
    def is_truncated(self) -> bool:
        """Return whether the log was truncated since `prepare`: the copy may have removed records."""
        return self.current.truncation_count != self._truncations

    def prepare(self) -> None:
        """Empty the copy if the log was truncated, or begins behind the end of the copy now.

        :raises StorageError: the disk refuses.
        """
        if self.is_truncated or self.future.log_end_offset < self.current.log_start_offset:
            self._truncations = self.current.truncation_count
            self._first_dirty_offset = min(self._first_dirty_offset, self.current.first_dirty_offset)
            self.future.truncate_fully_and_start_at(self.current.log_start_offset)

    def append(self, batches: bytes, leader_epoch: int) -> None:
        """Append the next batches to the copy.

        :raises BarnabasError: a batch is damaged, or the disk refuses.
        """
        first, future = read_header(batches), self.future
        if future.log_start_offset == future.log_end_offset and first.base_offset < future.log_end_offset:
            # The log begins within this batch.
            future.lower_log_end_to(first.base_offset)
        future.append_as_follower(batches, leader_epoch)

    def complete(self) -> None:
        """Let the complete copy begin where the log does, make it durable, and close it.

        :raises StorageError: the disk refuses; or the log was truncated, and the copy is as it was.
        """
        if self.is_truncated:
            raise StorageError(f"{self.current.partition} was cut while it was moved")
        current, future = self.current, self.future
        if future.log_start_offset < current.log_start_offset:
            if current.log_start_offset == future.log_end_offset:
                future.roll()
            future.delete_records_before(current.log_start_offset)
            future.rename_deleted_files()
        future.close()

    def transfer_state(self, log: Log) -> None:
        """Pass on to the log in the new place what its files do not hold.

        :param log: the result of `DataFolders.swap`.
        """
        current = self.current
        for entry in current.leader_epochs.entries:
            if entry.epoch > log.leader_epochs.latest:
                log.leader_epochs.assign(*entry)
        log.accept_loss()
        if current.lost_from is not None:
            log.note_loss(current.lost_from)
        if current.is_newer_than_tree:
            log.mark_newer_than_tree()
        log.mark_dirty_from(self._first_dirty_offset)


class FutureLogs:
    """The moves of logs from and to a data folder.

    :param logs: in the folder.
    :param store_all: stores all checkpoints.
    """

    def __init__(
        self,
        logs: dict[TopicPartition, Log],
        folders: LogFolders,
        loader: LogLoader,
        store_all: Callable[[], None],
    ) -> None:
        self._logs = logs
        self._folders = folders
        self._loader = loader
        self._store_all = store_all
        self._leaving: dict[TopicPartition, str] = {}

    def create_future(self, current: Log, source_id: str, topic_id: uuid.UUID | None) -> Log:
        """Begin the copy of a log in another data folder.

        :param source_id: the id of that folder.
        :raises StorageError: the name is in use here, or the disk refuses.
        """
        folder = self._folders.future_path(current.partition)
        try:
            if self._folders.exists(current.partition):
                # Later, when the copy replaces the log, the same error would take the log offline until the next start.
                raise StorageError(f"{self._folders.path_of(current.partition)} is in the way, and not of this log")
            self._folders.note_move(folder, source_id, topic_id)
            return self._loader.open(current.partition, current.config, folder=folder)
        except OSError as error:
            raise StorageError(f"{folder}: cannot be made: {error}") from error

    def promote(self, future: Log, current: Log) -> Log:
        """Make a closed copy the log of its partition; open and return it.

        Once the folder of the copy has the partition's name, the copy counts, also after a crash.

        :param current: the log that the copy replaces; it must not change meanwhile.
        :raises StorageError: the disk refused, and no file has changed; or `current` is offline.
        """
        partition = current.partition
        end = current.log_end_offset
        stored = StoredOffsets(end, current.log_start_offset, current.high_watermark)
        self._logs[partition] = current  # so that the checkpoints have its offsets before its folder exists
        try:
            self._store_all()
        except StorageError:
            del self._logs[partition]
            raise
        try:
            self._folders.promote_future(future.folder, partition)
            log = self._loader.open(partition, current.config, stored, clean=True)
        except (OSError, StorageError) as error:
            current.put_offline(f"its copy {future.folder} cannot take its place: {error}")
            raise StorageError(f"{partition}: {error}; it is offline until the next start") from error
        self._logs[partition] = log
        return log

    def discard_futures(self, names: Iterable[str]) -> None:
        """Remove the copies that the last run left.

        :param names: of all files in the data folder.
        :raises OSError: the disk refuses.
        """
        for name in names:
            if self._folders.is_own_future(name):
                logger.warning("%s: it was being copied when the last run ended; the copy is removed", name)
                self.discard_future(self._folders.data_dir / name)

    def discard_future(self, folder: Path) -> None:
        """Remove the folder of an abandoned copy; if that fails, the next start removes it."""
        try:
            self._folders.discard_future(folder)
        except OSError as error:
            logger.warning("%s: a log that is not moved cannot be removed: %s", folder, error)

    def moved_from(self, partition: TopicPartition) -> list[str]:
        """Return the ids of the data folders that may have a log which the one here replaces.

        :raises OSError: the disk refuses.
        """
        return self._folders.moved_from(self._folders.path_of(partition))

    def note_replaced(self, partition: TopicPartition, folder_ids: Iterable[str] = ()) -> None:
        """Store that the log of a partition is here, and that logs in other data folders do not count.

        :raises StorageError: the disk refuses.
        """
        try:
            self._folders.note_replaced(partition, folder_ids)
        except OSError as error:
            raise StorageError(f"{partition}: {error}") from error

    def has_folder(self, partition: TopicPartition) -> bool:
        """Return whether a folder has the name of a partition."""
        return self._folders.exists(partition)

    # --- logs that leave ---

    def read_leaving(self) -> dict[TopicPartition, str]:
        """Return the logs that were leaving, or had left, when the last run ended, with the ids of their new folders.

        :raises OSError: the disk refuses.
        """
        self._leaving = self._folders.read_leaving()
        return dict(self._leaving)

    def is_leaving(self, partition: TopicPartition) -> bool:
        """Return whether the note has a log that has left, or is about to."""
        return partition in self._leaving

    def note_leaving(self, partition: TopicPartition, target_id: str) -> None:
        """Store that a log may be in another folder from now on, and the one here may be older.

        :raises StorageError: the disk refuses.
        """
        before, self._leaving = self._leaving, {**self._leaving, partition: target_id}
        try:
            self._folders.store_leaving(self._leaving)
        except OSError as error:
            self._leaving = before
            raise StorageError(f"{partition}: {error}") from error

    def forget_leaving(self, partition: TopicPartition) -> None:
        """Remove a log from the note: it has left and is not here, or it stays. If that fails, a start does it."""
        if self._leaving.pop(partition, None) is not None:
            try:
                self._folders.store_leaving(self._leaving)
            except OSError as error:
                logger.warning("%s: it cannot be noted that its move has ended: %s", partition, error)

    def release(self, partition: TopicPartition) -> None:
        """Close a log that another data folder has now; its folder is removed later.

        :raises StorageError: the disk refuses.
        """
        if (log := self._logs.pop(partition, None)) is not None:
            log.abandon()
        self._folders.rename_deleted(partition)
        self.forget_leaving(partition)
