"""Runs experiments in pairs (A B B A). Each turn has a time limit."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from bench.arena import fresh_folder
from bench.compare.experiments import Experiment, Results
from bench.compare.report import Row
from bench.compare.sides import Side
from bench.progress import Progress

PREPARATION_LIMITS = 3
"""The time limit of a preparation, as a multiple of a turn's limit."""


class TurnLimitError(Exception):
    """A turn exceeded its time limit."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The number of runs of each side.

    :param pairs: the number of counted runs.
    :param uncounted: the number of warm-up runs before the counted runs.
    """

    pairs: int
    uncounted: int = 1

    def seconds(self, experiments: Sequence[Experiment]) -> float:
        """Return the approximate duration of all turns."""
        turns = 2 * (self.pairs + self.uncounted)
        return sum(turns * each.turn_s + 2 * each.prepare_s for each in experiments)


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Interrupt the block when its time limit is exceeded, but never during the cleanup after Ctrl-C (`interruptible`).

    :raises TurnLimitError: if the time limit is exceeded.
    """

    def end(_number: int, _frame: FrameType | None) -> None:
        if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
            raise TurnLimitError(f"took longer than {seconds:g} s")

    before = signal.signal(signal.SIGALRM, end)
    left_s, _ = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, left_s)
        signal.signal(signal.SIGALRM, before)


def order_of(pair: int) -> tuple[int, int]:
    """Return the order of the sides in a pair: A B, B A, A B ...

    >>> [order_of(pair) for pair in range(3)]
    [(0, 1), (1, 0), (0, 1)]
    """
    return (1, 0) if pair % 2 else (0, 1)


class Turns:
    """The runs of one experiment.

    :param sides: base and checkout.
    :param parent: the parent of the brokers' directories.
    :param rows: one row per case. The rows keep their results if the experiment fails or is interrupted.
    """

    def __init__(
        self, experiment: Experiment, sides: tuple[Side, Side], parent: Path, rows: Sequence[Row], progress: Progress
    ) -> None:
        self._experiment = experiment
        self._sides = sides
        self._parent = parent
        self._rows = rows
        self._progress = progress
        self._prepared: list[Path] = []

    def run(self, plan: Plan) -> None:
        """Run all turns. The rows of a failed experiment contain the reason."""
        running = self._sides[0]
        with ExitStack() as stack:
            try:
                if self._experiment.prepare:
                    for running in self._sides:
                        self._prepare(stack, running)
                for pair in range(-plan.uncounted, plan.pairs):
                    for number in order_of(pair):
                        running = self._sides[number]
                        self._note(number, pair, plan, self._turn(number))
            except Exception as error:  # noqa: BLE001  # a failed experiment must not stop the other experiments
                problem = f"{running.title}: {' '.join(str(error).split())[:200] or type(error).__name__}"
                self._progress.say(f"{self._experiment.title} failed: {problem}")
                for row in self._rows:
                    row.problem = problem

    def _prepare(self, stack: ExitStack, side: Side) -> None:
        assert self._experiment.prepare
        self._prepared.append(stack.enter_context(fresh_folder(self._parent)))
        self._progress.say(f"{self._experiment.title}: preparing the data of {side.title}")
        with time_limit(self._experiment.limit_s * PREPARATION_LIMITS):
            self._experiment.prepare(side, self._prepared[-1])

    def _turn(self, number: int) -> Results:
        with ExitStack() as stack:
            folder = self._prepared[number] if self._prepared else stack.enter_context(fresh_folder(self._parent))
            stack.enter_context(time_limit(self._experiment.limit_s))
            return self._experiment.turn(self._sides[number], folder)

    def _note(self, number: int, pair: int, plan: Plan, results: Results) -> None:
        shown = ", ".join(f"{row.case.name} {results[row.case.name].value:,.4g} {row.case.unit}" for row in self._rows)
        which = f"pair {pair + 1}/{plan.pairs}" if pair >= 0 else "uncounted"
        self._progress.say(f"{self._experiment.title}, {which}, {self._sides[number].title}: {shown}")
        if pair >= 0:
            for row in self._rows:
                (row.checkout if number else row.base).append(results[row.case.name])
