"""The lifecycle of a client: its event loop, and its end if no caller closes it.

A synchronous client has a `LoopThread`: a background thread with an event loop. The thread is a daemon, so it does not
keep the program running. An asynchronous client has an `ApplicationLoop`. Both are subclasses of `ClientLifecycle`,
which handles three cases:

- The garbage collector drops an open client. The client finishes (delivers its records, leaves its group) and ends.
- The program ends. All clients finish after the other threads of the program have ended, because these may use the
  clients. The program waits for the clients. Ctrl-C ends the wait.
- The process forks. In the child, calls of the client raise `ClosedError`, and `close` does nothing.

A lifecycle holds no reference to its client, so that the garbage collector can drop the client.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import logging
import os
import threading
import warnings
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

from barnabas.errors import ClosedError, TimedOutError

T = TypeVar("T")

log = logging.getLogger(__name__)

CLOSED = "this client is closed; make a new one"
INSIDE = "a callback must not wait for the client that runs it; use another thread"

Finish = Callable[[], Coroutine[Any, Any, None]]
"""Runs on the client's event loop when the client ends.

It must end in bounded time, and hold no reference to the client.
"""

SILENCE_S = 2.0
"""The time in seconds after which a program that ends logs that it waits for its clients."""

GIVE_UP_S = 1.0
"""The time limit in seconds of the clients' warnings about lost records, if Ctrl-C interrupts the end of the
program.
"""


class ClientLifecycle(ABC):
    """The lifecycle of one client. There is a subclass for each kind of event loop."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._claims = [True]
        """Contains one element until a caller starts to end the client.

        `pop` is atomic and needs no lock; a finalizer must not acquire locks.
        """
        self._finish: Finish | None = None
        self._finalizer: weakref.finalize[[ClientLifecycle, str], Any] | None = None
        self._after_fork: Callable[[ClosedError], None] | None = None

    def register(self) -> None:
        """Make the end of the program wait for this client. This is the last step of the client's constructor.

        After a Ctrl-C in the constructor there is nothing to wait for.
        """
        _lifecycles.add(self)

    def end_with(
        self,
        client: object,
        finish: Finish,
        name: str,
        *,
        after_fork: Callable[[ClosedError], None] | None = None,
    ) -> None:
        """End together with `client`, even if no caller closes it.

        :param finish: the coroutine function that ends the client; cancelled if Ctrl-C interrupts the end of the
            program.
        :param name: the name of the client in the warning, with its article.
        :param after_fork: called in a forked child with the error that calls of the client raise.
        """
        self._finish = finish
        self._after_fork = after_fork
        self._finalizer = weakref.finalize(client, _on_dropped, self, name)
        self._finalizer.atexit = False

    @property
    def is_forked_copy(self) -> bool:
        """Return whether this process is a forked child of the process that created the client."""
        return self._pid != os.getpid()

    def check_process(self) -> None:
        """:raises ClosedError: this process is a forked child of the process that created the client."""
        if self.is_forked_copy:
            raise forked_error(self._pid)

    def claim_end(self) -> bool:
        """Return whether the caller is the first one to end the client, and so has to do it."""
        try:
            return self._claims.pop()
        except IndexError:
            return False

    def unregister(self) -> None:
        """Remove a client that has ended from the clients that the garbage collector or the end of the program must
        end.
        """
        _lifecycles.discard(self)
        if self._finalizer is not None:
            self._finalizer.detach()

    @abstractmethod
    def end_soon(self) -> bool:
        """Start the end of the client, if no caller has started it. Does not wait, and acquires no lock.

        :return: True if there is a client to end.
        """

    @abstractmethod
    def end_with_program(self) -> None:
        """Start the end of the client, or log the lost records, because the program ends."""

    @abstractmethod
    def join(self, timeout_s: float | None) -> bool:
        """Wait for the end of the client, if it can be waited for; return whether it has ended."""

    @abstractmethod
    def interrupt_end(self) -> None:
        """Cancel the operations that the end of the client waits for."""

    def forked(self) -> None:
        """Notify the client in a forked child."""
        if self._after_fork is not None:
            self._after_fork(forked_error(self._pid))


