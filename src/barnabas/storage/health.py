"""Whether a log can be used: not after it was closed, nor after the disk failed it.

A shortage is not a failure: of file descriptors or memory, it passes; of room on the disk, writes are refused until
there is some again, and reads go on. The caller says whether a shortage may have done harm all the same.

May be asked from any thread.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from barnabas.errors import ClosedError, StorageError
from barnabas.model import TopicPartition
from barnabas.storage.filesystem import is_shortage

logger = logging.getLogger(__name__)


class LogHealth:
    """The health of one log.

    :param offline: why it is offline from the beginning, if it is; whoever found out has told.
    """

    __slots__ = ("_folder", "_is_short", "_offline", "_partition", "closed")

    def __init__(self, folder: Path, partition: TopicPartition, offline: str | None = None) -> None:
        self._folder = folder
        self._partition = partition
        self._offline = offline
        self._is_short = False
        self.closed = False

    @property
    def is_offline(self) -> bool:
        """Whether the disk failed the log; it must be opened anew, which recovers it."""
        return self._offline is not None

    def check(self) -> None:
        """:raises ClosedError, StorageError: the log cannot be used."""
        if self.closed:
            raise ClosedError(f"the log {self._partition} is closed")
        if self._offline is not None:
            raise StorageError(f"the log {self._partition} is offline: {self._offline}")

    def note_success(self) -> None:
        """Something was written: a shortage, if there was one, has passed."""
        if self._is_short:
            self._is_short = False
            logger.warning("%s: writes succeed again", self._folder)

    def refused(self, action: str, error: OSError) -> StorageError:
        """Note that a shortage kept something from being done, which changed nothing; return the error to raise.

        Told once until something succeeds again: a full disk would fill the log as well.
        """
        if not self._is_short:
            self._is_short = True
            logger.error("%s: %s failed: %s; it will be tried again when it is asked for", self._folder, action, error)
        return StorageError(f"{self._partition}: {action} failed: {error}; try again later")

    def go_offline(self, action: str, error: BaseException) -> StorageError:
        """Take the log out of use, after it can no longer be said what it holds; return the error to raise."""
        self._offline = f"{action} failed: {error}"
        unforeseen = not isinstance(error, OSError)
        logger.critical("%s: %s; the log is offline", self._folder, self._offline, exc_info=unforeseen)
        return StorageError(f"the log {self._partition} is offline: {self._offline}")

    @contextmanager
    def offline_on_error(self, action: str, *, even_if_short: bool = True) -> Iterator[None]:
        """Take the log offline if the disk refuses what is done inside.

        :param even_if_short: also if it was short of room, or the system of open files or memory.
        :raises StorageError: it did.
        """
        try:
            yield
        except OSError as error:
            if is_shortage(error) and not even_if_short:
                raise self.refused(action, error) from error
            raise self.go_offline(action, error) from error
