"""The steps on the disk of logs that move between the data folders of a broker (KIP-113).

Invariants. At each moment exactly one of the folders of a log counts. A copy has a name that is no partition's, until
it lacks no batch and the checkpoints hold its offsets. Then a rename makes it count, since a note in it has the old
place. Then the old folder is renamed, and then the note is removed.

Threads. Several threads may use it, each with partitions of its own.

Errors. StorageError if the disk refuses; the log that counts stays the one that it was, or becomes the copy.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path

from barnabas.errors import StorageError
from barnabas.model import TopicPartition
from barnabas.storage.checkpoints import StoredOffsets
from barnabas.storage.log import Log
from barnabas.storage.log_folders import LogFolders
from barnabas.storage.log_loading import LogLoader

logger = logging.getLogger(__name__)


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
            self._folders.take_place(future.folder, partition)
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
        """Whether a folder has the name of a partition."""
        return self._folders.exists(partition)

    # --- logs that leave ---

    def read_leaving(self) -> dict[TopicPartition, str]:
        """Return the logs that were leaving, or had left, when the last run ended, with the ids of their new folders.

        :raises OSError: the disk refuses.
        """
        self._leaving = self._folders.read_leaving()
        return dict(self._leaving)

    def is_leaving(self, partition: TopicPartition) -> bool:
        """Whether the note has a log that has left, or is about to."""
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