class ApplicationLoop(ClientLifecycle):
    """The lifecycle of a client on the event loop of the application."""

    def __init__(self) -> None:
        super().__init__()
        self.loop: asyncio.AbstractEventLoop | None = None
        """The event loop; None before the client has started."""
        self._on_program_end: Callable[[], None] | None = None
        self.ended = asyncio.Event()
        """Set when the client has ended, by the caller of `claim_end`."""
        # a reference, because an event loop holds only weak references to its tasks
        self._ending: asyncio.Task[None] | None = None
        self.register()

    def start(self) -> None:
        """Use the running event loop."""
        self.loop = asyncio.get_running_loop()

    def end_with(
        self,
        client: object,
        finish: Finish,
        name: str,
        *,
        after_fork: Callable[[ClosedError], None] | None = None,
        on_program_end: Callable[[], None] | None = None,
    ) -> None:
        """End together with `client`, even if no caller closes it.

        :param on_program_end: logs the lost records. Without its event loop, the client can do nothing else.
        """
        self._on_program_end = on_program_end
        super().end_with(client, finish, name, after_fork=after_fork)

    async def wait_until_ended(self, timeout_s: float | None = None) -> None:
        """Wait for another task that closes the client.

        :raises TimedOutError: the client was not closed within `timeout_s` seconds.
        """
        if self.loop is not asyncio.get_running_loop():  # the loop of the closing task does not run any more
            return
        try:
            async with asyncio.timeout(timeout_s):
                await self.ended.wait()
        except TimeoutError:
            raise TimedOutError(f"another task was still closing this client after {timeout_s:g} s") from None

    def end_soon(self) -> bool:
        loop = self.loop
        if loop is None or loop.is_closed() or not self.claim_end():
            self.unregister()
            return loop is not None
        try:
            loop.call_soon_threadsafe(self._begin_to_end)
        except RuntimeError:  # the loop was closed at the same time
            self.unregister()
        return True

    def _begin_to_end(self) -> None:
        assert self.loop is not None
        assert self._finish is not None
        self._ending = self.loop.create_task(self._finish())
        self._ending.add_done_callback(self._on_ended)

    def _on_ended(self, _ended: asyncio.Task[None]) -> None:
        self.unregister()
        self.ended.set()

    def end_with_program(self) -> None:
        self.unregister()
        if self._on_program_end is not None:
            self._on_program_end()

    def join(self, timeout_s: float | None) -> bool:
        return True

    def interrupt_end(self) -> None:
        return


def forked_error(pid: int) -> ClosedError:
    """Return the error that calls of a client raise in a forked child."""
    return ClosedError(f"this client belongs to process {pid}, of which this one is a fork; make a new one here")


_lifecycles: set[ClientLifecycle] = set()


def _on_dropped(lifecycle: ClientLifecycle, name: str) -> None:
    """End a dropped client. The garbage collector calls this on any thread, so it must not acquire a lock."""
    if not lifecycle.is_forked_copy and lifecycle.end_soon():
        warnings.warn(
            f"{name} was dropped without close(), so it ends by itself; close it, or use a with block",
            ResourceWarning,
            stacklevel=2,
        )


def _end_with_program() -> None:
    """End all clients. Called at the end of the main thread, before Python waits for the other threads."""
    if _others():
        # A wait here could deadlock: other threads may wait for the end of the main thread.
        threading.Thread(target=_end_after_others, name="barnabas-end", daemon=False).start()
    else:
        _end_clients()


def _end_after_others() -> None:
    while others := _others():
        others[0].join()
    _end_clients()


def _others() -> list[threading.Thread]:
    """Return the other threads that Python waits for at the end. Their last records must be delivered too."""
    this = threading.current_thread()
    return [each for each in threading.enumerate() if each.is_alive() and not (each.daemon or each is this)]


def _end_clients() -> None:
    lifecycles = [lifecycle for lifecycle in list(_lifecycles) if not lifecycle.is_forked_copy]
    try:
        for lifecycle in lifecycles:
            lifecycle.end_with_program()
        for lifecycle in lifecycles:
            if not lifecycle.join(SILENCE_S):
                log.warning("the program ends when its clients have delivered what was sent; Ctrl-C ends it now")
                lifecycle.join(None)
    except KeyboardInterrupt:
        _give_up()


def _give_up() -> None:
    """Stop waiting after Ctrl-C, and let the clients log their lost records."""
    lifecycles = [lifecycle for lifecycle in list(_lifecycles) if not lifecycle.is_forked_copy]
    for lifecycle in lifecycles:
        lifecycle.end_with_program()
        lifecycle.interrupt_end()
    for lifecycle in lifecycles:
        lifecycle.join(GIVE_UP_S)


