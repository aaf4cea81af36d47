"""Work on files that may wait for the disk, beside the event loop.

What changes one log's files (rolls, writes, flushes) stands in that log's queue, and is done in order, one piece after
the other. The queues of different logs go on side by side. What only reads, from files that it opened itself, or only
computes, needs no order and has threads of its own: however long clients' searches take, no roll waits for them.

A caller waits for its own piece of work only, and the event loop for none.
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
"""Calls a function with its arguments on a thread that may wait: `asyncio.to_thread`, or what a simulation has."""

DISK_THREADS = 16
"""Most of them wait for the disk, which likes to be asked for several things at once."""

SEARCH_THREADS = 2


class DiskWork(NamedTuple):
    """Where work is done: what changes one log, and has to be in order; what only reads or computes, and need not be;
    and what the broker does for all logs together."""

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

    def work(self) -> DiskWork:
        """Return where to do what."""
        return DiskWork(functools.partial(_run, self._disk), functools.partial(_run, self._search))

    def in_metadata_thread(self, function: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:
        """Run what asks the tree: one after the other."""
        return asyncio.get_running_loop().run_in_executor(self._tree, function, *arguments)

    def beside_metadata(self, function: Callable[..., Any], *arguments: Any) -> Awaitable[Any]:
        """Run what finds out whether the tree answers: behind nothing that waits for the tree, and behind no search of
        a client, for a broker that does not find out in time goes on leading."""
        return _run(self._ping, function, *arguments)

    def close_disk(self) -> None:
        """Let what has begun come to its end."""
        self._search.shutdown(cancel_futures=True)
        self._disk.shutdown()

    def close_metadata(self) -> None:
        """Let what has begun come to its end."""
        self._ping.shutdown(cancel_futures=True)
        self._tree.shutdown()


async def _run(executor: Executor, work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    return await asyncio.get_running_loop().run_in_executor(executor, functools.partial(work, *arguments, **named))


class DiskQueue:
    """The queue of what is done to one log. Used from the event loop's thread only."""

    __slots__ = ("_turn", "_work")

    def __init__(self, work: DiskWork) -> None:
        self._work = work
        self._turn = asyncio.Lock()

    async def do(self, work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """Do a piece of work when those before it are done; return what it returns, or raise what it raises."""
        async with self._turn:
            result: T = await self._work.in_order(work, *arguments, **named)
            return result

    async def end(self) -> None:
        """Return when what has been asked for is done."""
        async with self._turn:
            pass

    async def beside(self, work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """Do a piece of work that needs no order: one that only reads, from files of its own, or computes."""
        result: T = await self._work.in_any_order(work, *arguments, **named)
        return result
