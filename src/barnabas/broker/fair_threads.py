"""Threads that clients share fairly by address, for work that any client can cause before it authenticates.

Without fairness, thousands of failed logins from one address would delay the logins from all other addresses.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable
from concurrent.futures import Executor
from typing import TypeVar

from barnabas.broker.fair_queue import FairQueue, Share

T = TypeVar("T")

LIKELY_S = 0.005
"""The expected duration of a call in seconds; checking a password for PLAIN takes about as long."""


class AddressShare:
    """The use of the threads by the clients of one address."""

    __slots__ = ("__weakref__", "lock", "share")

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.share = Share()


class FairThreads:
    """Runs calls on threads, one at a time, and alternates between addresses. Used from one event loop's thread only.

    :param threads: runs the calls.
    :param monotonic: returns monotonic seconds.
    """

    def __init__(self, threads: Executor, monotonic: Callable[[], float]) -> None:
        self._threads = threads
        self._queue = FairQueue(monotonic)
        self._shares: weakref.WeakValueDictionary[str, AddressShare] = weakref.WeakValueDictionary()

    def share_of(self, host: str) -> AddressShare:
        """Return the share of an address. It exists as long as a connection refers to it."""
        share = self._shares.get(host)
        if share is None:
            share = self._shares[host] = AddressShare()
        return share

    async def run(self, share: AddressShare, function: Callable[[bytes], T], message: bytes) -> T:
        """Call a function with a message on a thread, and return its result."""
        loop = asyncio.get_running_loop()
        async with share.lock:
            return await self._queue.take(
                share.share, LIKELY_S, lambda: loop.run_in_executor(self._threads, function, message)
            )
