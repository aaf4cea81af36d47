"""What brokers ask of the tree in several steps, each at a time of its own: others act in between.

Production asks it in threads, which cannot be stopped in the midst and told to go on as coroutines can. A greenlet can:
it stands for a broker's thread, and the loop goes on while it waits. Threads that strictly took turns with the loop did
the same, and took a fifteenth of a run's CPU time to wake each other up.
"""

from __future__ import annotations

import contextvars
from collections.abc import Callable

from greenlet import greenlet

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
        # As of a thread: nothing that it does belongs to a host.
        self._context = contextvars.Context()
        self._context.run(_TURNS.set, self)
        self._call: Callable[[], object] = int
        self._told: Outcome = _ignore
        self._outcome: tuple[object, Exception | None] | None = None
        self._is_first = True
        self._is_over = False
        self._work: greenlet | None = None

    def begin(self, call: Callable[[], object], told: Outcome) -> None:
        """Have something done by the thread, which does nothing else now."""
        if self._work is None:
            self._host.world.at_end.append(self._leave)
        self._call, self._told = call, told
        self._outcome, self._is_first = None, True
        self._work = greenlet(self._carry_out)
        self._go_on()

    def step(self) -> None:
        """Called in the thread before each question: let time pass, but before the first of a call.

        :raises LeftError: the run has ended.
        """
        if self._is_first:
            self._is_first = False
            return
        if not self._is_over:
            assert self._work is not None
            assert self._work.parent is not None
            self._work.parent.switch()
        if self._is_over:
            raise LeftError

    def _go_on(self) -> None:
        """Let the thread run until it has come to its next step, or is done."""
        assert self._work is not None
        self._work.switch()
        if self._outcome is not None:
            self._told(*self._outcome)
        else:
            # An answer and the next question.
            self._host.after(self._delay_s() + self._delay_s(), self._go_on)

    def _carry_out(self) -> None:
        try:
            self._outcome = self._context.run(self._call), None
        except (LeftError, DiedError):
            pass  # nothing goes on here, and nobody is told
        except Exception as error:  # noqa: BLE001 - it is raised where the result is asked for
            self._outcome = None, error

    def _leave(self) -> None:
        """End the thread: what it does then finds a dead host."""
        self._is_over = True
        if self._work is not None and not self._work.dead:
            self._work.switch()


_TURNS: contextvars.ContextVar[Turns | None] = contextvars.ContextVar("turns", default=None)


def step() -> None:
    """Let time pass before a question to the tree, where it is asked in a thread that takes turns."""
    turns = _TURNS.get()
    if turns is not None:
        turns.step()


def _ignore(*_: object) -> None:
    """Where nobody waits."""
