"""A fair queue that runs the work of many clients, one request at a time.

The algorithm is a variant of start-time fair queueing. Each client has a virtual time at which its last turn ended. The
client's next turn begins at this time, or at the current turn's begin if that is later. The turn ends after its
expected duration. The waiting turn with the earliest end runs first. A client with little work therefore runs before
any number of clients with much work.

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
    """One client's use of the queue."""

    __slots__ = ("ended_s",)

    def __init__(self) -> None:
        self.ended_s = 0.0
        """The virtual time at which the client's last turn ended."""


class FairQueue:
    """Runs the work of clients, one call at a time.

    :param monotonic: returns monotonic seconds, to measure turns.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._line: list[tuple[float, int, asyncio.Future[None]]] = []
        self._numbers = itertools.count()
        self._is_taken = False
        self._virtual_s = 0.0

    async def take(self, share: Share, likely_s: float, work: Callable[[], Awaitable[T]]) -> T:
        """Run work when it is the client's turn. Return the result of the work, or raise its exception.

        :param likely_s: the expected duration of the work in seconds.
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
        """Give the turn to the next waiting client."""
        while self._line:
            _, _, turn = heapq.heappop(self._line)
            if not turn.done():
                turn.set_result(None)
                return
        self._is_taken = False
