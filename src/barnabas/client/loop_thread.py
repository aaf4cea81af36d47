"""One background thread with an event loop, on which a synchronous client's coroutines run.

The thread is a daemon: a program that forgets to close a client still ends. What must happen before it ends is
registered with `at_exit`. A fork copies the client but not its thread; the copy says so instead of hanging.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures.thread
import os
import threading
import weakref
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from barnabas.errors import ClosedError

T = TypeVar("T")


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return uvloop's event loop where it is installed, else asyncio's own."""
    try:
        import uvloop  # noqa: PLC0415  optional
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


class LoopThread:
    """Runs coroutines for other threads."""

    def __init__(self, name: str) -> None:
        self._loop = new_event_loop()
        self._pid = os.getpid()
        self._closed = False
        self.after_fork: Callable[[ClosedError], None] | None = None
        """Called in a forked child, with the error that its calls should raise."""
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()
        _live.add(self)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._loop.close()

    @property
    def inside(self) -> bool:
        """Whether the caller runs on this thread, where waiting for it would never end."""
        return threading.current_thread() is self._thread

    def call(self, coroutine: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        """Run a coroutine on the thread and return its result; Ctrl-C in the main thread cancels it.

        :raises ClosedError: the thread has stopped, or belongs to the parent process.
        """
        problem = self._problem()
        if problem is not None or self.inside:
            coroutine.close()
            raise problem or ClosedError("a callback must not wait for the client that runs it; use another thread")
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result(timeout_s)
        except (KeyboardInterrupt, concurrent.futures.TimeoutError):
            future.cancel()
            raise

    def start(self, coroutine: Coroutine[Any, Any, Any]) -> concurrent.futures.Future[Any]:
        """Run a coroutine on the thread without waiting for it."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def soon(self, function: Callable[[], object]) -> None:
        """Call `function` on the thread soon; ignored when the thread has stopped."""
        if self._problem() is None:
            self._loop.call_soon_threadsafe(function)

    def stop(self) -> None:
        """Cancel what runs and end the thread; may be called again."""
        if self._problem() is not None or self.inside:
            return
        self._closed = True
        asyncio.run_coroutine_threadsafe(_cancel_others(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        _live.discard(self)

    def _problem(self) -> ClosedError | None:
        if self._pid != os.getpid():
            return ClosedError(
                f"this client belongs to process {self._pid}, of which this one is a fork; make a new one here"
            )
        return ClosedError("this client is closed; make a new one") if self._closed else None

    def forked(self) -> None:
        """Tell the owner, in a forked child, that its thread is gone."""
        problem = self._problem()
        if self.after_fork is not None and problem is not None:
            self.after_fork(problem)


async def _cancel_others() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


_live: weakref.WeakSet[LoopThread] = weakref.WeakSet()
_closers: weakref.WeakSet[Any] = weakref.WeakSet()


def at_exit(client: Any) -> None:
    """Call `client.close_at_exit()` when the interpreter ends, if the client still lives then."""
    _closers.add(client)


def _close_clients() -> None:
    for client in list(_closers):
        client.close_at_exit()


def _tell_forked() -> None:
    _closers.clear()
    for thread in list(_live):
        thread.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_tell_forked)
# Callbacks of `atexit` run when asyncio can no longer resolve host names, for its executor is shut down before.
# The hook that the executors use themselves runs in time, and also in children of `multiprocessing`.
getattr(threading, "_register_atexit", atexit.register)(_close_clients)
