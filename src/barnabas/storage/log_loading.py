"""Loads the logs of a data directory: all logs on several threads at start, later one log at a time.

Invariants. If a log cannot be loaded, it is offline. The loader does not change the files of an offline log, and the
other logs are usable.

Threads. Several threads may load logs at the same time, each with different partitions.

Errors. DataFolderError is raised if file descriptors or memory are short, because no single log is the cause.
"""

from __future__ import annotations

import logging
import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import NamedTuple, TypeVar

from barnabas.clock import Clock
from barnabas.errors import DataFolderError
from barnabas.log_lines import LogEvent, event, lines_about_partition
from barnabas.model import TopicPartition
from barnabas.storage.checkpoints import OffsetCheckpoints, StoredOffsets
from barnabas.storage.filesystem import FileSystem, is_shortage
from barnabas.storage.folder_identity import NO_ROOM
from barnabas.storage.log import Log
from barnabas.storage.log_config import LogConfig
from barnabas.storage.log_folders import LogFolders
from barnabas.storage.segment_list import OpenSegments

logger = logging.getLogger(__name__)

R = TypeVar("R")
T = TypeVar("T")

_AT_ONCE = 16
"""The number of logs in a task of a loading thread, if there are many logs."""

_LOADING_THREADS = 4
"""The number of loading threads.

With an empty page cache, a start mostly waits for the disk, so several threads are faster. More threads than this would
wait for the interpreter lock.
"""
_ONE_BY_ONE_MAX = 1_000
"""Up to this number of logs, each log is a separate task, because recovery may take long for some logs."""


class Found(NamedTuple):
    """A loaded log and its topic id."""

    log: Log
    topic_id: uuid.UUID | None


class LogLoader:
    """Opens the logs of one data directory.

    :param config: the settings of logs whose topics have no settings of their own.
    :param open_segments: limits the number of sealed segments with open files, over all logs.
    :param on_truncated: see `Log`.
    :param on_rolled: see `Log`.
    """

    def __init__(
        self,
        data_dir: Path,
        config: LogConfig,
        clock: Clock,
        filesystem: FileSystem,
        folders: LogFolders,
        checkpoints: OffsetCheckpoints,
        open_segments: OpenSegments,
        new_threads: Callable[[int, str], Executor],
        on_truncated: Callable[[], None],
        on_rolled: Callable[[], None],
    ) -> None:
        self._data_dir = data_dir
        self._config = config
        self._clock = clock
        self._filesystem = filesystem
        self._folders = folders
        self._checkpoints = checkpoints
        self._open_segments = open_segments
        self._new_threads = new_threads
        self._on_truncated, self._on_rolled = on_truncated, on_rolled  # bound once for all logs

    def load_all(
        self, partitions: list[TopicPartition], *, clean: bool, lost_memory: bool, configs: Mapping[str, LogConfig]
    ) -> list[Found | None]:
        """Load logs on several threads. Disk reads and CRC checks do not hold the interpreter lock.

        :param clean: True if the logs were closed cleanly.
        :param lost_memory: True if the machine has crashed since the last write to the logs.
        :raises DataFolderError: file descriptors or memory are short; no single log is the cause.
        """
        thread_count = max(_LOADING_THREADS, os.cpu_count() or 1)
        at_once = 1 if len(partitions) <= _ONE_BY_ONE_MAX else _AT_ONCE

        def load(each: TopicPartition) -> Found | None:
            return self.load(each, clean=clean, lost_memory=lost_memory, config=configs.get(each.topic))

        with self._new_threads(thread_count, "load") as threads:
            return map_in_chunks(threads, load, partitions, at_once)

    @lines_about_partition
    def load(
        self, partition: TopicPartition, *, clean: bool, lost_memory: bool, config: LogConfig | None
    ) -> Found | None:
        """Load a log. If this fails, return an offline log. Return None if the path is not a directory.

        :raises DataFolderError: file descriptors or memory are short; no single log is the cause.
        """
        stored = self._checkpoints.of(partition)
        try:
            log = self.open(partition, config or self._config, stored, clean=clean, lost_memory=lost_memory)
            return Found(log, self._folders.topic_id_of(partition))
        except Exception as error:
            # An error in one log must not prevent the loading of other logs.
            cause = error.__cause__ or error
            if isinstance(cause, OSError) and is_shortage(cause) and cause.errno not in NO_ROOM:
                raise DataFolderError(f"{self._data_dir / str(partition)}: cannot load the log: {error}") from error
            if isinstance(cause, NotADirectoryError):
                return None
            logger.debug("%s", partition, exc_info=True)
            reason = (
                f"cannot load the log: {error or error!r}; repair the directory or move it away, and restart the broker"
            )
            return Found(self.make_offline(partition, reason), self._topic_id_of_unusable(partition))

    def make_offline(self, partition: TopicPartition, reason: str, *, is_logged: bool = False) -> Log:
        """Return an offline log. Its partition directory, if it exists, is not changed.

        :param is_logged: True if the broker has logged the reason already.
        """
        folder = self._data_dir / str(partition)
        if not is_logged:
            message = "%s: %s; the partition is offline, and its files are not changed"
            logger.error(message, folder, reason, extra=event(LogEvent.LOG_UNUSABLE, partition))
        stored = self._checkpoints.of(partition)
        first_dirty = self._checkpoints.first_dirty_offset(partition)
        return Log.offline(folder, partition, self._config, self._clock, self._filesystem, stored, reason, first_dirty)

    def _topic_id_of_unusable(self, partition: TopicPartition) -> uuid.UUID | None:
        try:
            return self._folders.topic_id_of(partition)
        except OSError:
            return None

    def open(
        self,
        partition: TopicPartition,
        config: LogConfig,
        stored: StoredOffsets = StoredOffsets(),  # noqa: B008 - immutable
        *,
        clean: bool = False,
        lost_memory: bool = False,
        folder: Path | None = None,
    ) -> Log:
        """Open a log, or create it.

        :param stored: the offsets of the log in the checkpoints.
        :param clean: True if the log was closed cleanly.
        :param lost_memory: True if the machine has crashed since the last write to the log.
        :param folder: the directory of a future log; None for the partition directory.
        :raises StorageError: the file system returned an error.
        """
        return Log.open(
            folder or self._data_dir / str(partition),
            partition,
            config,
            self._clock,
            self._filesystem,
            clean=clean,
            lost_memory=lost_memory,
            recovery_point=stored.recovery_point,
            log_start_offset=stored.log_start_offset,
            high_watermark=stored.high_watermark,
            open_segments=self._open_segments,
            first_dirty_offset=self._checkpoints.first_dirty_offset(partition),
            on_truncated=self._on_truncated if folder is None else None,
            on_rolled=self._on_rolled if folder is None else None,
        )


def map_in_chunks(threads: Executor, do: Callable[[T], R], items: Sequence[T], size: int) -> list[R]:
    """Call `do` for all items, in tasks of `size` items; return the results in the order of the items."""
    groups = [items[start : start + size] for start in range(0, len(items), size)]
    return [done for group in threads.map(lambda group: [do(each) for each in group], groups) for done in group]
