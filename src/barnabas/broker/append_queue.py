"""The line of one replica: steps that run one after the other, during which no other step appends to the log."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")


class AppendLine:
    """Runs steps in the order in which they come. Used from the event loop's thread only."""

    __slots__ = ("_steps", "_task", "is_busy")

    def __init__(self) -> None:
        # Made when needed: a broker has thousands of replicas, and an empty deque takes 600 bytes.
        self._steps: deque[Callable[[], Awaitable[None]]] | None = None
        self._task: asyncio.Task[None] | None = None
        self.is_busy = False
        """True while a step runs or waits. It is a plain attribute because each append reads it."""

    def run(self, step: Callable[[], Awaitable[T]]) -> asyncio.Future[T]:
        """Run a step after those that came before it; return a future of its result."""
        ended: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        async def take_turn() -> None:
            try:
                result = await step()
            except Exception as error:  # noqa: BLE001 - the caller of `run` receives it
                if not ended.done():
                    ended.set_exception(error)
            else:
                if not ended.done():
                    ended.set_result(result)

        if self._steps is None:
            self._steps = deque()
        self._steps.append(take_turn)
        if not self.is_busy:
            self.is_busy = True
            self._task = asyncio.get_running_loop().create_task(self._run_all(self._steps))
        return ended

    async def wait_until_idle(self) -> None:
        """Return when no step runs or waits."""
        while self._task is not None:
            await asyncio.wait([self._task])

    async def _run_all(self, steps: deque[Callable[[], Awaitable[None]]]) -> None:
        try:
            while steps:
                await steps[0]()
                steps.popleft()
        finally:
            self._task = None
            self.is_busy = False
