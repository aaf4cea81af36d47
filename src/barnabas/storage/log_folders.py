"""The folders of logs: made durably with their topic id, recognised at a start, renamed when deleted.

Invariants. `partition.metadata` holds the topic id. It is durable, content and name, before the first file of the log
is made, so a loss of power leaves no records without it. A folder without records is removed or reused: all that is in
it can be made again.

Threads. Several threads may use it, each with partitions of its own.

Errors. OSError if the disk refuses. A folder is then as it was, or has a part of the change, which a start repairs.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from barnabas.errors import StorageError
from barnabas.model import TopicPartition
from barnabas.storage.checkpoints import decode_partition_metadata, encode_partition_metadata
from barnabas.storage.damaged_files import rename_damaged
from barnabas.storage.deleted_files import DeletedFiles
from barnabas.storage.file_names import (
    DELETED_FOLDER_SUFFIX,
    DELETION_NOTE,
    FUTURE_FOLDER_SUFFIX,
    LEAVING_LOGS,
    LOG_SUFFIX,
    MOVE_NOTE,
    PARTITION_METADATA,
    TEMPORARY_SUFFIX,
    deleted_folder_name,
    future_folder_name,
    is_deleted_folder,
    is_future_folder,
    is_of_empty_log,
    offset_name,
    partition_of,
)
from barnabas.storage.filesystem import FileSystem, read_file, remove_if_there, replace_file

logger = logging.getLogger(__name__)


class LogFolders:
    """The folders of the logs in a data folder.

    :param deleted: gets the renamed folders.
    :param new_id: makes their names unique.
    """

    def __init__(
        self, filesystem: FileSystem, data_dir: Path, deleted: DeletedFiles, new_id: Callable[[], uuid.UUID]
    ) -> None:
        self._filesystem = filesystem
        self.data_dir = data_dir
        self._deleted = deleted
        self._new_id = new_id
        self.half_deleted: set[TopicPartition] = set()
        """Deleted logs whose folders could not be renamed."""
        self.deleted_logs: set[TopicPartition] = set()
        """Logs that were deleted since this broker started, or before it with their folders still there."""

    def path_of(self, partition: TopicPartition) -> Path:
        """Return the folder of a partition's log."""
        return self.data_dir / str(partition)

    def exists(self, partition: TopicPartition) -> bool:
        """Whether a folder has the name of a partition."""
        return self._filesystem.exists(self.path_of(partition))

    def make(self, partition: TopicPartition, topic_id: uuid.UUID | None) -> None:
        """Make a folder, or take over an existing one, and store its topic id durably.

        :raises OSError: the disk refuses.
        """
        folder = self.path_of(partition)
        self._filesystem.make_folder(folder)
        if topic_id is not None:
            content = encode_partition_metadata(topic_id)
            replace_file(self._filesystem, folder / PARTITION_METADATA, content, durable=True)

    def remove_unfinished(self, partition: TopicPartition) -> None:
        """Remove the folder of a log that could not be made; if that fails too, the folder does no harm."""
        folder = self.path_of(partition)
        try:
            self._filesystem.remove_folder(folder)
        except OSError as error:
            logger.warning("%s: a log that could not be made cannot be removed: %s", folder, error)

    def topic_id_of(self, partition: TopicPartition) -> uuid.UUID | None:
        """Return the topic id in a folder; None if it is missing or damaged.

        :raises OSError: the disk refuses.
        """
        # A string: a start reads one for each log.
        path = f"{self.data_dir}/{partition}/{PARTITION_METADATA}"
        try:
            content = read_file(self._filesystem, path)
        except FileNotFoundError:
            return None
        if not content:
            logger.warning("%s is empty; perhaps the machine lost its power when an older release had made it", path)
            return None
        try:
            return decode_partition_metadata(content)
        except ValueError as error:
            renamed = rename_damaged(self._filesystem, Path(path))
            logger.warning("%s is damaged, and renamed to %s: %s", path, renamed.name, error)
            return None

    def has_no_records(self, partition: TopicPartition) -> bool:
        """Whether a folder exists and has only the files of a new log: no records, and no trace of any.

        False if the folder cannot be read.
        """
        folder = self.path_of(partition)
        try:
            names = self._filesystem.list_folder(folder)
            log = offset_name(0, LOG_SUFFIX)
            return all(map(is_of_empty_log, names)) and (log not in names or not self._filesystem.size(folder / log))
        except OSError:
            return False

    def rename_deleted(self, partition: TopicPartition) -> None:
        """Rename the folder of a deleted log, to be removed later.

        :raises StorageError: the disk refuses; the folder is in `half_deleted`.
        """
        folder = self.path_of(partition)
        self.half_deleted.add(partition)
        self.deleted_logs.add(partition)
        try:
            self._filesystem.open(folder / DELETION_NOTE, create=True).close()
            # Otherwise a loss of power might leave the new name without the note, and the folder forever.
            self._filesystem.fsync_folder(folder)
        except OSError as error:
            logger.warning("%s: a start will not know that it was deleted, and leave it: %s", folder, error)
        target = self.data_dir / deleted_folder_name(partition, self._new_id().hex)
        try:
            self._filesystem.replace(folder, target)
            self.half_deleted.discard(partition)
            self._filesystem.fsync_folder(self.data_dir)
        except FileNotFoundError:
            logger.warning("%s is gone already", folder)
            self.half_deleted.discard(partition)
            return
        except OSError as error:
            raise StorageError(f"{folder}: cannot be renamed to {target.name}: {error}") from error
        self._deleted.add([target])

    def future_path(self, partition: TopicPartition) -> Path:
        """Return the folder for a copy of a log in another data folder."""
        return self.data_dir / future_folder_name(partition, self._new_id().hex)

    def note_move(self, folder: Path, source_id: str, topic_id: uuid.UUID | None) -> None:
        """Store durably that a folder is to replace the one in the data folder with this id.

        :raises OSError: the disk refuses.
        """
        self._filesystem.make_folder(folder)
        replace_file(self._filesystem, folder / MOVE_NOTE, source_id.encode(), durable=True)
        if topic_id is not None:
            content = encode_partition_metadata(topic_id)
            replace_file(self._filesystem, folder / PARTITION_METADATA, content, durable=True)

    def moved_from(self, folder: Path) -> list[str]:
        """Return the ids of the data folders whose log this one replaces, by its note.

        :raises OSError: the disk refuses.
        """
        try:
            return read_file(self._filesystem, folder / MOVE_NOTE).decode("ascii", "replace").split()
        except FileNotFoundError:
            return []

    def is_own_future(self, name: str) -> bool:
        """Whether a broker made the folder of this name for a copy of a log.

        :raises OSError: the disk refuses.
        """
        if not is_future_folder(name):
            return False
        names = set(self._filesystem.list_folder(self.data_dir / name))
        return MOVE_NOTE in names or names <= {MOVE_NOTE + TEMPORARY_SUFFIX}

    def note_replaced(self, partition: TopicPartition, folder_ids: Iterable[str]) -> None:
        """Store durably the data folders that may have a log which this one replaces; without any, remove the note.

        :raises OSError: the disk refuses.
        """
        folder = self.path_of(partition)
        if content := " ".join(sorted(folder_ids)).encode():
            replace_file(self._filesystem, folder / MOVE_NOTE, content, durable=True)
        elif self._filesystem.exists(folder / MOVE_NOTE):
            self._filesystem.unlink(folder / MOVE_NOTE)
            self._filesystem.fsync_folder(folder)

    def read_leaving(self) -> dict[TopicPartition, str]:
        """Return the note of `store_leaving`.

        :raises OSError: the disk refuses.
        """
        try:
            lines = read_file(self._filesystem, self.data_dir / LEAVING_LOGS).decode("ascii", "replace").splitlines()
        except FileNotFoundError:
            return {}
        pairs = [line.partition(" ") for line in lines]
        return {where: folder_id for folder_id, _, name in pairs if (where := partition_of(name)) is not None}

    def store_leaving(self, leaving: Mapping[TopicPartition, str]) -> None:
        """Store durably the logs that leave this data folder, with the ids of their new folders.

        :raises OSError: the disk refuses.
        """
        path = self.data_dir / LEAVING_LOGS
        if leaving:
            content = "".join(f"{folder_id} {where}\n" for where, folder_id in leaving.items()).encode()
            replace_file(self._filesystem, path, content, durable=True)
        else:
            remove_if_there(self._filesystem, path)

    def promote_future(self, future: Path, partition: TopicPartition) -> None:
        """Give a folder the name of a partition, durably.

        :raises OSError: the disk refuses; the folder may have the name.
        """
        self._filesystem.fsync_folder(future)
        self._filesystem.replace(future, self.path_of(partition))
        self._filesystem.fsync_folder(self.data_dir)

    def discard_future(self, folder: Path) -> None:
        """Remove the folder of an abandoned copy.

        :raises OSError: the disk refuses.
        """
        target = folder.with_name(folder.name.removesuffix(FUTURE_FOLDER_SUFFIX) + DELETED_FOLDER_SUFFIX)
        self._filesystem.open(folder / DELETION_NOTE, create=True).close()
        self._filesystem.replace(folder, target)
        self._deleted.add([target], at_once=True)

    def find_deleted(self, names: Iterable[str]) -> None:
        """Schedule the removal of folders that a broker deleted; no other folder is touched, whatever its name."""
        for name in names:
            if name.endswith(DELETED_FOLDER_SUFFIX):
                folder = self.data_dir / name
                if is_deleted_folder(name) and self._filesystem.exists(folder / DELETION_NOTE):
                    self._deleted.add([folder], at_once=True)
                    if (partition := partition_of(name.rpartition(".")[0])) is not None:
                        self.deleted_logs.add(partition)
                else:
                    logger.warning("%s: no broker noted that it deleted it; it is left as it is", folder)
