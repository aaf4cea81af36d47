"""A fetch that waits in the purgatory for records, from a consumer, a follower, or any other reader.

A fetch waits until its sources have `min_bytes` of new records, or until `max_wait_ms` have passed. The wait also ends
if the result of a read changes for another reason (leadership lost, topic deleted, log truncated). The pipeline also
completes the fetch if waiting requests use too much memory, or if another request arrives on the same connection. The
handler then reads again and responds. The wait is cancelled when the connection closes, for example because the broker
stops.

Invariant: a source has no reference to a fetch that is no longer waiting. The memory of a waiting fetch counts as the
`kept_bytes` of its `LaterReply`.

Used from the event loop's thread only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from barnabas.broker.pipeline.call import Steps
    from barnabas.broker.pipeline.scheduler import CooperativeScheduler
    from barnabas.broker.replica_storage import ReadListener

SOURCES_PER_PAUSE = 256
"""The number of sources with which a fetch registers before it yields to the event loop."""


class Source(Protocol):
    """A source of records for a waiting fetch: a replica, or a follower's session."""

    def watch(self, listener: ReadListener) -> None:
        """Add a listener for reads."""

    def unwatch(self, listener: ReadListener) -> None:
        """Remove a listener for reads."""


class DelayedFetch:
    """One waiting fetch. It is the `ReadListener` of its sources.

    :param sources: the sources of the fetch. The caller must not change this sequence later.
    :param min_bytes: the number of new bytes that completes the fetch.
    :param max_wait_ms: the maximum wait in ms.
    :param is_urgent: True if the handler responds in the same iteration of the event loop in which the fetch completes.
        False if the scheduler decides when it responds (`CooperativeScheduler.wake`).
    """

    __slots__ = ("_completion", "_is_complete", "_is_urgent", "_max_wait_ms", "_missing", "_scheduler", "_sources")

    def __init__(
        self,
        scheduler: CooperativeScheduler,
        sources: Sequence[Source],
        min_bytes: int,
        max_wait_ms: int,
        *,
        is_urgent: bool = False,
    ) -> None:
        self._scheduler = scheduler
        self._sources = sources
        self._missing = min_bytes
        self._max_wait_ms = max_wait_ms
        self._is_urgent = is_urgent
        self._is_complete = False
        self._completion: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def expect(self, min_bytes: int) -> None:
        """Wait for this number of new bytes. Bytes that became readable earlier no longer count."""
        self._missing = min_bytes

    def on_readable(self, size: int) -> None:
        """Count the bytes that became readable in a source. Complete the fetch if there are enough."""
        self._missing -= size
        if self._missing <= 0:
            self.complete()

    def on_reads_changed(self) -> None:
        """Complete the fetch, because the next read may return an error, or more bytes than were counted."""
        self.complete()

    def complete(self) -> None:
        """End the wait."""
        if self._is_complete:
            return
        self._is_complete = True
        if not self._is_urgent:
            self._scheduler.wake(self._completion)
        elif not self._completion.done():
            self._completion.set_result(None)

    def begin(self, check: Callable[[], Steps[None] | None]) -> Steps[None]:
        """Register with the sources, in steps. The caller must await `wait` next.

        :param check: called when the fetch is registered with all sources. Other requests may have run since the first
            read. `check` compares the sources with the first read, and calls `complete` or `expect`, or returns steps
            that do so.
        """
        try:
            for number, source in enumerate(self._sources, start=1):
                source.watch(self)
                if not number % SOURCES_PER_PAUSE:
                    yield
            if (steps := check()) is not None:
                yield from steps
        except BaseException:
            self._leave_sources()
            raise

    async def wait(self) -> None:
        """Wait until the fetch is complete or `max_wait_ms` have passed, then unregister from the sources."""
        timer = asyncio.get_running_loop().call_later(self._max_wait_ms / 1000, self.complete)
        try:
            await self._completion
            for number, source in enumerate(self._sources, start=1):
                source.unwatch(self)
                if not number % SOURCES_PER_PAUSE:
                    await self._scheduler.pause()
        except BaseException:
            self._leave_sources()
            raise
        finally:
            timer.cancel()

    def _leave_sources(self) -> None:
        for source in self._sources:
            source.unwatch(self)
