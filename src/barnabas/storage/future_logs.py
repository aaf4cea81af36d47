"""Moves of logs to another data directory of the same broker (KIP-113).

During a move, a copy of the log grows in the target directory: the future log.

`PendingMoves` stores the moves that an administrator has requested, so the broker continues them after a restart. The
file `log-moves` in the target data directory has a line with the topic id for each log. Each write replaces the file as
a whole. A damaged file is treated as empty; an administrator can request the moves again.

`LogMove` is a log with its future log. `FutureLogs` does the steps of a move on the disk.

Invariants. At each moment, exactly one directory of a log is valid. The future log is a separate log, in a directory
whose name is not the name of a partition. It gets batches as a follower does. When it has all batches and the
checkpoints contain its offsets, it is closed, which makes it durable. Then its directory gets the name of the partition
directory (`DataFolders.swap`). From this moment on, the future log is the valid one, because a note in its directory
names the old data directory. Then the old directory is renamed, and the note is removed. If a start finds both
directories, the note decides. If a start finds a future log, it removes the future log.

Threads. Several threads may use `FutureLogs`, each with different partitions. The other classes are not thread-safe,
except that any thread may read `LogMove.missing` and `LogMove.is_truncated`.

Errors. StorageError is raised if the file system returned an error, or if the log was truncated during the move. After
an error, either the old log or the future log is valid.
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
"""The maximum number of concurrent moves."""

Wanted = Mapping[TopicPartition, uuid.UUID | None]
"""The partitions to move, with their topic ids."""


class PendingMoves:
    """The requested moves, which are stored in files in the data directories. Not thread-safe.

    :param folders: returns the online data directories.
    :param topic_ids: the topic ids of all logs.
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
        """Return the stored moves.

        Moves of topics that were created again are left out, and unreadable files are skipped.
        """
        found = {}
        for folder in self._folders():
            try:
                noted = self._noted[folder] = _read(self._filesystem, folder)
            except OSError as error:
                logger.warning("%s: cannot read the requested moves of logs: %s; ignoring them", folder, error)
            else:
                found.update({each: folder for each, id_ in noted.items() if id_ == self._topic_ids.get(each)})
        return found

    def store(self, wanted: Mapping[TopicPartition, Path]) -> None:
        """Store the requested moves durably, so that the broker continues them after a restart."""
        for folder in self._folders():
            there = {each: self._topic_ids.get(each) for each, path in wanted.items() if path == folder}
            if there != self._noted.get(folder, {}):
                try:
                    _store(self._filesystem, folder, there)
                except OSError as error:
                    logger.warning(
                        "%s: cannot store the requested moves of logs: %s; a restart will not continue them",
                        folder,
                        error,
                    )
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
        logger.warning("%s is damaged (%s); request the moves of logs again", folder / WANTED_MOVES, error)
        return {}


def _checked(lines: Sequence[str]) -> Sequence[str]:
    if len(lines) > MOVES_MAX:
        raise ValueError(f"{len(lines)} lines exceed the maximum of {MOVES_MAX} moves")
    return lines


def _parse(line: str) -> tuple[TopicPartition, uuid.UUID | None]:
    topic_id, space, name = line.partition(" ")
    where = partition_of(name)
    if not space or where is None:
        raise ValueError(f"{line!r} does not contain a topic id and a partition")
    return where, None if topic_id == "-" else uuid.UUID(hex=topic_id)


