"""How clients end that nobody closes: dropped, at the end of the program, or copied by a fork.

Every client has one `ClientLifecycle`, and here is the only place that hears of these three:

- Nobody holds the client any more: it is told to finish (to deliver, to leave its group), and ends when it has.
- The program ends: as soon as its other threads have ended, which may use clients until then, all clients finish, and
  the program waits for them. Ctrl-C ends the wait.
- A fork copies the client, but not what it runs on: every call of the copy says so, and closing it does nothing.

A life never refers to its client, or that would never be dropped.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import threading
import warnings
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from typing import Any

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
