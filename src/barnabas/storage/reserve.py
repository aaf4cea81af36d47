"""The reserve file `.reserve`: an allocated file without content that reserves disk space.

When the disk is nearly full, the broker deletes this file. With the freed space, the broker can start and
administrators can delete topics. When enough space is free again, the broker creates the file again.
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
"""The size of the reserve in bytes. The metadata store may need this space for the states of 10,000 partitions."""

_SHARE = 16
"""The reserve uses at most 1/16 of the free space."""

_TOPIC_BYTES, _PARTITION_BYTES = 64 * 1024, 16 * 1024
"""The maximum space for a new topic, and for each of its partitions, in bytes.

It includes directories, files and nodes of the metadata store.
"""


class Reserve:
    """The reserve file of a data directory. Not thread-safe."""

    def __init__(self, filesystem: FileSystem, folder: Path) -> None:
        self._filesystem = filesystem
        self._path = folder / RESERVE

    def make(self) -> None:
        """Create or enlarge the reserve file if enough space is free. Errors are logged."""
        try:
            size = self._filesystem.size(self._path) if self._filesystem.exists(self._path) else 0
            wanted = min(RESERVE_BYTES, (size + self._filesystem.free_bytes(self._path.parent)) // _SHARE)
            if wanted > size:
                self._grow(wanted)
        except OSError as error:
            logger.warning("cannot create reserve file %s: %s; retrying later", self._path, error)

    def give_up_if_short(self) -> None:
        """Delete the reserve file if the disk is nearly full."""
        try:
            files = self._filesystem
            if files.free_bytes(self._path.parent) < RESERVE_BYTES // 2 and files.exists(self._path):
                files.unlink(self._path)
                extra = event(LogEvent.DISK_SHORT)
                logger.warning(
                    "the disk is nearly full; deleted the reserve file %s; free disk space", self._path, extra=extra
                )
        except OSError as error:
            logger.warning("the disk is nearly full; cannot delete reserve file %s: %s", self._path, error)

    def check_room(self, partition_count: int) -> None:
        """Check that the disk has space for new partitions of a topic, in addition to the reserve.

        On a full disk, the metadata store could write only a part of a topic, and would have no space to delete it.

        :param partition_count: the number of new partitions.
        :raises StorageError: the disk is full.
        """
        folder = self._path.parent
        needed = _TOPIC_BYTES + partition_count * _PARTITION_BYTES
        try:
            free = self._filesystem.free_bytes(folder)
        except OSError as error:
            raise StorageError(f"cannot read the free disk space of {folder}: {error}") from error
        if free < needed:
            raise StorageError(
                f"the disk is full: {folder} has {free} bytes free, and {partition_count} new partitions need {needed};"
                " free disk space"
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
