"""Schedules the flushes of a log whose topic has `flush.messages` or `flush.ms` (paper, 3.1).

A flush becomes due when `flush.messages` records are unflushed, `flush.ms` after the first unflushed record, or
immediately on request. It runs on a separate thread. One flush runs at a time. All requests that arrive during a flush
share the next flush (group commit). A failed flush is never retried: the log goes offline. The exception is a lack of
file descriptors, which loses no data. The log then stays online, and the flusher retries after `RETRY_S`.

Kafka's log also counts records since the last flush, but flushes on the thread that appends, and checks `flush.ms` only
every few seconds.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from barnabas.broker.disk_work import DiskQueue
from barnabas.errors import BarnabasError, StorageError
from barnabas.storage.log_config import NEVER

if TYPE_CHECKING:
    from barnabas.storage.log import Log

log = logging.getLogger(__name__)

OnFlushed = Callable[[BarnabasError | None], None]
"""Called on the event loop's thread after each flush, with the error if the flush failed, or None."""

RETRY_S = 1.0

_TIMER_S_MAX = 365 * 24 * 3600.0
"""The maximum delay of a timer in an event loop, in seconds."""


class Flusher:
    """Flushes one log. Used from the event loop's thread only."""

    def __init__(self, log: Log, on_flushed: OnFlushed, disk: DiskQueue) -> None:
        self._log = log
        self._disk = disk
        self._on_flushed = on_flushed
        self._covered_offset = log.recovery_point
        """All records below this offset are flushed, or the flush in progress covers them."""
        self._running: asyncio.Task[None] | None = None
        self._again = False
        self._timer: asyncio.TimerHandle | None = None
        self._stopped = False

    def note_append(self) -> None:
        """Schedule a flush if one is due. Called after each append, and after a change of settings."""
        unflushed = self._log.log_end_offset - self._covered_offset
        if unflushed >= self._log.config.flush_messages:
            self.flush_soon()
        elif unflushed and not self._timer:
            self._start_timer()

    def note_truncation(self) -> None:
        """Lower the covered offset after a truncation, because new records at the truncated offsets are not flushed."""
        self._covered_offset = min(self._covered_offset, self._log.log_end_offset)

    def must_cover(self, end_offset: int) -> bool:
        """Return whether the acknowledgement of unflushed records below an offset must wait for a flush.

        The acknowledgement must wait if the number of unflushed records makes a flush due, or if the flush in progress
        covers the records.
        """
        unflushed = end_offset - self._covered_offset
        return unflushed <= 0 or unflushed >= self._log.config.flush_messages

    def flush_soon(self) -> None:
        """Start a flush now, or after the flush in progress."""
        self._stop_timer()
        if self._running:
            self._again = True
        elif not self._stopped:
            self._running = asyncio.get_running_loop().create_task(self._flush())

    def restart_timer(self) -> None:
        """Restart the timer of `flush.ms` after a change of the setting."""
        self._stop_timer()
        self.note_append()

    def stop(self) -> None:
        """Stop flushing. `on_flushed` is not called for a flush in progress."""
        self._stopped = True
        self._stop_timer()

    async def _flush(self) -> None:
        error = None
        self._again = True
        try:
            while self._again and not error and not self._stopped:
                self._again = False
                self._covered_offset = self._log.log_end_offset
                error = await self._flush_once()
                if not self._stopped:
                    self._on_flushed(error)
        finally:
            self._running = None
        if self._stopped:
            return
        if not error:
            self.note_append()
        elif not self._log.is_offline:
            self._covered_offset = self._log.recovery_point
            self._timer = asyncio.get_running_loop().call_later(RETRY_S, self.flush_soon)

    async def _flush_once(self) -> BarnabasError | None:
        try:
            await self._disk.do(self._log.flush)
        except BarnabasError as error:
            return error
        except Exception as error:
            # Return any error, because the waiting requests need a result.
            log.exception("%s: a flush failed", self._log.partition)
            return StorageError(f"{self._log.partition}: flush failed: {error!r}")
        return None

    def _start_timer(self) -> None:
        flush_ms = self._log.config.flush_ms
        if flush_ms != NEVER and not self._stopped:
            delay_s = min(flush_ms / 1000, _TIMER_S_MAX)
            self._timer = asyncio.get_running_loop().call_later(delay_s, self.flush_soon)

    def _stop_timer(self) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None
