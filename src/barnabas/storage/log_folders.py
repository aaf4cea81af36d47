"""The partition directories of a data directory.

They are created durably with their topic id, found at start, and renamed when they are deleted.

Invariants. `partition.metadata` contains the topic id. Its content and name are durable before the first file of the
log is created. So a power failure never leaves records without a topic id. A directory without records can be removed
or reused, because all its content can be created again.

Threads. Several threads may use this module, each with different partitions.

Errors. OSError is raised if the file system returns an error. The directory is then either unchanged or partly changed,
and a start repairs a partly changed directory.
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
    """The partition directories of a data directory.

    :param deleted: the object that later removes the renamed directories.
    :param new_id: returns a new id, which makes the names of renamed directories unique.
    """

    def __init__(
        self, filesystem: FileSystem, data_dir: Path, deleted: DeletedFiles, new_id: Callable[[], uuid.UUID]
    ) -> None:
        self._filesystem = filesystem
        self.data_dir = data_dir
        self._deleted = deleted
        self._new_id = new_id
        self.half_deleted: set[TopicPartition] = set()
        """Deleted logs whose directories could not be renamed."""
        self.deleted_logs: set[TopicPartition] = set()
        """The logs that were deleted since this broker started, and logs deleted earlier whose directories still exist.
        """

    def path_of(self, partition: TopicPartition) -> Path:
        """Return the partition directory of a log."""
        return self.data_dir / str(partition)

    def exists(self, partition: TopicPartition) -> bool:
        """Return whether a partition directory exists."""
        return self._filesystem.exists(self.path_of(partition))

    def make(self, partition: TopicPartition, topic_id: uuid.UUID | None) -> None:
        """Create a directory, or use an existing one, and store its topic id durably.

        :raises OSError: the file system returned an error.
        """
        folder = self.path_of(partition)
        self._filesystem.make_folder(folder)
        if topic_id is not None:
            content = encode_partition_metadata(topic_id)
            replace_file(self._filesystem, folder / PARTITION_METADATA, content, durable=True)

    def remove_unfinished(self, partition: TopicPartition) -> None:
        """Remove the directory of a failed creation. If the removal also fails, the directory is harmless."""
        folder = self.path_of(partition)
        try:
            self._filesystem.remove_folder(folder)
        except OSError as error:
            logger.warning("cannot remove the directory %s of a failed creation: %s; it can stay", folder, error)

    def topic_id_of(self, partition: TopicPartition) -> uuid.UUID | None:
        """Return the topic id in a partition directory; None if the file with the id is missing or damaged.

        :raises OSError: the file system returned an error.
        """
        # The path is a string for speed, because a start reads one file for each log.
        path = f"{self.data_dir}/{partition}/{PARTITION_METADATA}"
        try:
            content = read_file(self._filesystem, path)
        except FileNotFoundError:
            return None
        if not content:
            logger.warning(
                "%s is empty, perhaps after a loss of power under an older release; its topic id is unknown", path
            )
            return None
        try:
            return decode_partition_metadata(content)
        except ValueError as error:
            renamed = rename_damaged(self._filesystem, Path(path))
            logger.warning("%s is damaged; renamed it to %s: %s", path, renamed.name, error)
            return None

    def has_no_records(self, partition: TopicPartition) -> bool:
        """Return whether a partition directory exists and contains only the files of a new log without records.

        False if the directory cannot be read.
        """
        folder = self.path_of(partition)
        try:
            names = self._filesystem.list_folder(folder)
            log = offset_name(0, LOG_SUFFIX)
            return all(map(is_of_empty_log, names)) and (log not in names or not self._filesystem.size(folder / log))
        except OSError:
            return False

    def rename_deleted(self, partition: TopicPartition) -> None:
        """Rename the directory of a deleted log, and schedule its removal.

        :raises StorageError: the file system returned an error; the partition is in `half_deleted`.
        """
        folder = self.path_of(partition)
        self.half_deleted.add(partition)
        self.deleted_logs.add(partition)
        try:
            self._filesystem.open(folder / DELETION_NOTE, create=True).close()
            # Otherwise, a power failure could keep the new name but lose the note, and the directory would remain
            # forever.
            self._filesystem.fsync_folder(folder)
        except OSError as error:
            logger.warning(
                "%s: cannot write the deletion note: %s; a restart will not remove this directory", folder, error
            )
        target = self.data_dir / deleted_folder_name(partition, self._new_id().hex)
        try:
            self._filesystem.replace(folder, target)
            self.half_deleted.discard(partition)
            self._filesystem.fsync_folder(self.data_dir)
        except FileNotFoundError:
            logger.warning("%s does not exist any more; nothing to delete", folder)
            self.half_deleted.discard(partition)
            return
        except OSError as error:
            raise StorageError(f"cannot rename {folder} to {target.name}: {error}") from error
        self._deleted.add([target])

    def future_path(self, partition: TopicPartition) -> Path:
        """Return the directory for a future log, which is a copy of a log in another data directory."""
        return self.data_dir / future_folder_name(partition, self._new_id().hex)

    def note_move(self, folder: Path, source_id: str, topic_id: uuid.UUID | None) -> None:
        """Record durably that a directory replaces the partition directory in the data directory with this id.

        :raises OSError: the file system returned an error.
        """
        self._filesystem.make_folder(folder)
        replace_file(self._filesystem, folder / MOVE_NOTE, source_id.encode(), durable=True)
        if topic_id is not None:
            content = encode_partition_metadata(topic_id)
            replace_file(self._filesystem, folder / PARTITION_METADATA, content, durable=True)

    def moved_from(self, folder: Path) -> list[str]:
        """Return the ids of the data directories whose log this directory replaces, according to its note.

        :raises OSError: the file system returned an error.
        """
        try:
            return read_file(self._filesystem, folder / MOVE_NOTE).decode("ascii", "replace").split()
        except FileNotFoundError:
            return []

    def is_own_future(self, name: str) -> bool:
        """Return whether a broker created the directory with this name for a future log.

        :raises OSError: the file system returned an error.
        """
        if not is_future_folder(name):
            return False
        names = set(self._filesystem.list_folder(self.data_dir / name))
        return MOVE_NOTE in names or names <= {MOVE_NOTE + TEMPORARY_SUFFIX}

    def note_replaced(self, partition: TopicPartition, folder_ids: Iterable[str]) -> None:
        """Durably store the ids of the data directories that may contain an obsolete log of a partition.

        If there are none, remove the note.

        :raises OSError: the file system returned an error.
        """
        folder = self.path_of(partition)
        if content := " ".join(sorted(folder_ids)).encode():
            replace_file(self._filesystem, folder / MOVE_NOTE, content, durable=True)
        elif self._filesystem.exists(folder / MOVE_NOTE):
            self._filesystem.unlink(folder / MOVE_NOTE)
            self._filesystem.fsync_folder(folder)

    def read_leaving(self) -> dict[TopicPartition, str]:
        """Return the logs in the note that `store_leaving` writes.

        :raises OSError: the file system returned an error.
        """
        try:
            lines = read_file(self._filesystem, self.data_dir / LEAVING_LOGS).decode("ascii", "replace").splitlines()
        except FileNotFoundError:
            return {}
        pairs = [line.partition(" ") for line in lines]
        return {where: folder_id for folder_id, _, name in pairs if (where := partition_of(name)) is not None}

    def store_leaving(self, leaving: Mapping[TopicPartition, str]) -> None:
        """Durably store the logs that move away from this data directory, with the ids of their new data directories.

        :raises OSError: the file system returned an error.
        """
        path = self.data_dir / LEAVING_LOGS
        if leaving:
            content = "".join(f"{folder_id} {where}\n" for where, folder_id in leaving.items()).encode()
            replace_file(self._filesystem, path, content, durable=True)
        else:
            remove_if_there(self._filesystem, path)

    def promote_future(self, future: Path, partition: TopicPartition) -> None:
        """Durably rename the directory of a future log to the name of the partition directory.

        :raises OSError: the file system returned an error. The directory may already have the new name.
        """
        self._filesystem.fsync_folder(future)
        self._filesystem.replace(future, self.path_of(partition))
        self._filesystem.fsync_folder(self.data_dir)

    def discard_future(self, folder: Path) -> None:
        """Rename the directory of an abandoned future log, and schedule its removal.

        :raises OSError: the file system returned an error.
        """
        target = folder.with_name(folder.name.removesuffix(FUTURE_FOLDER_SUFFIX) + DELETED_FOLDER_SUFFIX)
        self._filesystem.open(folder / DELETION_NOTE, create=True).close()
        self._filesystem.replace(folder, target)
        self._deleted.add([target], at_once=True)

    def find_deleted(self, names: Iterable[str]) -> None:
        """Schedule the removal of the deleted directories that a broker has renamed.

        Directories without a deletion note are not changed.
        """
        for name in names:
            if name.endswith(DELETED_FOLDER_SUFFIX):
                folder = self.data_dir / name
                if is_deleted_folder(name) and self._filesystem.exists(folder / DELETION_NOTE):
                    self._deleted.add([folder], at_once=True)
                    if (partition := partition_of(name.rpartition(".")[0])) is not None:
                        self.deleted_logs.add(partition)
                else:
                    logger.warning("%s has no deletion note of a broker; not removing it", folder)
