"""Moments that a fault waits for: when something is decided or acknowledged at the first partition, and is not yet
everywhere known."""

from __future__ import annotations

import asyncio
import contextlib

from barnabas.coordination.values import PartitionState
from barnabas.model import TopicPartition
from tests.simulation.invariants import Invariants


class Moments:
    """Tells when another epoch is begun, a replica is in sync again, or no longer, and a high watermark has moved."""

    def __init__(self, invariants: Invariants) -> None:
        self._awaited: dict[str, asyncio.Event] = {}
        invariants.on_state.append(self._state_written)
        invariants.on_advance.append(self._advanced)
        self._first = invariants.first

    async def next(self, moment: str, patience_s: float) -> None:
        """Return at the next of these, at the latest when so much time has passed."""
        event = self._awaited.setdefault(moment, asyncio.Event())
        event.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience_s):
                await event.wait()

    def _state_written(self, place: TopicPartition, before: PartitionState, after: PartitionState) -> None:
        if place != self._first():
            return
        if after.leader_epoch > before.leader_epoch and after.leader >= 0:
            self._tell("claim")
        if set(after.isr) - set(before.isr):
            self._tell("join")
        if set(before.isr) - set(after.isr):
            self._tell("leave")

    def _advanced(self, place: TopicPartition) -> None:
        if place == self._first():
            self._tell("commit")

    def _tell(self, moment: str) -> None:
        if moment in self._awaited:
            self._awaited[moment].set()
