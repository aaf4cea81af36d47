"""A value that is fetched at most once in a while, however many pages ask for it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from barnabas.shielded import completed

T = TypeVar("T")


class Cached(Generic[T]):
    """Fetches a value if it is older than a limit. Concurrent callers wait for the same fetch.

    :param fetch: returns the value. Its error is raised to all callers that wait for it, and is not kept.
    :param now_s: returns monotonic seconds.
    """

    def __init__(self, fetch: Callable[[], Awaitable[T]], age_s_max: float, now_s: Callable[[], float]) -> None:
        self._fetch = fetch
        self._age_s_max = age_s_max
        self._now_s = now_s
        self._fetching: asyncio.Task[T] | None = None
        self._value: T
        self._fetched_s: float | None = None

    async def get(self, age_s_max: float | None = None) -> T:
        """Return the value, not older than a limit.

        :param age_s_max: the limit; None for the usual one.
        """
        limit_s = self._age_s_max if age_s_max is None else age_s_max
        if self._fetched_s is not None and self._now_s() - self._fetched_s < limit_s:
            return self._value
        if self._fetching is None:
            self._fetching = asyncio.create_task(self._renew())
            self._fetching.add_done_callback(self._note_end)
        return await completed(self._fetching, is_shared=True)

    async def _renew(self) -> T:
        self._value = await self._fetch()
        self._fetched_s = self._now_s()
        return self._value

    def _note_end(self, task: asyncio.Task[T]) -> None:
        self._fetching = None
        if not task.cancelled():
            task.exception()  # the callers get it; without this line asyncio logs it if all of them have left
