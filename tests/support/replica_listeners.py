"""Listeners that record the events of a replica."""

from __future__ import annotations

import asyncio
from typing import Generic, TypeVar

E = TypeVar("E")

READS_CHANGED = "reads changed"
FETCH_AWAITED = "fetch awaited"
OFFSETS_MOVED = "offsets moved"
LEADERSHIP_LOST = "leadership lost"


class _Recorded(Generic[E]):
    def __init__(self) -> None:
        self.events: list[E] = []
        self._returned = 0
        self._recorded = asyncio.Event()

    async def next(self) -> E:
        """Return the first event that was not returned; wait for it if need be."""
        while self._returned == len(self.events):
            self._recorded.clear()
            await self._recorded.wait()
        self._returned += 1
        return self.events[self._returned - 1]

    def _record(self, event: E) -> None:
        self.events.append(event)
        self._recorded.set()


class RecordedReads(_Recorded[int | str]):
    """Records as `ReadListener`: each size that became readable, or READS_CHANGED."""

    def on_readable(self, size: int) -> None:
        self._record(size)

    def on_reads_changed(self) -> None:
        self._record(READS_CHANGED)


class RecordedAppends(_Recorded[tuple[int, bool] | str]):
    """Records as `LogEndListener`: each size with its urgency, or another of the constants of this module."""

    def on_appended(self, size: int, *, is_urgent: bool) -> None:
        self._record((size, is_urgent))

    def on_fetch_awaited(self) -> None:
        self._record(FETCH_AWAITED)

    def on_offsets_moved(self) -> None:
        self._record(OFFSETS_MOVED)

    def on_leadership_lost(self) -> None:
        self._record(LEADERSHIP_LOST)
