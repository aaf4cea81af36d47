"""Deleted files and folders, under names that no start looks for, until their delay is over.

The delay (Kafka's `file.delete.delay.ms`) lets an administrator save the files of a wrongly deleted topic. Readers need
none, since their files stay open. Any thread may use it.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

from barnabas.clock import Clock
from barnabas.storage.file_names import DELETED_FOLDER_SUFFIX
from barnabas.storage.filesystem import FileSystem


class DeletedFiles:
    """The deleted files and folders, and when each is removed from the disk."""

    def __init__(self, filesystem: FileSystem, clock: Clock, delay_s: float) -> None:
        self._filesystem = filesystem
        self._clock = clock
        self._delay_s = delay_s
        self._waiting: list[tuple[float, Path]] = []
        self._lock = threading.Lock()

    def set_delay(self, delay_s: float) -> None:
        """Use another delay for files that are added from now on."""
        self._delay_s = delay_s

    def add(self, paths: Sequence[Path], *, at_once: bool = False) -> None:
        """Remove files or folders when the delay is over.

        :param at_once: the next purge removes them, since they were deleted long ago.
        """
        due = self._clock.monotonic() + (0 if at_once else self._delay_s)
        with self._lock:
            self._waiting += [(due, path) for path in paths]

    @property
    def has_due_folders(self) -> bool:
        """Whether the next purge removes a log's folder."""
        now = self._clock.monotonic()
        with self._lock:
            return any(time <= now and path.name.endswith(DELETED_FOLDER_SUFFIX) for time, path in self._waiting)

    def purge(self) -> None:
        """Remove all files and folders that are due. One that cannot be removed is tried again after the delay.

        :raises OSError: one of them cannot be removed; the others are.
        """
        now = self._clock.monotonic()
        with self._lock:
            due = [path for time, path in self._waiting if time <= now]
            self._waiting = [(time, path) for time, path in self._waiting if time > now]
        failure: OSError | None = None
        for path in due:
            try:
                self._remove(path)
            except FileNotFoundError:
                continue  # the folder of its log was removed before
            except OSError as error:
                failure = failure or error
                self.add([path])
        if failure is not None:
            raise failure

    def _remove(self, path: Path) -> None:
        if path.name.endswith(DELETED_FOLDER_SUFFIX):
            self._filesystem.remove_folder(path)
        else:
            self._filesystem.unlink(path)
