"""Sums over the last 30 seconds, for the metrics of clients."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from barnabas.clock import Clock

WINDOW_S = 30.0
"""The time window in seconds for rates and latencies, as in Kafka's client metrics."""

STEP_S = 1.0


class RollingSum:
    """Sums over the last `WINDOW_S` seconds, with a resolution of one second.

    >>> from barnabas.clock import ManualClock
    >>> clock = ManualClock()
    >>> bytes_sent = RollingSum(clock)
    >>> bytes_sent.add(10); clock.advance(5); bytes_sent.add(20)
    >>> bytes_sent.per_s(), bytes_sent.mean(), bytes_sent.greatest()
    (6.0, 15.0, 20)
    >>> clock.advance(100); bytes_sent.per_s(), bytes_sent.mean(), bytes_sent.greatest()
    (0.0, 0.0, 0.0)
    """

    def __init__(self, clock: Clock) -> None:
        self.total = 0.0
        self.count = 0
        self._clock = clock
        self._began_s = clock.monotonic()
        self._steps: deque[list[float]] = deque()
        """The start time, sum, count and greatest amount of each step."""
        self._step: list[float] = []
        """The last element of `_steps`."""
        self._step_ends_s = self._began_s

    def add(self, amount: float) -> None:
        """Count one event of this amount."""
        self.total += amount
        self.count += 1
        now_s = self._clock.monotonic()
        if now_s >= self._step_ends_s:
            self._begin_step(now_s, amount)
        step = self._step
        step[1] += amount
        step[2] += 1
        if amount > step[3]:  # noqa: PLR1730 - max() takes longer
            step[3] = amount

    def _begin_step(self, now_s: float, amount: float) -> None:
        while self._steps and now_s - self._steps[0][0] > WINDOW_S:
            self._steps.popleft()
        self._step = [now_s, 0.0, 0, amount]
        self._steps.append(self._step)
        self._step_ends_s = now_s + STEP_S

    def recent(self) -> list[list[float]]:
        """Return the start time, sum, count and greatest amount of each step of the last `WINDOW_S` seconds."""
        now_s = self._clock.monotonic()
        return [step for step in self._steps.copy() if now_s - step[0] <= WINDOW_S]

    def per_s(self) -> float:
        """Return the sum per second."""
        seconds = min(self._clock.monotonic() - self._began_s, WINDOW_S)
        return sum(step[1] for step in self.recent()) / max(seconds, STEP_S)

    def mean(self) -> float:
        """Return the mean amount of an event."""
        return mean_of((self,))

    def greatest(self) -> float:
        """Return the greatest amount of an event."""
        return greatest_of((self,))


def mean_of(sums: Iterable[RollingSum]) -> float:
    """Return the mean amount of the events in all of these sums."""
    steps = [step for each in sums for step in each.recent()]
    return sum(step[1] for step in steps) / max(sum(step[2] for step in steps), 1)


def greatest_of(sums: Iterable[RollingSum]) -> float:
    """Return the greatest amount of the events in all of these sums."""
    return max((step[3] for each in sums for step in each.recent()), default=0.0)
