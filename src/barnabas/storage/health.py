"""Whether a log can be used: not after it was closed, nor after the disk refused something.

A shortage of file descriptors or memory is not the disk's fault; the caller says whether it may have done harm.
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
    """The health of one log."""

    __slots__ = ("_folder", "_offline", "_partition", "closed")

    def __init__(self, folder: Path, partition: TopicPartition) -> None:
        self._folder = folder
        self._partition = partition
        self._offline: str | None = None
        self.closed = False

    @property
    def is_offline(self) -> bool:
        """Whether the disk refused; such a log must be opened anew, which recovers it."""
        return self._offline is not None

    def check(self) -> None:
        """:raises ClosedError, StorageError: the log cannot be used."""
        if self.closed:
            raise ClosedError(f"the log {self._partition} is closed")
        if self._offline is not None:
            raise StorageError(f"the log {self._partition} is offline: {self._offline}")

    @contextmanager
    def offline_on_error(self, action: str, *, even_if_short: bool = True) -> Iterator[None]:
        """Take the log offline if the disk refuses what is done inside.

        :param even_if_short: also if the system was short of open files or memory.
        :raises StorageError: it did.
        """
        try:
            yield
        except OSError as error:
            if is_shortage(error) and not even_if_short:
                raise StorageError(f"{self._partition}: {action} failed: {error}; try again") from error
            raise self._go_offline(action, error) from error

    def _go_offline(self, action: str, error: OSError) -> StorageError:
        self._offline = f"{action} failed: {error}"
        logger.critical("%s: %s; the log is offline", self._folder, self._offline)
        return StorageError(f"the log {self._partition} is offline: {self._offline}")
