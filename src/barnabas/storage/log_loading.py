"""Opens the logs of a data folder: many side by side at a start, one at a time later.

Invariants. A log that cannot be loaded is offline: its files are not touched, and the other logs can be used.

Threads. Several threads may use it, each with partitions of its own.

Errors. DataFolderError if files or memory are short, since no log is to blame.
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
"""Many logs are loaded on a thread in groups of this size."""

_LOADING_THREADS = 4
"""With an empty page cache, a start waits for the disk most of the time, once for every file. More threads would only
wait for the interpreter."""
_ONE_BY_ONE_MAX = 1_000
"""Up to this number, logs are loaded one by one, since some may have much to check; more are loaded in groups."""


class Found(NamedTuple):
    """A loaded log and its topic id."""

    log: Log
    topic_id: uuid.UUID | None


class LogLoader:
    """Opens the logs of one data folder.

    :param config: of logs whose topic has no settings of its own.
    :param open_segments: the sealed segments, of all logs, that keep their files open after a read.
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
        self._on_truncated, self._on_rolled = on_truncated, on_rolled  # the same ones for all logs

    def load_all(
        self, partitions: list[TopicPartition], *, clean: bool, lost_memory: bool, configs: Mapping[str, LogConfig]
    ) -> list[Found | None]:
        """Load logs on several threads: waiting for the disk and checking batches do not need the interpreter.

        :param clean: the logs were closed cleanly.
        :param lost_memory: the machine has crashed since the logs were written to.
        :raises DataFolderError: files or memory are short: no log is to blame.
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
        """Load a log, or return one that is offline; None if there is none.

        :raises DataFolderError: files or memory are short: no log is to blame.
        """
        stored = self._checkpoints.of(partition)
        try:
            log = self.open(partition, config or self._config, stored, clean=clean, lost_memory=lost_memory)
            return Found(log, self._folders.topic_id_of(partition))
        except Exception as error:
            # An error in one log must not stop the others.
            cause = error.__cause__ or error
            if isinstance(cause, OSError) and is_shortage(cause) and cause.errno not in NO_ROOM:
                raise DataFolderError(f"{self._data_dir / str(partition)}: cannot be loaded: {error}") from error
            if isinstance(cause, NotADirectoryError):
                return None
            logger.debug("%s", partition, exc_info=True)
            reason = f"cannot be loaded: {error or error!r}; mend its folder or move it away, and start again"
            return Found(self.make_offline(partition, reason), self._topic_id_of_unusable(partition))

    def make_offline(self, partition: TopicPartition, reason: str, *, is_logged: bool = False) -> Log:
        """Return a log that is offline; its folder, if there is one, is not touched.

        :param is_logged: whether the reason is in the broker's log already.
        """
        folder = self._data_dir / str(partition)
        if not is_logged:
            message = "%s: %s; the partition is offline, and nothing in the folder is changed"
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
        """Open a log, or begin one.

        :param stored: its offsets in the checkpoints.
        :param clean: the log was closed cleanly.
        :param lost_memory: the machine has crashed since the log was written to.
        :param folder: of a copy, whose name is not the partition's.
        :raises StorageError: the disk refuses.
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
    """Do something to all items, `size` of them on a thread one after the other; return the results in their order."""
    groups = [items[start : start + size] for start in range(0, len(items), size)]
    return [done for group in threads.map(lambda group: [do(each) for each in group], groups) for done in group]
