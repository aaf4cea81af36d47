"""How applications wait: by blocking a thread, or by awaiting on their event loop.

A shell takes a call of the core from step to step (see `steps`): it waits, and it calls the application's listeners.
Each has a guard of its kind, through which the core's two sides, calls and background, wake one another.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TypeVar

from barnabas.client.client_lifecycle import LoopThread
from barnabas.client.consumer.call_steps import FOREVER_S, AssignmentChange, CallSteps, ListenerCall, Wait, Waker
from barnabas.client.consumer.state import ConsumerState
from barnabas.clock import SYSTEM_CLOCK, Clock
from barnabas.errors import ClosedError
from barnabas.model import TopicPartition

T = TypeVar("T")

Listener = Callable[[list[TopicPartition]], object]
Listeners = Mapping[AssignmentChange, Listener]

TURN_S = 0.002
"""How long an asynchronous consumer may hand out what is at hand before others on its loop have their turn."""


def listeners_of(
    on_assign: Listener | None, on_revoke: Listener | None, on_lost: Listener | None
) -> dict[AssignmentChange, Listener]:
    """Return those that there are."""
    given: dict[AssignmentChange, Listener | None] = {"assigned": on_assign, "revoked": on_revoke, "lost": on_lost}
    return {change: listener for change, listener in given.items() if listener is not None}


class ThreadGuard:
    """Between the application's threads and the background thread.

    Who waits has a lock of its own, that whoever has news releases. A `threading.Condition` does the same, but takes
    the guard's lock again before it returns, and does more of it in Python.

    :ivar lock: guards the core.
    :ivar bell: the background's, on its own thread.
    """

    def __init__(self, thread: LoopThread) -> None:
        self.lock = threading.RLock()
        self.wake_count = 0
        self.waker = Waker()
        self._thread = thread
        self._waiting: set[threading.Lock] = set()
        """Taken ones, that nobody but those who wait and `wake_application` know; under the guard."""

    def after_fork(self) -> None:
        """Make a new lock in a forked child: one of the parent's threads, which are not here, may have held it."""
        self.lock = threading.RLock()
        self._waiting = set()

    def wake_application(self) -> None:
        self.wake_count += 1
        if self._waiting:
            waiting, self._waiting = self._waiting, set()
            for told in waiting:
                told.release()

    def wake_background(self) -> None:
        self._thread.call_soon(self.waker.wake)

    def wait_for_wake(self, wait: Wait) -> None:
        """Block until there is news or the time is over."""
        told = threading.Lock()
        told.acquire()
        with self.lock:
            if self.wake_count != wait.wake_count:
                return
            self._waiting.add(told)
        is_told = False
        try:
            is_told = told.acquire(timeout=_timeout_s(wait.until_s))
        finally:
            if not is_told:  # but the time is over, or a signal has interrupted it
                with self.lock:
                    self._waiting.discard(told)


def _timeout_s(until_s: float) -> float:
    """Return how long a lock may take until this moment; -1 is for ever."""
    return -1 if until_s == FOREVER_S else min(max(until_s - SYSTEM_CLOCK.monotonic(), 0.0), threading.TIMEOUT_MAX)


class BlockingDriver:
    """Takes calls to their end on the thread that calls."""

    def __init__(self, state: ConsumerState, guard: ThreadGuard) -> None:
        self.listeners: Listeners = {}
        self._state = state
        self._guard = guard
        self._in_listener = threading.local()

    @property
    def inside_listener(self) -> bool:
        """Whether the caller is a listener."""
        return getattr(self._in_listener, "now", False)

    def run(self, steps: CallSteps[T]) -> T:
        """Return the result of a call."""
        try:
            while True:
                step = next(steps)
                if isinstance(step, Wait):
                    self._guard.wait_for_wake(step)
                else:
                    self._call_listener(step)
        except StopIteration as end:
            result: T = end.value
            return result
        finally:
            steps.close()  # else a call that was interrupted counts as waiting as long as its traceback is kept

    def _call_listener(self, call: ListenerCall) -> None:
        error: BaseException | None = None
        self._in_listener.now = True
        try:
            if call.change in self.listeners:
                self.listeners[call.change](call.partitions)
        except BaseException as raised:  # noqa: BLE001 - the core raises it, where the listener's caller stands
            error = raised
        finally:
            self._in_listener.now = False
            self._state.on_listener_called(call, error)


