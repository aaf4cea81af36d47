"""One background thread with an event loop, on which a synchronous client's coroutines run.

The thread is a daemon: a program is never kept from ending by it, but for the wait in `lifecycle`.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import threading
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

from barnabas.client.client_lifecycle import ClientLifecycle, Finish, forked_error
from barnabas.errors import ClosedError, TimedOutError

log = logging.getLogger(__name__)

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
