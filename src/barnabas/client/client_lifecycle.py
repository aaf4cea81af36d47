"""The lifecycle of a client: its event loop, and its shutdown if the application does not close it.

A synchronous client has a `LoopThread`: a background thread with an event loop. The thread is a daemon, so it does not
keep the program running. An asynchronous client has an `ApplicationLoop`. Both are subclasses of `ClientLifecycle`,
which handles three cases:

- The garbage collector frees an open client. The client delivers its records, leaves its group, and ends.
- The program ends. All clients finish after the program's other threads have ended, because these threads may use the
  clients. The program waits for the clients until Ctrl-C.
- The process forks. In the child, calls of the client raise `ClosedError`, and `close` does nothing.

A lifecycle holds no reference to its client, so that the garbage collector can free the client.
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
"""A coroutine function that runs on the client's event loop when the client ends. It must return in bounded time, and
must not hold a reference to the client.
"""

SILENCE_S = 2.0
"""The time in seconds after which an exiting program logs that it is waiting for its clients."""

GIVE_UP_S = 1.0
"""The time in seconds that clients have to log their lost records, if Ctrl-C interrupts the exit of the program.
"""


class ClientLifecycle(ABC):
    """The lifecycle of one client. There is a subclass for each kind of event loop."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._claims = [True]
        """A list with one element, which the first caller that ends the client removes. `pop` is atomic, so a
        finalizer, which must not acquire locks, can call it.
        """
        self._finish: Finish | None = None
        self._finalizer: weakref.finalize[[ClientLifecycle, str], Any] | None = None
        self._after_fork: Callable[[ClosedError], None] | None = None

    def register(self) -> None:
        """Make the end of the program wait for this client. This is the last step of the client's constructor: if
        Ctrl-C interrupts the constructor, there is no client to wait for.
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
        """End this lifecycle when `client` is garbage-collected or the program ends.

        :param finish: the coroutine function that ends the client. It is cancelled if Ctrl-C interrupts the exit of the
            program.
        :param name: the name of the client in warnings, for example "a producer".
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
        """Check that this process has created the client.

        :raises ClosedError: this process is a forked child of the process that created the client.
        """
        if self.is_forked_copy:
            raise forked_error(self._pid)

    def claim_end(self) -> bool:
        """Return True for the first caller, which must then end the client."""
        try:
            return self._claims.pop()
        except IndexError:
            return False

    def unregister(self) -> None:
        """Remove an ended client, so that neither the garbage collector nor the exit of the program ends it again."""
        _lifecycles.discard(self)
        if self._finalizer is not None:
            self._finalizer.detach()

    @abstractmethod
    def end_soon(self) -> bool:
        """Start to end the client, unless another caller has done so. Does not wait, and acquires no lock.

        :return: True if there is a client to end.
        """

    @abstractmethod
    def end_with_program(self) -> None:
        """Start to end the client, or log its lost records, because the program exits."""

    @abstractmethod
    def join(self, timeout_s: float | None) -> bool:
        """Wait until the client has ended, if this kind of client allows it; return whether it has ended."""

    @abstractmethod
    def interrupt_end(self) -> None:
        """Cancel the operations that delay the end of the client."""

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
        # Keep a reference to the task, because an event loop holds only weak references to its tasks.
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
        """End this lifecycle when `client` is garbage-collected or the program ends.

        :param on_program_end: logs the lost records. The client cannot deliver them, because its event loop has
            stopped.
        """
        self._on_program_end = on_program_end
        super().end_with(client, finish, name, after_fork=after_fork)

    async def wait_until_ended(self, timeout_s: float | None = None) -> None:
        """Wait until another task has closed the client.

        :raises TimedOutError: the client was not closed within `timeout_s` seconds.
        """
        if self.loop is not asyncio.get_running_loop():  # the event loop of the closing task has stopped
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
        except RuntimeError:  # another thread has just closed the event loop
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
    """End a client that was garbage-collected. The garbage collector may call this on any thread, so the function must
    not acquire a lock.
    """
    if not lifecycle.is_forked_copy and lifecycle.end_soon():
        warnings.warn(
            f"{name} was dropped without close(), so it ends by itself; close it, or use a with block",
            ResourceWarning,
            stacklevel=2,
        )