class LoopGuard:
    """Guards nothing, for all that share it run on one event loop and suspend nowhere in between; but wakes.

    :param clock: the core's.
    """

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self.lock: AbstractContextManager[object] = nullcontext()
        self.wake_count = 0
        self.waker = Waker()
        self._rings = False
        self._waiting: set[asyncio.Future[None]] = set()

    def wake_application(self) -> None:
        self.wake_count += 1
        waiting, self._waiting = self._waiting, set()
        for future in waiting:
            _wake(future)

    def wake_background(self) -> None:
        if self._rings:
            return
        try:
            asyncio.get_running_loop().call_soon(self._ring)
            self._rings = True
        except RuntimeError:  # before the event loop runs
            self.waker.wake()

    def _ring(self) -> None:
        self._rings = False
        self.waker.wake()

    async def wait_for_wake(self, wait: Wait) -> None:
        """Wait until there is news or the time is over."""
        if self.wake_count != wait.wake_count:
            return
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        timer = None
        if wait.until_s != FOREVER_S:
            timer = loop.call_later(max(wait.until_s - self._clock.monotonic(), 0.0), _wake, future)
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


class AsyncDriver:
    """Takes calls to their end in the task that calls."""

    def __init__(self, state: ConsumerState, guard: LoopGuard) -> None:
        self.listeners: Listeners = {}
        self.guard = guard
        self._state = state
        self._in_listener: set[asyncio.Task[None]] = set()
        self._turn_s = 0.0

    @property
    def inside_listener(self) -> bool:
        """Whether the caller is a listener."""
        return asyncio.current_task() in self._in_listener

    async def run(self, steps: CallSteps[T]) -> T:
        """Return the result of a call."""
        try:
            while True:
                step = next(steps)
                if isinstance(step, Wait):
                    await self.guard.wait_for_wake(step)
                    self._turn_s = self._state.now_s()
                else:
                    await self._call_listener(step)
        except StopIteration as end:
            result: T = end.value
            return result
        finally:
            steps.close()  # a call that was cancelled does not wait any more

    async def _call_listener(self, call: ListenerCall) -> None:
        listener = self.listeners.get(call.change)
        if listener is None:
            self._state.on_listener_called(call)
            return
        # In a task of its own: an application that gives up waiting must not leave the assignment half changed.
        call.goes_on = True
        task = asyncio.create_task(self._call(listener, call))
        self._in_listener.add(task)
        task.add_done_callback(self._in_listener.discard)
        # Not by `shield`: where closing the consumer ends the listener, who polls was not cancelled.
        await asyncio.wait({task})

    async def _call(self, listener: Listener, call: ListenerCall) -> None:
        error: BaseException | None = None
        try:
            outcome = listener(call.partitions)
            if inspect.isawaitable(outcome):
                await outcome
        except asyncio.CancelledError:
            error = ClosedError("this consumer was closed")
            raise
        except Exception as raised:  # noqa: BLE001 - the core raises it, where the listener's caller stands
            error = raised
        finally:
            self._state.on_listener_called(call, error)

    async def give_way(self) -> None:
        """Let others on the event loop have their turn, if they have not had one for long."""
        # Not the loop's own time: uvloop's stands still until its next turn.
        if self._state.now_s() - self._turn_s >= TURN_S:
            await asyncio.sleep(0)
            self._turn_s = self._state.now_s()

    async def stop(self) -> None:
        """Cancel listeners that are still at it."""
        others = self._in_listener - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
