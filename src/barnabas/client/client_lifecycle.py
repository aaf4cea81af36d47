"""The life of a client: its event loop, and its end where no one closes it.

A synchronous client has a `LoopThread`: a background thread with an event loop. The thread is a daemon, so that it
keeps no program from ending. An asynchronous client has an `ApplicationLoop`. Both are a `ClientLifecycle`, which
handles:

- The garbage collector drops an open client. The client finishes (delivers its records, leaves its group) and ends.
- The program ends. All clients finish as soon as the other threads of the program have ended, for these may use clients
  until then. The program waits for the clients. Ctrl-C ends the wait.
- The process forks. Calls of the copy raise `ClosedError`; to close the copy does nothing.

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

log = logging.getLogger(__name__)

Finish = Callable[[], Coroutine[Any, Any, None]]
"""What is to be done on the client's event loop at its end; it must not take for ever, nor lead to the client."""

SILENCE_S = 2.0
"""After so long the end of a program says what it waits for."""

GIVE_UP_S = 1.0
"""How long clients have to say what they lost, when the end of a program is interrupted."""


class ClientLifecycle(ABC):
    """One client's, from its making to its end. A subclass for each kind of event loop that clients run on."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._claims = [True]
        """Holds something until somebody ends the client. To take it out is one step, so that it needs no lock: a
        finaliser may run anywhere, also where the lock would be held."""
        self._finish: Finish | None = None
        self._finalizer: weakref.finalize[[ClientLifecycle, str], Any] | None = None
        self.after_fork: Callable[[ClosedError], None] | None = None
        """Called in a forked child, with the error that the copy's calls should raise."""

    def register(self) -> None:
        """From now on the end of the program waits for it: the last step of its making. Of one that Ctrl-C has kept
        from being made whole there would be nothing to wait for, and no end to it."""
        _lifecycles.add(self)

    def end_with(self, client: object, finish: Finish, name: str) -> None:
        """End with `client`, also where nobody closes it.

        :param finish: cancelled when somebody interrupts the end of the program.
        :param name: what the client is called in the warning, with its article.
        """
        self._finish = finish
        self._finalizer = weakref.finalize(client, _on_dropped, self, name)
        self._finalizer.atexit = False

    @property
    def is_forked_copy(self) -> bool:
        """Whether this is a copy in a forked child."""
        return self._pid != os.getpid()

    def check_process(self) -> None:
        """:raises ClosedError: this is a copy in a forked child."""
        if self.is_forked_copy:
            raise forked_error(self._pid)

    def claim_end(self) -> bool:
        """Whether the caller is the first that ends the client, and so has to do it."""
        try:
            return self._claims.pop()
        except IndexError:
            return False

    def unregister(self) -> None:
        """The client has ended: there is nothing to be done any more when it is dropped, or the program ends."""
        _lifecycles.discard(self)
        if self._finalizer is not None:
            self._finalizer.detach()

    @abstractmethod
    def end_soon(self) -> bool:
        """Finish, and then end, if nobody else ends the client; waits for nothing and takes no lock. Returns whether
        there is something to end."""

    @abstractmethod
    def end_with_program(self) -> None:
        """Begin the end, or say what is lost, because the program is about to end."""

    @abstractmethod
    def join(self, timeout_s: float | None) -> bool:
        """Wait until the end has come, if it is one to wait for; return whether it has."""

    @abstractmethod
    def interrupt_end(self) -> None:
        """Have the end come at once that is under way."""

    def forked(self) -> None:
        """Tell the owner, in a forked child, that this is a copy."""
        if self.after_fork is not None:
            self.after_fork(forked_error(self._pid))


class ApplicationLoop(ClientLifecycle):
    """For clients that run on the event loop of the application.

    :param on_program_end: says what is lost, for without its event loop the client can do nothing any more.
    """

    def __init__(self, on_program_end: Callable[[], None] | None = None) -> None:
        super().__init__()
        self.loop: asyncio.AbstractEventLoop | None = None
        """None before the client has begun."""
        self.on_program_end = on_program_end
        self.ended = asyncio.Event()
        """Set by whoever has claimed the end, when it has come."""
        self._ending: asyncio.Task[None] | None = None  # an event loop holds its tasks but weakly
        self.register()

    async def wait_until_ended(self, timeout_s: float | None = None) -> None:
        """Wait until another task, which closes the client already, has done so.

        :raises TimedOutError: that took longer than `timeout_s`.
        """
        if self.loop is not asyncio.get_running_loop():  # no task is left that could close the client
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
        except RuntimeError:  # it was closed just now
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
        if self.on_program_end is not None:
            self.on_program_end()

    def join(self, timeout_s: float | None) -> bool:
        return True

    def interrupt_end(self) -> None:
        return


