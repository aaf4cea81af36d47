"""A fetch that waits for records: the purgatory of consumers, followers and every later kind of reader.

A fetch waits until its sources bring `min_bytes`, until a source reports that its reads have changed (leadership lost,
topic deleted, log truncated), until `max_wait_ms` have passed, or until the pipeline completes it (no memory for
waiting requests, or another request behind it). The handler then reads again and responds. A connection that closes,
as all do when the broker stops, cancels the wait.

Invariant: no source knows a fetch that does not wait. What a waiting fetch keeps counts as the `kept_bytes`
of its `LaterReply`.

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
"""The sources with which a fetch registers between two pauses."""


class Source(Protocol):
    """Records that a fetch waits for: those of a replica, or of a follower's session."""

    def watch(self, listener: ReadListener) -> None:
        """Pass the events of reads to this listener from now on."""

    def unwatch(self, listener: ReadListener) -> None:
        """Pass no more events to this listener."""


class DelayedFetch:
    """One fetch that waits; the `ReadListener` of its sources.

    :param sources: what it waits for. The sequence is kept, and must not change.
    :param min_bytes: completes the fetch.
    :param is_urgent: whether the handler responds in the round of the event loop that completes the fetch, and not in
        its turn (`CooperativeScheduler.wake`).
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
        """Wait for so many bytes from now on, whatever has come."""
        self._missing = min_bytes

    def on_readable(self, size: int) -> None:
        """Count bytes that a source has brought."""
        self._missing -= size
        if self._missing <= 0:
            self.complete()

    def on_reads_changed(self) -> None:
        """Complete the fetch: another read may find an error, or more than was counted."""
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
        """Register with the sources, with pauses; `wait` must follow.

        :param check: called when all sources are watched. Other requests may have had their turn since the read, so it
            compares the sources with the read, and calls `complete` or `expect`, or returns steps that do.
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
        """Return when the fetch is complete or its time is up; the sources are left then."""
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