def _end_with_program() -> None:
    """End all clients when the program exits. Called at the end of the main thread, before Python joins the other
    threads.
    """
    if _others():
        # Waiting here could deadlock, because other threads may wait for the main thread to end.
        threading.Thread(target=_end_after_others, name="barnabas-end", daemon=False).start()
    else:
        _end_clients()


def _end_after_others() -> None:
    while others := _others():
        others[0].join()
    _end_clients()


def _others() -> list[threading.Thread]:
    """Return the other non-daemon threads, which Python joins at exit. The clients must still deliver the records of
    these threads.
    """
    this = threading.current_thread()
    return [each for each in threading.enumerate() if each.is_alive() and not (each.daemon or each is this)]


def _end_clients() -> None:
    lifecycles = [lifecycle for lifecycle in list(_lifecycles) if not lifecycle.is_forked_copy]
    try:
        for lifecycle in lifecycles:
            lifecycle.end_with_program()
        for lifecycle in lifecycles:
            if not lifecycle.join(SILENCE_S):
                log.warning(
                    "waiting for the clients to deliver their records before the exit; press Ctrl-C to exit now"
                )
                lifecycle.join(None)
    except KeyboardInterrupt:
        _give_up()


def _give_up() -> None:
    """Stop waiting after Ctrl-C, and make the clients log their lost records."""
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
    """Return a uvloop event loop if uvloop is installed, and an asyncio event loop otherwise."""
    try:
        import uvloop  # noqa: PLC0415  optional
    except ImportError:
        return asyncio.SelectorEventLoop()  # Windows' default loop watches no sockets
    return uvloop.new_event_loop()


class LoopThread(ClientLifecycle):
    """A background thread that runs coroutines for other threads until `stop`, or until its client ends in another way.

    :param new_loop: creates the event loop.
    """

    def __init__(self, name: str, new_loop: Callable[[], asyncio.AbstractEventLoop] = new_event_loop) -> None:
        super().__init__()
        self._loop = new_loop()
        self._lock = threading.RLock()
        """Held to pass a coroutine to the loop, and to start rejecting coroutines."""
        self._closed = False
        self._ended = threading.Event()
        self._ending: asyncio.Task[None] | None = None
        self._closer = 0
        """The id of the thread that closes the client."""
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
            # By now, a coroutine that was passed to the loop is a task, even if it has not started. So this cancels it,
            # too.
            self._loop.run_until_complete(_cancel_others())
            self._loop.close()
            self.unregister()
            self._ended.set()

    @property
    def inside(self) -> bool:
        """Return whether the caller runs on this background thread, and so must not wait for it."""
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
        """Run a coroutine on the thread without waiting for it. The coroutine is cancelled when the thread ends.

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
        except RuntimeError:  # the background thread has just ended
            return

    # --- the end ----------------------------------------------------------------------------------------

    def begin_close(self, timeout_s: float | None = None) -> bool:
        """Return True for the first caller, which must close the client. Later callers wait here until it is closed.
        :raises ClosedError: the caller runs on the background thread, which cannot wait for itself.
        :raises TimedOutError: the client was not closed within `timeout_s` seconds.
        """
        if self.is_forked_copy:
            return False
        if self.inside:
            raise ClosedError(INSIDE)
        if self.claim_end():
            self._closer = threading.get_ident()
            return True
        # If this thread is already closing the client, the caller is a signal handler that has interrupted `close`.
        interrupts = self._closer == threading.get_ident()
        if not interrupts and not self.join(timeout_s):
            raise TimedOutError(f"this client was still being closed after {timeout_s:g} s")
        return False

    def stop(self, finish: Finish | None = None) -> None:
        """Run `finish`, cancel all other tasks, and wait until the thread has ended. Further calls do nothing."""
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
            log.exception("%s did not shut down cleanly", self._thread.name)

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
# A child process of `multiprocessing` does not run `atexit` callbacks, but runs the exit callbacks of executors, in
# reverse order. So insert the callback as the first one: it then runs last, when no executor can use a client any more.
_at_end = getattr(threading, "_threading_atexits", None)
if isinstance(_at_end, list):
    _at_end.insert(0, _end_with_program)
    atexit.register(_give_up)  # `_give_up` does nothing if all clients have ended
else:
    atexit.register(_end_clients)
