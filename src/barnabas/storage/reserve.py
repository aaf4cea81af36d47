"""Room on the disk that a file without content of its own keeps free: `.reserve`.

When the disk is full, the broker deletes the file, so that it can start and topics can be deleted. It makes the file
again when there is room.
"""

from __future__ import annotations

import logging
from pathlib import Path

from barnabas.errors import StorageError
from barnabas.log_lines import LogEvent, event
from barnabas.storage.file_names import RESERVE
from barnabas.storage.filesystem import FileSystem

logger = logging.getLogger(__name__)

RESERVE_BYTES = 8 * 1024 * 1024
"""What the tree needs to write the states of ten thousand partitions."""

_SHARE = 16
"""The reserve takes at most this part of the free room."""

_TOPIC_BYTES, _PARTITION_BYTES = 64 * 1024, 16 * 1024
"""A new topic and each of its partitions need this room at most, for their folders, files and nodes in the tree."""


class Reserve:
    """The reserve in a data folder. Not safe to use from several threads at once."""

    def __init__(self, filesystem: FileSystem, folder: Path) -> None:
        self._filesystem = filesystem
        self._path = folder / RESERVE

    def make(self) -> None:
        """Make the reserve or let it grow, if there is plenty of room. A disk that refuses is logged."""
        try:
            size = self._filesystem.size(self._path) if self._filesystem.exists(self._path) else 0
            wanted = min(RESERVE_BYTES, (size + self._filesystem.free_bytes(self._path.parent)) // _SHARE)
            if wanted > size:
                self._grow(wanted)
        except OSError as error:
            logger.warning("%s: cannot be made: %s", self._path, error)

    def give_up_if_short(self) -> None:
        """Free the room if the disk is nearly full."""
        try:
            files = self._filesystem
            if files.free_bytes(self._path.parent) < RESERVE_BYTES // 2 and files.exists(self._path):
                files.unlink(self._path)
                extra = event(LogEvent.DISK_SHORT)
                logger.warning("%s is given up, since the disk is full; make room", self._path, extra=extra)
        except OSError as error:
            logger.warning("%s: cannot be given up: %s", self._path, error)

    def check_room(self, partition_count: int) -> None:
        """Check that the disk has room for so many new partitions of a topic, beside the reserve.

        On a full disk a topic could be written to the tree in part, and the tree would have no room to delete it.

        :raises StorageError: the disk is full.
        """
        folder = self._path.parent
        needed = _TOPIC_BYTES + partition_count * _PARTITION_BYTES
        try:
            free = self._filesystem.free_bytes(folder)
        except OSError as error:
            raise StorageError(f"cannot ask for the free room of {folder}: {error}") from error
        if free < needed:
            raise StorageError(
                f"the disk is full: {folder} has {free} bytes free, and {partition_count} new partitions need {needed};"
                " make room"
            )

    def _grow(self, size: int) -> None:
        file = self._filesystem.open(self._path, create=True)
        try:
            self._filesystem.allocate(file, size)
        except OSError:
            self._filesystem.unlink(self._path)
            raise
        finally:
            file.close()
