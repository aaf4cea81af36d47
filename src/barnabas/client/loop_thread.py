"""One background thread with an event loop, on which a synchronous client's coroutines run: the client's life.

The thread never keeps its client alive. It ends in one of these ways:

- `stop`, which a client's `close` calls, ends it and waits for that.
- Nobody holds the client any more: it is told to finish (to deliver, to leave its group) and ends when it has.
- The program ends: the same, and the program waits. Ctrl-C ends the wait.
- A fork copies the client but not the thread: every call of the copy says so, and closing it does nothing.

The thread is a daemon: a program is never kept from ending by it, but for the wait above.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures.thread
import logging
import os
import threading
import warnings
import weakref
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from barnabas.errors import ClosedError

log = logging.getLogger(__name__)

T = TypeVar("T")

CLOSED = "this client is closed; make a new one"
INSIDE = "a callback must not wait for the client that runs it; use another thread"

SILENCE_S = 2.0
"""After so long the end of a program says what it waits for."""

GIVE_UP_S = 1.0
"""How long clients have to say what they lost, when the end of a program is interrupted."""


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
        self._ends = False
        self._ended = threading.Event()
        self._finish: Callable[[], Coroutine[Any, Any, None]] | None = None
        self._ending: asyncio.Task[None] | None = None
        self._finalizer: weakref.finalize[[LoopThread, str], Any] | None = None
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
            self._ended.set()

    def serves(self, client: object, finish: Callable[[], Coroutine[Any, Any, None]], name: str = "") -> None:
        """End with `client`, also where nobody closes it.

        :param finish: what is to be done on the thread then, which must not take for ever; cancelled when somebody
            interrupts the end of the program. It must not lead to the client, or that would never be dropped.
        :param name: what the client is called in the warning.
        """
        self._finish = finish
        self._finalizer = weakref.finalize(client, _on_dropped, self, name or type(client).__name__)
        self._finalizer.atexit = False

    @property
    def ends_with_its_client(self) -> bool:
        """Whether it was told which client it `serves`."""
        return self._finish is not None

    @property
    def inside(self) -> bool:
        """Whether the caller runs on this thread, where waiting for it would never end."""
        return threading.current_thread() is self._thread

    @property
    def inherited(self) -> bool:
        """Whether this is a copy in a forked child, where there is no such thread."""
        return self._pid != os.getpid()

    def call(self, coroutine: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        """Run a coroutine on the thread and return its result; Ctrl-C in the main thread cancels it.

        :raises ClosedError: the thread has stopped, or belongs to the parent process.
        """
        problem = self._problem()
        if problem is not None or self.inside:
            coroutine.close()
            raise problem or ClosedError(INSIDE)
        try:
            future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        except RuntimeError:  # it has stopped just now
            coroutine.close()
            raise ClosedError(CLOSED) from None
        try:
            return future.result(timeout_s)
        except concurrent.futures.CancelledError:
            raise ClosedError(CLOSED) from None
        except (KeyboardInterrupt, concurrent.futures.TimeoutError):
            future.cancel()
            raise

    def check_outside(self) -> None:
        """:raises ClosedError: this is called on the thread itself, which cannot wait for itself."""
        if self.inside:
            raise ClosedError(INSIDE)

    def start(self, coroutine: Coroutine[Any, Any, Any]) -> concurrent.futures.Future[Any]:
        """Run a coroutine on the thread without waiting for it."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def soon(self, function: Callable[[], object]) -> None:
        """Call `function` on the thread soon; ignored when the thread has stopped."""
        if not (self._closed or self.inherited):
            self._loop.call_soon_threadsafe(function)

    # --- the end ----------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Cancel what runs and end the thread; may be called again."""
        if self._problem() is not None or self.inside:
            return
        self._closed = True
        if self._finalizer is not None:
            self._finalizer.detach()
        asyncio.run_coroutine_threadsafe(_cancel_others(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        _live.discard(self)

    def end_soon(self) -> None:
        """Finish, and then end; waits for nothing and takes no lock, so that finalisers may call it."""
        if not (self._ends or self._closed or self.inherited):
            self._ends = True
            self._loop.call_soon_threadsafe(self._begin_to_end)

    def _begin_to_end(self) -> None:
        self._ending = self._loop.create_task(self._end())

    async def _end(self) -> None:
        try:
            if self._finish is not None:
                await self._finish()
        except Exception:
            log.exception("%s did not end in an orderly way", self._thread.name)
        finally:
            self._closed = True
            await _cancel_others()
            self._loop.stop()

    def interrupt_end(self) -> None:
        """Have what `end_soon` began come to its end at once."""
        if not (self._closed or self.inherited):
            self._loop.call_soon_threadsafe(lambda: self._ending is not None and self._ending.cancel())

    def join(self, timeout_s: float | None) -> bool:
        """Wait until the thread has ended; return whether it has."""
        # Not by `Thread.join`: one that Ctrl-C interrupts takes the thread for dead (bpo-45274).
        return self._ended.wait(timeout_s)

    # --- fork -------------------------------------------------------------------------------------------

    def _problem(self) -> ClosedError | None:
        if self.inherited:
            return forked_error(self._pid)
        return ClosedError(CLOSED) if self._closed else None

    def forked(self) -> None:
        """Tell the owner, in a forked child, that its thread is gone."""
        if self._closed:
            return
        # To free a loop would be to take its sockets out of the epoll instance, which is the parent's too.
        _inherited_loops.append(self._loop)
        if self.after_fork is not None:
            self.after_fork(forked_error(self._pid))


def forked_error(pid: int) -> ClosedError:
    """Return what calls of a client raise in a child of the process that it was made in."""
    return ClosedError(f"this client belongs to process {pid}, of which this one is a fork; make a new one here")


async def _cancel_others() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _on_dropped(thread: LoopThread, client: str) -> None:
    """Run by the garbage collector, anywhere: whatever lock the code there holds must not be wanted here."""
    if not thread.inherited:
        thread.end_soon()
        warnings.warn(
            f"a {client} was dropped without close(), so its background thread ends by itself; "
            "call close() or use a with block",
            ResourceWarning,
            stacklevel=2,
        )


_live: weakref.WeakSet[LoopThread] = weakref.WeakSet()
_inherited_loops: list[asyncio.AbstractEventLoop] = []
_closers: weakref.WeakSet[Any] = weakref.WeakSet()


def at_exit(client: Any) -> None:
    """Call `client.close_at_exit()` when the interpreter ends, if the client still lives then."""
    _closers.add(client)


def _close_clients() -> None:
    threads = [thread for thread in _live if thread.ends_with_its_client and not thread.inherited]
    for thread in threads:
        thread.end_soon()
    try:
        for client in list(_closers):
            client.close_at_exit()
        for thread in threads:
            if not thread.join(SILENCE_S):
                log.warning("the program ends when its clients have delivered what was sent; Ctrl-C ends it now")
                thread.join(None)
    except KeyboardInterrupt:
        for thread in threads:
            thread.interrupt_end()
        for thread in threads:
            thread.join(GIVE_UP_S)


def _tell_forked() -> None:
    _closers.clear()
    for thread in list(_live):
        thread.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_tell_forked)
# Callbacks of `atexit` run when asyncio can no longer resolve host names, for its executor is shut down before.
# The hook that the executors use themselves runs in time, and also in children of `multiprocessing`.
getattr(threading, "_register_atexit", atexit.register)(_close_clients)
