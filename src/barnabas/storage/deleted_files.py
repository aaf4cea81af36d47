"""Deleted files and directories.

They are renamed, so that a start ignores them, and are removed from the disk after a delay.

During the delay (Kafka's `file.delete.delay.ms`), an administrator can recover the files of a topic that was deleted by
mistake. Readers do not need the delay, because their files remain open. Any thread may use this module.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

from barnabas.clock import Clock
from barnabas.storage.file_names import DELETED_FOLDER_SUFFIX
from barnabas.storage.filesystem import FileSystem


class DeletedFiles:
    """The deleted files and directories, with the time of their removal from the disk."""

    def __init__(self, filesystem: FileSystem, clock: Clock, delay_s: float) -> None:
        self._filesystem = filesystem
        self._clock = clock
        self._delay_s = delay_s
        self._waiting: list[tuple[float, Path]] = []
        self._lock = threading.Lock()

    def set_delay(self, delay_s: float) -> None:
        """Set the delay for files that are added later."""
        self._delay_s = delay_s

    def add(self, paths: Sequence[Path], *, at_once: bool = False) -> None:
        """Schedule the removal of files or directories after the delay.

        :param at_once: True if the next purge must remove the files, because they were deleted long ago.
        """
        due = self._clock.monotonic() + (0 if at_once else self._delay_s)
        with self._lock:
            self._waiting += [(due, path) for path in paths]

    @property
    def has_due_folders(self) -> bool:
        """True if the next purge removes a partition directory."""
        now = self._clock.monotonic()
        with self._lock:
            return any(time <= now and path.name.endswith(DELETED_FOLDER_SUFFIX) for time, path in self._waiting)

    def purge(self) -> None:
        """Remove all files and directories whose delay has passed. A failed removal is retried after another delay.

        :raises OSError: a file or directory could not be removed. The others were removed.
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
                continue  # the file was removed before, together with its partition directory
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
