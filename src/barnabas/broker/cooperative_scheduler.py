"""Shares the event loop: long work runs in slices, so that short requests hardly wait for it.

Long work is a generator that yields wherever it may pause (`go_on`, `finish`), or a coroutine that awaits `pause` now
and then. In one round of the event loop all long work together gets about `SLICE_S`. Unfinished work waits in
line, and each later round continues one piece of it. However many clients ask for much at once, a short request of
another client waits for a few milliseconds.

Used from the event loop's thread only.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Generator, Iterable
from typing import Any, TypeVar

T = TypeVar("T")

SLICE_S = 0.002
SHORT_TURNS = 8
"""So many of those whose work is short have their turn together: one request, say, or one answer."""


ENTRIES_AT_ONCE = 32
"""So many of many entries, each of which takes microseconds, are gone through before somebody else may have a turn."""


class Unfinished:
    """What `go_on` returns for work that goes on later."""


UNFINISHED = Unfinished()


class CooperativeScheduler:
    """Shares the time of one event loop.

    :param now_s: monotonic seconds.
    :param call_soon: calls a function in the next round of the event loop; the running loop's own if None.
    """

    def __init__(
        self, now_s: Callable[[], float], call_soon: Callable[[Callable[[], None]], object] | None = None
    ) -> None:
        self._now_s = now_s
        self._call_soon = call_soon
        self._line: deque[tuple[asyncio.Future[Any], Any, bool]] = deque()  # whom to give what; whether it is short
        self._is_open = False  # whether somebody has used time of this round
        self._ends_at_s = 0.0  # when it is used up
        self._wakes_left = 0
        self._wakes_again_s = -SLICE_S
        self._round_ends = False  # whether `_end_round` will be called

    @property
    def waiting(self) -> int:
        """How many stand in line."""
        return len(self._line)

    def is_over(self) -> bool:
        """Whether the time of this round is used up."""
        if self._is_open:
            return self._now_s() >= self._ends_at_s
        self._open()
        return False

    def go_on(self, steps: Generator[None, None, T], at_least: int = 1) -> T | Unfinished:
        """Do steps until they end, or the time is used up.

        :param at_least: so many steps are done however late it is.
        :returns: what they return, or `UNFINISHED`.
        """
        try:
            for _ in range(at_least - 1):
                next(steps)
            if not self._is_open:
                self._open()
            while True:
                next(steps)
                if self.is_over():
                    return UNFINISHED
        except StopIteration as end:
            result: T = end.value
            return result

    async def finish(self, steps: Generator[None, None, T]) -> T:
        """Do all steps, with pauses in which others have their turn; none where there is one step only."""
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
        await self.pause()
        while isinstance(found := self.go_on(steps), Unfinished):
            await self._stand_in_line()
        return found

    async def pause(self, *, is_short: bool = False) -> None:
        """Let others have their turn, if the time of this round is used up.

        :param is_short: what is left to do takes a fraction of a slice, so that several can do it in one round.
        """
        if self.is_over():
            await self._stand_in_line(is_short=is_short)

    async def each(self, entries: Iterable[T]) -> AsyncIterator[T]:
        """Yield entries, and let others have their turn now and then."""
        for count, entry in enumerate(entries, start=1):
            yield entry
            if not count % ENTRIES_AT_ONCE:
                await self.pause()

    def wake(self, waiter: asyncio.Future[Any], result: Any = None) -> None:
        """Give a future its result, in its turn: many that become due together would all do their work at once."""
        now_s = self._now_s()
        if now_s >= self._wakes_again_s:
            self._wakes_again_s = now_s + 2 * SLICE_S
            self._wakes_left = SHORT_TURNS
        if self._wakes_left:
            self._wakes_left -= 1
            _resolve(waiter, result)
        else:
            self._line.append((waiter, result, True))
            self._let_round_end()

    async def _stand_in_line(self, *, is_short: bool = False) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._line.append((turn, None, is_short))
        self._let_round_end()
        await turn
        self._open()

    def _open(self) -> None:
        self._is_open = True
        self._ends_at_s = self._now_s() + SLICE_S
        self._let_round_end()

    def _let_round_end(self) -> None:
        if not self._round_ends:
            self._round_ends = True
            call_soon = self._call_soon or asyncio.get_running_loop().call_soon
            call_soon(self._end_round)

    def _end_round(self) -> None:
        """Begin another round, with the turn of the first in line, or of the first few if their work is short."""
        self._round_ends = self._is_open = False
        turns_left = SHORT_TURNS
        while self._line and (turns_left == SHORT_TURNS or (turns_left and self._line[0][2])):
            waiter, result, is_short = self._line.popleft()
            if _resolve(waiter, result):
                turns_left = turns_left - 1 if is_short else 0
        if self._line:
            self._let_round_end()


def _resolve(waiter: asyncio.Future[Any], result: Any) -> bool:
    """Give a future its result, unless nobody waits for it any longer."""
    if waiter.done():
        return False
    waiter.set_result(result)
    return True
