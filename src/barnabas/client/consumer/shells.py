"""How the application waits, and how it has things done: by blocking its thread, or by awaiting on its event loop.

What a consumer does for its application is written once, as coroutines that await nothing but a `Shell`. Under a
`BlockingShell` every wait blocks the thread that calls, so such a coroutine never suspends, and `run_to_its_end`
is all that it takes to call it. Under a `LoopShell` it awaits as any other does.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import inspect
import threading
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Protocol, TypeVar

from barnabas.client.loop_thread import LoopThread
from barnabas.clock import SYSTEM_CLOCK
from barnabas.errors import ClosedError
from barnabas.model import TopicPartition

T = TypeVar("T")

Partitions = list[TopicPartition]
Listener = Callable[[Partitions], object]

TURN_S = 0.002
"""How long an asynchronous consumer may hand out what is at hand before others on its loop have their turn."""


class Guard(Protocol):
    """Guards the core where threads share it, and wakes who waits for something new. `with guard: ...`"""

    def __enter__(self) -> object: ...
    def __exit__(self, kind: Any, error: Any, trace: Any, /) -> bool | None: ...
    def notify_all(self) -> None: ...


class Outcome(Protocol):
    """What a coroutine that was started will return: a future, of either kind."""

    def done(self) -> bool: ...
    def cancelled(self) -> bool: ...
    def cancel(self) -> bool: ...
    def result(self) -> Any: ...
    def add_done_callback(self, callback: Callable[[Any], object], /) -> None: ...


class Shell(Protocol):
    """Between the application and the event loop that does the work."""

    @property
    def guard(self) -> Guard: ...

    async def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the event loop and return its result."""
        ...

    async def alone(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run what must not be broken off, nor done twice at a time; a coroutine within it may be run so too."""
        ...

    def start(self, coroutine: Coroutine[Any, Any, Any]) -> Outcome:
        """Run a coroutine on the event loop without waiting for it."""
        ...

    def soon(self, function: Callable[[], object]) -> None:
        """Call a function on the event loop soon; ignored when that has ended."""
        ...

    async def wait_for_news(self, timeout_s: float | None) -> None:
        """Wait until the guard is notified, or the time is over. The guard is held before and after."""
        ...

    async def wait_for(self, outcome: Outcome, timeout_s: float) -> None:
        """Wait until `outcome` is there, or the time is over."""
        ...

    async def tell(self, listener: Listener, partitions: Partitions) -> None:
        """Call a listener of the application."""
        ...

    async def give_way(self) -> None:
        """Let others on the event loop have their turn, if the application shares one with them."""
        ...

    async def stop(self) -> None:
        """End what was started."""
        ...


class BlockingShell:
    """For applications that block: a background thread runs the event loop.

    :param after_fork: called in a forked child, with the error that each call should raise there.
    """

    def __init__(self, name: str, after_fork: Callable[[ClosedError], None]) -> None:
        self.guard = threading.Condition()
        self._lock = threading.RLock()
        self._thread = LoopThread(name)
        self._thread.after_fork = after_fork

    async def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self._thread.call(coroutine)

    async def alone(self, coroutine: Coroutine[Any, Any, None]) -> None:
        with self._lock:
            await coroutine

    def start(self, coroutine: Coroutine[Any, Any, Any]) -> Outcome:
        return self._thread.start(coroutine)

    def soon(self, function: Callable[[], object]) -> None:
        self._thread.soon(function)

    async def wait_for_news(self, timeout_s: float | None) -> None:
        self.guard.wait(timeout_s)

    async def wait_for(self, outcome: Outcome, timeout_s: float) -> None:
        assert isinstance(outcome, concurrent.futures.Future)
        concurrent.futures.wait([outcome], timeout_s)

    async def tell(self, listener: Listener, partitions: Partitions) -> None:
        listener(partitions)

    async def give_way(self) -> None:
        """Threads have their turn by themselves."""

    async def stop(self) -> None:
        self._thread.stop()


class LoopGuard:
    """Guards nothing, for all that share it run on one event loop and suspend nowhere in between; but wakes."""

    def __init__(self) -> None:
        self._waiting: set[asyncio.Future[None]] = set()

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def notify_all(self) -> None:
        """Wake all that wait."""
        waiting, self._waiting = self._waiting, set()
        for future in waiting:
            _wake(future)

    async def wait(self, timeout_s: float | None) -> None:
        """Wait to be woken, or until the time is over."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        timer = None if timeout_s is None else loop.call_later(timeout_s, _wake, future)
        self._waiting.add(future)
        try:
            await future
        finally:
            self._waiting.discard(future)
            if timer is not None:
                timer.cancel()


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class LoopShell:
    """For applications on an event loop, which runs the consumer's own tasks as well. No thread."""

    def __init__(self) -> None:
        self.guard = LoopGuard()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._lock = asyncio.Lock()
        self._holder: asyncio.Task[Any] | None = None
        self._turn_s = 0.0
        self.runs = False
        """Whether the consumer's tasks have been started; before there is nothing to be done on the loop."""

    async def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return await coroutine

    async def alone(self, coroutine: Coroutine[Any, Any, None]) -> None:
        if asyncio.current_task() is self._holder:
            await coroutine
            return
        # A task of its own: an application that gives up waiting must not leave the assignment half changed.
        task = self._spawn(self._hold(coroutine))
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            caller = asyncio.current_task()
            if task.cancelled() and caller is not None and not caller.cancelling():
                raise ClosedError("this consumer was closed") from None
            raise

    async def _hold(self, coroutine: Coroutine[Any, Any, None]) -> None:
        async with self._lock:
            self._holder = asyncio.current_task()
            try:
                await coroutine
            finally:
                self._holder = None

    def start(self, coroutine: Coroutine[Any, Any, Any]) -> Outcome:
        return self._spawn(coroutine)

    def _spawn(self, coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def soon(self, function: Callable[[], object]) -> None:
        if self.runs:
            function()

    async def wait_for_news(self, timeout_s: float | None) -> None:
        await self.guard.wait(timeout_s)
        self._turn_s = SYSTEM_CLOCK.monotonic()

    async def wait_for(self, outcome: Outcome, timeout_s: float) -> None:
        assert isinstance(outcome, asyncio.Task)
        await asyncio.wait([outcome], timeout=timeout_s)

    async def tell(self, listener: Listener, partitions: Partitions) -> None:
        outcome = listener(partitions)
        if inspect.isawaitable(outcome):
            await outcome

    async def give_way(self) -> None:
        # Not the loop's own time: uvloop's stands still until its next turn.
        if SYSTEM_CLOCK.monotonic() - self._turn_s >= TURN_S:
            await asyncio.sleep(0)
            self._turn_s = SYSTEM_CLOCK.monotonic()

    async def stop(self) -> None:
        self.runs = False
        others = self._tasks - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)


def run_to_its_end(coroutine: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine that waits through a `BlockingShell` only, and so never suspends.

    >>> async def double(number):
    ...     return 2 * number
    >>> run_to_its_end(double(21))
    42
    """
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    raise AssertionError(f"{coroutine!r} awaits something on a thread without an event loop")
