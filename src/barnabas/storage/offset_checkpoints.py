"""The four files of a data folder with an offset of each log: recovery point, log start, high watermark, compacted end.

Invariants. Each file is replaced as a whole and durably. A damaged file is renamed and counts as empty; recovery then
uses the files of each log.

Threads. Any thread may use it.

Errors. StorageError if a file cannot be stored; it is the old one then. OSError if a file cannot be read.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path

from barnabas.errors import StorageError
from barnabas.model import TopicPartition
from barnabas.storage.checkpoints import StoredOffsets, decode_offsets, encode_offsets
from barnabas.storage.damaged_files import rename_damaged
from barnabas.storage.file_names import (
    CLEANER_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
)
from barnabas.storage.filesystem import FileSystem, read_file, replace_file

logger = logging.getLogger(__name__)

_NAMES = (RECOVERY_POINT_CHECKPOINT, LOG_START_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT)
_ALL_NAMES = (*_NAMES, CLEANER_CHECKPOINT)


class OffsetCheckpoints:
    """The stored offsets of the logs of a data folder."""

    def __init__(self, filesystem: FileSystem, folder: Path) -> None:
        self._filesystem = filesystem
        self._folder = folder
        self._lock = threading.Lock()
        self._stored: dict[str, dict[TopicPartition, int]] = {name: {} for name in _ALL_NAMES}

    def read(self, partitions: Iterable[TopicPartition] = ()) -> None:
        """Read the files.

        :param partitions: the logs in the folder.
        :raises OSError: the disk refuses.
        """
        known = {each: each for each in partitions}
        for name in _ALL_NAMES:
            path = self._folder / name
            try:
                self._stored[name] = decode_offsets(read_file(self._filesystem, path), known)
            except FileNotFoundError:
                continue
            except ValueError as error:
                renamed = rename_damaged(self._filesystem, path)
                logger.warning("%s is damaged, renamed to %s, and not believed: %s", path, renamed.name, error)

    def of(self, partition: TopicPartition) -> StoredOffsets:
        """Return the stored offsets of one log."""
        with self._lock:
            return StoredOffsets(*(self._stored[name].get(partition, 0) for name in _NAMES))

    def first_dirty_offset(self, partition: TopicPartition) -> int:
        """Return the offset up to which a log is compacted; 0 if none is stored."""
        with self._lock:
            return self._stored[CLEANER_CHECKPOINT].get(partition, 0)

    def store(self, name: str, offsets: Callable[[], Mapping[TopicPartition, int]]) -> None:
        """Store an offset of each log, durably; an offset of 0 may be left out.

        :param offsets: returns them; called under the lock, so that older offsets never replace newer ones.
        :raises StorageError: the disk refuses; the file is the old one.
        """
        with self._lock:
            current = {partition: offset for partition, offset in offsets().items() if offset}
            if self._stored[name] != current:
                self._replace(name, current)

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """Remove some logs from the files.

        :raises StorageError: the disk refuses.
        """
        with self._lock:
            for name, stored in list(self._stored.items()):
                others = {each: offset for each, offset in stored.items() if each not in partitions}
                if len(others) < len(stored):
                    self._replace(name, others)

    def _replace(self, name: str, offsets: dict[TopicPartition, int]) -> None:
        try:
            replace_file(self._filesystem, self._folder / name, encode_offsets(offsets), durable=True)
        except OSError as error:
            raise StorageError(f"{self._folder / name} cannot be stored: {error}") from error
        self._stored[name] = offsets
