"""Work on one log's files that may wait for the disk, beside the event loop: one piece after the other, in order.

A log's lane keeps rolls, flushes and deletions of that log apart; the lanes of different logs go on side by side, as
far as the threads reach that `run` has. Whoever asks waits for his own piece only, and the event loop for none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

RunBeside = Callable[..., Awaitable[Any]]
"""Calls a function with its arguments on a thread that may wait: `asyncio.to_thread`, or what a simulation has."""


class DiskLane:
    """The lane of one log. Used from the event loop's thread only.

    :param run: where the work is done.
    """

    __slots__ = ("_run", "_turn")

    def __init__(self, run: RunBeside = asyncio.to_thread) -> None:
        self._run = run
        self._turn = asyncio.Lock()

    async def do(self, work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """Do a piece of work when those before it are done; return what it returns, or raise what it raises."""
        async with self._turn:
            result: T = await self._run(work, *arguments, **named)
            return result

    async def beside(self, work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """Do a piece of work that needs no order: one that only reads, from files of its own."""
        result: T = await self._run(work, *arguments, **named)
        return result