class LogMove:
    """A log and its future log.

    :param current: the log that moves.
    :param future: the future log. It must be empty.
    :param target: the data directory of the future log.
    """

    def __init__(self, current: Log, future: Log, target: Path) -> None:
        self.current = current
        self.future = future
        self.target = target
        self._truncations = current.truncation_count
        self._first_dirty_offset = current.first_dirty_offset

    @property
    def missing(self) -> int:
        """The number of offsets that the future log lacks."""
        return max(0, self.current.log_end_offset - self.future.log_end_offset)

    @property
    def is_truncated(self) -> bool:
        """True if the log was truncated since `prepare`. The future log may then contain removed records."""
        return self.current.truncation_count != self._truncations

    def prepare(self) -> None:
        """Empty the future log if the log was truncated, or if the log starts above the end of the future log.

        :raises StorageError: the file system returned an error.
        """
        if self.is_truncated or self.future.log_end_offset < self.current.log_start_offset:
            self._truncations = self.current.truncation_count
            self._first_dirty_offset = min(self._first_dirty_offset, self.current.first_dirty_offset)
            self.future.truncate_fully_and_start_at(self.current.log_start_offset)

    def append(self, batches: bytes, leader_epoch: int) -> None:
        """Append the next batches to the future log.

        :raises BarnabasError: a batch is damaged, or the write failed.
        """
        first, future = read_header(batches), self.future
        if future.log_start_offset == future.log_end_offset and first.base_offset < future.log_end_offset:
            # The batch contains the log start offset, so it begins before the end of the future log.
            future.lower_log_end_to(first.base_offset)
        future.append_as_follower(batches, leader_epoch)

    def complete(self) -> None:
        """Complete the future log: set its log start offset to that of the log, make it durable, and close it.

        :raises StorageError: the file system returned an error, or the log was truncated. After a truncation, the
            future log is unchanged.
        """
        if self.is_truncated:
            raise StorageError(f"{self.current.partition} was truncated during its move")
        current, future = self.current, self.future
        if future.log_start_offset < current.log_start_offset:
            if current.log_start_offset == future.log_end_offset:
                future.roll()
            future.delete_records_before(current.log_start_offset)
            future.rename_deleted_files()
        future.close()

    def transfer_state(self, log: Log) -> None:
        """Copy the state that is not stored in files from the old log to the new log.

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
    """The steps of moves from and to one data directory.

    :param logs: the logs of the data directory.
    :param store_all: a function that stores all checkpoints.
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
        """Create a future log in this data directory for a log in another data directory.

        :param source_id: the id of the other data directory.
        :raises StorageError: this data directory contains a directory of this name, or the file system returned an
            error.
        """
        folder = self._folders.future_path(current.partition)
        try:
            if self._folders.exists(current.partition):
                # Without this check, the error would occur when the future log replaces the log, and the log would be
                # offline until the next start.
                raise StorageError(
                    f"{self._folders.path_of(current.partition)} exists, but is not this log; move it away"
                )
            self._folders.note_move(folder, source_id, topic_id)
            return self._loader.open(current.partition, current.config, folder=folder)
        except OSError as error:
            raise StorageError(f"{folder}: cannot create the future log: {error}") from error

    def promote(self, future: Log, current: Log) -> Log:
        """Make a closed future log the log of its partition, open it, and return it.

        Once its directory has the name of the partition directory, the future log is valid, even after a crash.

        :param current: the log to replace. It must not change during this call.
        :raises StorageError: the file system returned an error and no file has changed, or `current` is offline.
        """
        partition = current.partition
        end = current.log_end_offset
        stored = StoredOffsets(end, current.log_start_offset, current.high_watermark)
        # The checkpoints must contain the offsets of the future log before its directory is renamed.
        self._logs[partition] = current
        try:
            self._store_all()
        except StorageError:
            del self._logs[partition]
            raise
        try:
            self._folders.promote_future(future.folder, partition)
            log = self._loader.open(partition, current.config, stored, clean=True)
        except (OSError, StorageError) as error:
            current.put_offline(f"the future log {future.folder} cannot replace it: {error}")
            raise StorageError(f"{partition}: {error}; the log is offline until the next start") from error
        self._logs[partition] = log
        return log

    def discard_futures(self, names: Iterable[str]) -> None:
        """Remove future logs that an earlier run of the broker has left.

        :param names: the names of all files in the data directory.
        :raises OSError: the file system returned an error.
        """
        for name in names:
            if self._folders.is_own_future(name):
                logger.warning("%s: removing the incomplete future log of an interrupted move", name)
                self.discard_future(self._folders.data_dir / name)

    def discard_future(self, folder: Path) -> None:
        """Remove the directory of an abandoned future log. If the removal fails, the next start removes it."""
        try:
            self._folders.discard_future(folder)
        except OSError as error:
            logger.warning("cannot remove the future log %s: %s; retrying at the next start", folder, error)

    def moved_from(self, partition: TopicPartition) -> list[str]:
        """Return the ids of the data directories that may contain an obsolete log of this partition.

        :raises OSError: the file system returned an error.
        """
        return self._folders.moved_from(self._folders.path_of(partition))

    def note_replaced(self, partition: TopicPartition, folder_ids: Iterable[str] = ()) -> None:
        """Record durably that a partition's log in this data directory is valid, and its logs in others are obsolete.

        :raises StorageError: the file system returned an error.
        """
        try:
            self._folders.note_replaced(partition, folder_ids)
        except OSError as error:
            raise StorageError(f"{partition}: {error}") from error

    def has_folder(self, partition: TopicPartition) -> bool:
        """Return whether a partition directory exists."""
        return self._folders.exists(partition)

    # --- logs that move away ---

    def read_leaving(self) -> dict[TopicPartition, str]:
        """Return the logs that were moving or had moved away at the end of the last run, with the target directory ids.

        :raises OSError: the file system returned an error.
        """
        self._leaving = self._folders.read_leaving()
        return dict(self._leaving)

    def is_leaving(self, partition: TopicPartition) -> bool:
        """Return whether the note lists a log as moving or moved away."""
        return partition in self._leaving

    def note_leaving(self, partition: TopicPartition, target_id: str) -> None:
        """Record durably that a log is moving to another data directory.

        From now on, the log in this directory may be an old copy.

        :raises StorageError: the file system returned an error.
        """
        before, self._leaving = self._leaving, {**self._leaving, partition: target_id}
        try:
            self._folders.store_leaving(self._leaving)
        except OSError as error:
            self._leaving = before
            raise StorageError(f"{partition}: {error}") from error

    def forget_leaving(self, partition: TopicPartition) -> None:
        """Remove a log from the note, because its move has ended. If this fails, the next start removes it."""
        if self._leaving.pop(partition, None) is not None:
            try:
                self._folders.store_leaving(self._leaving)
            except OSError as error:
                logger.warning("%s: cannot record the end of its move: %s; the next start records it", partition, error)

    def release(self, partition: TopicPartition) -> None:
        """Close a log that has moved to another data directory. Its directory is removed later.

        :raises StorageError: the file system returned an error.
        """
        if (log := self._logs.pop(partition, None)) is not None:
            log.abandon()
        self._folders.rename_deleted(partition)
        self.forget_leaving(partition)
