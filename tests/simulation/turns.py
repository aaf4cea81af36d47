"""What brokers ask of the tree in several steps, each at a time of its own: others act in between.

It is asked in threads, and threads cannot be stopped and told to go on as coroutines can. So each broker has one, which
strictly takes turns with the loop: while one of them runs the other waits, and what happens is the same each time.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable

from tests.simulation.loop import DiedError
from tests.simulation.world import Host

Outcome = Callable[[object, Exception | None], None]
"""Told what a call returned, or why it failed."""


class LeftError(BaseException):
    """The run has ended, and nobody waits any more for what this thread does."""


class Turns:
    """The thread of a host that asks the tree; it begins when something is asked.

    :param delay_s: draws how long a step takes, in seconds.
    """

    def __init__(self, host: Host, delay_s: Callable[[], float]) -> None:
        self._host = host
        self._delay_s = delay_s
        self._thread: threading.Thread | None = None
        # Of the two at most one is free: whose turn it is. Locks, since a semaphore of Python takes six of them.
        self._thread_may, self._loop_may = threading.Lock(), threading.Lock()
        self._thread_may.acquire()
        self._loop_may.acquire()
        self._call: Callable[[], object] = int
        self._told: Outcome = _ignore
        self._outcome: tuple[object, Exception | None] | None = None
        self._is_first = True
        self._is_over = False

    def begin(self, call: Callable[[], object], told: Outcome) -> None:
        """Have something done by the thread, which does nothing else now."""
        if self._thread is None:
            self._host.world.at_end.append(self._leave)
            self._thread = threading.Thread(target=self._work, name=f"tree of {self._host.name}", daemon=True)
            self._thread.start()
        self._call, self._told = call, told
        self._outcome, self._is_first = None, True
        self._go_on()

    def step(self) -> None:
        """Called in the thread before each question: let time pass, but before the first of a call.

        :raises LeftError: the run has ended.
        """
        if self._is_first:
            self._is_first = False
            return
        self._loop_may.release()
        self._thread_may.acquire()
        if self._is_over:
            raise LeftError

    def _go_on(self) -> None:
        """Let the thread run until it has come to its next step, or is done."""
        self._thread_may.release()
        self._loop_may.acquire()
        if self._outcome is not None:
            self._told(*self._outcome)
        else:
            # An answer and the next question.
            self._host.after(self._delay_s() + self._delay_s(), self._go_on)

    def _work(self) -> None:
        context = contextvars.copy_context()
        context.run(_TURNS.set, self)
        while True:
            self._thread_may.acquire()
            if self._is_over:
                return
            try:
                self._outcome = context.run(self._call), None
            except LeftError:
                return
            except DiedError:
                pass  # nothing goes on here, and nobody is told
            except Exception as error:  # noqa: BLE001 - it is raised where the result is asked for
                self._outcome = None, error
            self._loop_may.release()

    def _leave(self) -> None:
        """End the thread: what it does then finds a dead host."""
        if self._thread is not None:
            self._is_over = True
            self._thread_may.release()
            self._thread.join()


_TURNS: contextvars.ContextVar[Turns | None] = contextvars.ContextVar("turns", default=None)


def step() -> None:
    """Let time pass before a question to the tree, where it is asked in a thread that takes turns."""
    turns = _TURNS.get()
    if turns is not None:
        turns.step()


def _ignore(*_: object) -> None:
    """Where nobody waits."""