def _notify_forked() -> None:
    lifecycles = list(_lifecycles)
    _lifecycles.clear()
    for lifecycle in lifecycles:
        lifecycle.forked()


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return an event loop of uvloop if it is installed, or else of asyncio."""
    try:
        import uvloop  # noqa: PLC0415  optional
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


class LoopThread(ClientLifecycle):
    """Runs coroutines for other threads until `stop`, or until its client ends otherwise.

    :param new_loop: creates the event loop.
    """

    def __init__(self, name: str, new_loop: Callable[[], asyncio.AbstractEventLoop] = new_event_loop) -> None:
        super().__init__()
        self._loop = new_loop()
        self._lock = threading.RLock()
        """Held to pass a coroutine to the loop, and to reject further ones."""
        self._closed = False
        self._ended = threading.Event()
        self._ending: asyncio.Task[None] | None = None
        self._closer = 0
        """The identity of the thread that closes the client."""
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()
        self.register()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            with self._lock:
                self._closed = True
            # A coroutine that was passed to the loop but has not started is a task by now, so this cancels it, too.
            self._loop.run_until_complete(_cancel_others())
            self._loop.close()
            self.unregister()
            self._ended.set()

    @property
    def inside(self) -> bool:
        """Return whether the caller runs on this thread, which must not wait for itself."""
        return threading.current_thread() is self._thread

    def call(self, coroutine: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        """Run a coroutine on the thread and return its result; Ctrl-C in the main thread cancels it.

        :raises ClosedError: the thread has stopped, or belongs to the parent process.
        """
        if self.inside:
            coroutine.close()
            raise ClosedError(INSIDE)
        return self.wait(self.start(coroutine), timeout_s)

    def wait(self, future: concurrent.futures.Future[T], timeout_s: float | None = None) -> T:
        """Wait for the result of `start`; Ctrl-C in the main thread cancels the coroutine.

        :raises ClosedError: the thread has stopped, or belongs to the parent process.
        """
        self.check_process()
        try:
            return future.result(timeout_s)
        except concurrent.futures.CancelledError:
            raise ClosedError(CLOSED) from None
        except (KeyboardInterrupt, concurrent.futures.TimeoutError):
            future.cancel()
            raise

    def start(self, coroutine: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Run a coroutine on the thread without waiting for it; the end of the thread cancels it.

        :raises ClosedError: the thread has stopped, or belongs to the parent process.
        """
        if self.is_forked_copy:
            coroutine.close()
            raise forked_error(self._pid)
        with self._lock:
            if not self._closed:
                return asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        coroutine.close()
        raise ClosedError(CLOSED)

    def call_soon(self, function: Callable[[], object]) -> None:
        """Schedule a call of `function` on the thread. Does nothing after the end of the thread."""
        if self._closed or self.is_forked_copy:
            return
        try:
            self._loop.call_soon_threadsafe(function)
        except RuntimeError:  # the thread has ended at the same time
            return

    # --- the end ----------------------------------------------------------------------------------------

    def begin_close(self, timeout_s: float | None = None) -> bool:
        """Return whether the caller must close the client. Later callers wait here for the end.

        :raises ClosedError: the caller is the thread itself, which cannot wait for itself.
        :raises TimedOutError: the client was not closed within `timeout_s` seconds.
        """
        if self.is_forked_copy:
            return False
        if self.inside:
            raise ClosedError(INSIDE)
        if self.claim_end():
            self._closer = threading.get_ident()
            return True
        interrupts = self._closer == threading.get_ident()  # a signal handler that has interrupted `close`
        if not interrupts and not self.join(timeout_s):
            raise TimedOutError(f"this client was still being closed after {timeout_s:g} s")
        return False

    def stop(self, finish: Finish | None = None) -> None:
        """Run `finish`, cancel all other tasks, and end the thread; wait for its end. Further calls do nothing."""
        if self.is_forked_copy or self.inside:
            return
        self.claim_end()
        self.call_soon(partial(self._begin_to_end, finish))
        self.join(None)

    def end_soon(self) -> bool:
        if self._closed or not self.claim_end():
            return False
        self.call_soon(partial(self._begin_to_end, self._finish))
        return True

    def end_with_program(self) -> None:
        self.end_soon()

    def _begin_to_end(self, finish: Finish | None) -> None:
        if self._ending is None:
            self._ending = self._loop.create_task(self._end(finish))
            # Use a callback instead of code in the task: a task that is cancelled before its first step runs no code.
            self._ending.add_done_callback(lambda _ended: self._loop.stop())

    async def _end(self, finish: Finish | None) -> None:
        try:
            if finish is not None:
                await finish()
        except Exception:
            log.exception("%s did not end in an orderly way", self._thread.name)

    def interrupt_end(self) -> None:
        self.call_soon(lambda: self._ending is not None and self._ending.cancel())

    def join(self, timeout_s: float | None) -> bool:
        # Do not use `Thread.join`: after a Ctrl-C it reports the thread as ended (bpo-45274).
        return self._ended.wait(timeout_s)

    # --- fork -------------------------------------------------------------------------------------------

    def forked(self) -> None:
        if self._closed:
            return
        # Freeing the loop would remove its sockets from the epoll instance, which the parent shares.
        _inherited_loops.append(self._loop)
        super().forked()


async def _cancel_others() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


_inherited_loops: list[asyncio.AbstractEventLoop] = []

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_notify_forked)
# Child processes of `multiprocessing` skip the callbacks of `atexit`, but run those of the executors, in reverse order.
# So the first callback runs when no executor is left that could use a client.
_at_end = getattr(threading, "_threading_atexits", None)
if isinstance(_at_end, list):
    _at_end.insert(0, _end_with_program)
    atexit.register(_give_up)  # does nothing if all clients have ended
else:
    atexit.register(_end_clients)
