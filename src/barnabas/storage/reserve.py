"""Room on the disk that is kept free by a file without content of its own, `.reserve`.

When the disk is full the file is deleted, so that a broker can start and topics can be deleted. It is made again when
there is room.
"""

from __future__ import annotations

import logging
from pathlib import Path

from barnabas.storage.file_names import RESERVE
from barnabas.storage.filesystem import FileSystem

logger = logging.getLogger(__name__)

RESERVE_BYTES = 8 * 1024 * 1024
"""What the tree needs to write the states of ten thousand partitions."""

_SHARE = 16
"""The reserve takes at most this part of the free room."""


class Reserve:
    """The reserve in a data folder. Not safe to use from several threads at once."""

    def __init__(self, filesystem: FileSystem, folder: Path) -> None:
        self._filesystem = filesystem
        self._path = folder / RESERVE

    def make(self) -> None:
        """Make the reserve or let it grow, if there is plenty of room; do without it if the disk refuses."""
        try:
            size = self._filesystem.size(self._path) if self._filesystem.exists(self._path) else 0
            wanted = min(RESERVE_BYTES, (size + self._filesystem.free_bytes(self._path.parent)) // _SHARE)
            if wanted > size:
                self._grow(wanted)
        except OSError as error:
            logger.warning("%s: cannot be made: %s", self._path, error)

    def give_up_if_short(self) -> None:
        """Free the room if there is hardly any other."""
        try:
            files = self._filesystem
            if files.free_bytes(self._path.parent) < RESERVE_BYTES // 2 and files.exists(self._path):
                files.unlink(self._path)
                logger.warning("%s is given up, since the disk is full; make room", self._path)
        except OSError as error:
            logger.warning("%s: cannot be given up: %s", self._path, error)

    def _grow(self, size: int) -> None:
        file = self._filesystem.open(self._path, create=True)
        try:
            self._filesystem.allocate(file, size)
        except OSError:
            self._filesystem.unlink(self._path)
            raise
        finally:
            file.close()
