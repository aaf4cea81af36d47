"""Whether a log can be used: not after it was closed, nor after the disk failed.

Invariants. A shortage is not a failure. A shortage of file descriptors or memory passes; while the disk is full, writes
fail and reads go on. Where a shortage may have done harm, the caller says so, and the log goes offline. An offline log
stays offline until it is opened again.

Threads. Any thread may ask.

Errors. ClosedError after the end, StorageError while the log is offline.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from barnabas.errors import BarnabasError, ClosedError, StorageError
from barnabas.log_lines import about
from barnabas.model import TopicPartition
from barnabas.storage.filesystem import FilePath, is_shortage

logger = logging.getLogger(__name__)


class LogHealth:
    """The health of one log.

    :param offline: the reason of a log that is offline from the beginning; it was logged before.
    """

    __slots__ = ("_folder", "_is_short", "_offline", "_partition", "closed")

    def __init__(self, folder: FilePath, partition: TopicPartition, offline: str | None = None) -> None:
        self._folder = str(folder)
        self._partition = partition
        self._offline = offline
        self._is_short = False
        self.closed = False

    @property
    def is_offline(self) -> bool:
        """Whether the disk failed; the log must be opened again, which recovers it."""
        return self._offline is not None

    def check(self) -> None:
        """:raises ClosedError, StorageError: the log cannot be used."""
        if self.closed:
            raise ClosedError(f"the log {self._partition} is closed")
        if self._offline is not None:
            raise StorageError(f"the log {self._partition} is offline: {self._offline}")

    def note_success(self) -> None:
        """Note a successful write: a shortage has passed."""
        if self._is_short:
            self._is_short = False
            logger.warning("%s: writes succeed again", self._folder, extra=about(self._partition))

    def refused(self, action: str, error: OSError) -> StorageError:
        """Note a shortage that stopped an action and changed nothing; return the error to raise.

        It is logged once until a write succeeds again: log lines must not fill the disk.
        """
        if not self._is_short:
            self._is_short = True
            message = "%s: %s failed: %s; the next request tries again"
            logger.error(message, self._folder, action, error, extra=about(self._partition))
        return StorageError(f"{self._partition}: {action} failed: {error}; try again later")

    def go_offline(self, action: str, error: BaseException) -> StorageError:
        """Take the log offline, because the content of its files is unknown; return the error to raise."""
        self._offline = f"{action} failed: {error}"
        unforeseen = not isinstance(error, OSError)
        message, extra = "%s: %s; the log is offline", about(self._partition)
        logger.critical(message, self._folder, self._offline, exc_info=unforeseen, extra=extra)
        return StorageError(f"the log {self._partition} is offline: {self._offline}")

    def put_offline(self, reason: str) -> None:
        """Take the log offline for a reason that was logged already."""
        if self._offline is None:
            self._offline = reason

    def failed(self, action: str, error: OSError, *, even_if_short: bool) -> StorageError:
        """Take the log offline, because the disk refused an action, unless that changed nothing; return the error to
        raise. Actions of every request call this instead of `offline_on_error`, which is slower.

        :param even_if_short: also if room, open files or memory were short.
        """
        if is_shortage(error) and not even_if_short:
            return self.refused(action, error)
        return self.go_offline(action, error)

    @contextmanager
    def offline_on_error(
        self, action: str, *, even_if_short: bool = True, even_if_unforeseen: bool = False
    ) -> Iterator[None]:
        """Take the log offline if the disk refuses an action in the block.

        :param even_if_short: also if room, open files or memory were short.
        :param even_if_unforeseen: also after any other exception, except a BarnabasError: how far the action came is
            unknown then.
        :raises StorageError: the disk refused.
        """
        try:
            yield
        except OSError as error:
            raise self.failed(action, error, even_if_short=even_if_short) from error
        except Exception as error:
            if isinstance(error, BarnabasError) or not even_if_unforeseen:
                raise
            raise self.go_offline(action, error) from error
