"""One thing at a time for many clients, those first that have had least: start-time fair queueing.

Each client has a virtual time at which its last turn ended. The next turn begins there, or at the beginning of the turn
under way if that is later; it ends after the time that it is likely to take. The turn that ends first comes first. So a
client that asks for little goes before those that ask for much, however many these are, and waits for one turn at most.

Used from one event loop's thread only.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")


class Share:
    """What one client has had."""

    __slots__ = ("ended_s",)

    def __init__(self) -> None:
        self.ended_s = 0.0
        """When its last turn ended, in virtual time."""


class FairQueue:
    """Gives turns to clients, one client at a time.

    :param monotonic: measures how long turns take.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._line: list[tuple[float, int, asyncio.Future[None]]] = []
        self._numbers = itertools.count()
        self._is_taken = False
        self._virtual_s = 0.0

    async def take(self, share: Share, likely_s: float, work: Callable[[], Awaitable[T]]) -> T:
        """Do a piece of work when it is this client's turn; return what it returns, or raise what it raises.

        :param likely_s: how long it will probably take.
        """
        begin_s = max(self._virtual_s, share.ended_s)
        if self._is_taken:
            await self._wait(begin_s + likely_s)
        self._is_taken = True
        self._virtual_s = max(self._virtual_s, begin_s)
        began_s = self._monotonic()
        try:
            return await work()
        finally:
            share.ended_s = begin_s + self._monotonic() - began_s
            self._hand_on()

    async def _wait(self, end_s: float) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._line, (end_s, next(self._numbers), turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._hand_on()
            raise

    def _hand_on(self) -> None:
        """Give the turn to the next in line."""
        while self._line:
            _, _, turn = heapq.heappop(self._line)
            if not turn.done():
                turn.set_result(None)
                return
        self._is_taken = False