def forked_error(pid: int) -> ClosedError:
    """Return what calls of a client raise in a child of the process that it was made in."""
    return ClosedError(f"this client belongs to process {pid}, of which this one is a fork; make a new one here")


_lifecycles: set[ClientLifecycle] = set()


def _on_dropped(lifecycle: ClientLifecycle, name: str) -> None:
    """Run by the garbage collector, anywhere: whatever lock the code there holds must not be wanted here."""
    if not lifecycle.is_forked_copy and lifecycle.end_soon():
        warnings.warn(
            f"{name} was dropped without close(), so it ends by itself; close it, or use a with block",
            ResourceWarning,
            stacklevel=2,
        )


def _end_with_program() -> None:
    """Called when the main thread has come to its end, before Python waits for the other threads."""
    if _others():
        # Not here: they may wait for the end of the main thread, which comes after this.
        threading.Thread(target=_end_after_others, name="barnabas-end", daemon=False).start()
    else:
        _end_clients()


def _end_after_others() -> None:
    while others := _others():
        others[0].join()
    _end_clients()


def _others() -> list[threading.Thread]:
    """Return the other threads that Python waits for at the end: what they still send shall be delivered, too."""
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
    """Where Ctrl-C has ended the wait: let clients say what is lost."""
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


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_notify_forked)
# Callbacks of `atexit` are not run in children of `multiprocessing`; those that the executors use are. They are called
# last to first, so the first one comes when no executor works any more that might use a client.
_at_end = getattr(threading, "_threading_atexits", None)
if isinstance(_at_end, list):
    _at_end.insert(0, _end_with_program)
    atexit.register(_give_up)  # when the clients have ended, there is nothing left for it
else:
    atexit.register(_end_clients)


T = TypeVar("T")

CLOSED = "this client is closed; make a new one"
INSIDE = "a callback must not wait for the client that runs it; use another thread"


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return uvloop's event loop where it is installed, else asyncio's own."""
    try:
        import uvloop  # noqa: PLC0415  optional
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


class LoopThread(ClientLifecycle):
    """Runs coroutines for other threads, until `stop`, or until its client has ended in another way.

    :param new_loop: makes its event loop.
    """

    def __init__(self, name: str, new_loop: Callable[[], asyncio.AbstractEventLoop] = new_event_loop) -> None:
        super().__init__()
        self._loop = new_loop()
        self._lock = threading.RLock()
        """Held to give the loop something that somebody waits for, and to say that it takes nothing any more."""
        self._closed = False
        self._ended = threading.Event()
        self._ending: asyncio.Task[None] | None = None
        self._closer = 0
        """The thread that closes the client."""
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
            # What was given to the loop before that, and has not even begun, is a task by then, and cancelled too.
            self._loop.run_until_complete(_cancel_others())
            self._loop.close()
            self.unregister()
            self._ended.set()

    @property
    def inside(self) -> bool:
        """Whether the caller runs on this thread, where waiting for it would never end."""
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
        """Return the result of what was started; Ctrl-C in the main thread cancels it.

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
        """Run a coroutine on the thread without waiting for it; it is cancelled when the thread stops before its end.

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
        """Call `function` on the thread soon; ignored when the thread has stopped."""
        if self._closed or self.is_forked_copy:
            return
        try:
            self._loop.call_soon_threadsafe(function)
        except RuntimeError:  # it has stopped just now
            return

    # --- the end ----------------------------------------------------------------------------------------

    def begin_close(self, timeout_s: float | None = None) -> bool:
        """Whether the caller, who wants to close the client, has to; who is not the first waits here until it is done.

        :raises ClosedError: this is called on the thread itself, which cannot wait for itself.
        :raises TimedOutError: it was not done after `timeout_s`.
        """
        if self.is_forked_copy:
            return False
        if self.inside:
            raise ClosedError(INSIDE)
        if self.claim_end():
            self._closer = threading.get_ident()
            return True
        interrupts = self._closer == threading.get_ident()  # a signal handler, in the middle of the closing
        if not interrupts and not self.join(timeout_s):
            raise TimedOutError(f"this client was still being closed after {timeout_s:g} s")
        return False

    def stop(self, finish: Finish | None = None) -> None:
        """Do what is left to do, cancel what else runs, and end the thread; waits for that. May be called again."""
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
            # Not in the task: one that is cancelled before it has begun does nothing at all.
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
        # Not by `Thread.join`: one that Ctrl-C interrupts takes the thread for dead (bpo-45274).
        return self._ended.wait(timeout_s)

    # --- fork -------------------------------------------------------------------------------------------

    def forked(self) -> None:
        if self._closed:
            return
        # To free a loop would be to take its sockets out of the epoll instance, which is the parent's too.
        _inherited_loops.append(self._loop)
        super().forked()


async def _cancel_others() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


_inherited_loops: list[asyncio.AbstractEventLoop] = []
