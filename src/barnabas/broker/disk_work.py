"""Work that may block on the disk. It runs on other threads than the event loop.

Each log has a queue for work that changes its files (rolls, writes, flushes). A queue runs one function at a time, in
order. The queues of different logs run in parallel. Work that only computes, or only reads files that it opened itself,
needs no order and has its own threads. So a segment roll never waits for a search on behalf of a client. The event
loop's thread never blocks.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Any, NamedTuple, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

Run = Callable[..., Awaitable[Any]]
"""Calls a function with its arguments on a thread that may block: `asyncio.to_thread`, or a simulation's version of it.
"""

DISK_THREADS = 16
"""The number of threads for ordered work. Disks are faster with several concurrent requests."""

SEARCH_THREADS = 2


class DiskWork(NamedTuple):
    """Functions that run work on threads.

    :ivar in_order: runs work that changes a log. `DiskQueue` keeps the order for each log.
    :ivar in_any_order: runs work that only reads or computes.
    :ivar for_all: runs work on all logs together.
    """

    in_order: Run = asyncio.to_thread
    in_any_order: Run = asyncio.to_thread
    for_all: Run = asyncio.to_thread


ON_ANY_THREAD = DiskWork()


class BrokerThreads:
    """The threads of a broker."""

    def __init__(self) -> None:
        self._disk = ThreadPoolExecutor(DISK_THREADS, thread_name_prefix="disk")
        self._search = ThreadPoolExecutor(SEARCH_THREADS, thread_name_prefix="search")
        self._tree = ThreadPoolExecutor(1, thread_name_prefix="tree")
        self._ping = ThreadPoolExecutor(1, thread_name_prefix="tree-ping")
        self._acls = ThreadPoolExecutor(1, thread_name_prefix="tree-acls")

    def work(self) -> DiskWork:
        """Return the functions that run work on these threads."""
        return DiskWork(functools.partial(_run, self._disk), functools.partial(_run, self._search))

    def in_metadata_thread(self, function: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:
        """Run a function on the metadata store's thread, after earlier calls."""
        return asyncio.get_running_loop().run_in_executor(self._tree, function, *arguments)

    def in_acl_thread(self, function: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:
        """Run a function that reads or changes ACLs on a thread of its own, after earlier calls."""
        return asyncio.get_running_loop().run_in_executor(self._acls, function, *arguments)

    def beside_metadata(self, function: Callable[..., Any], *arguments: Any) -> Awaitable[Any]:
        """Run a ping of the metadata store on a separate thread.

        The ping must not wait for other calls or for searches. If a broker detects its expired session too late, it
        still acts as a leader.
        """
        return _run(self._ping, function, *arguments)

    def close_disk(self) -> None:
        """Wait for the disk work in progress, and stop its threads."""
        self._search.shutdown(cancel_futures=True)
        self._disk.shutdown()

    def close_metadata(self) -> None:
        """Wait for the metadata store calls in progress, and stop their threads."""
        self._ping.shutdown(cancel_futures=True)
        self._acls.shutdown()
        self._tree.shutdown()


async def _run(executor: Executor, work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    return await asyncio.get_running_loop().run_in_executor(executor, functools.partial(work, *arguments, **named))


class DiskQueue:
    """The queue of the ordered work of one log. Used from the event loop's thread only."""

    __slots__ = ("_turn", "_work")

    def __init__(self, work: DiskWork) -> None:
        self._work = work
        self._turn = asyncio.Lock()

    async def do(self, work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """Run work after all earlier work in this queue. Return its result, or raise its exception."""
        async with self._turn:
            result: T = await self._work.in_order(work, *arguments, **named)
            return result

    async def end(self) -> None:
        """Wait until all earlier work is done."""
        async with self._turn:
            pass

    async def beside(self, work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """Run unordered work, which only computes, or only reads files that it opened itself."""
        result: T = await self._work.in_any_order(work, *arguments, **named)
        return result
