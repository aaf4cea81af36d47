"""The delay before a retry: exponential, with jitter, so that clients do not retry at the same time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

JITTER = 0.2


@dataclass(frozen=True, slots=True)
class Backoff:
    """Delays of `initial_ms * 2 ** attempt`, at most `max_ms`, with a jitter of 20 % (KIP-580)."""

    initial_ms: float
    max_ms: float
    random: Callable[[], float]
    """A function that returns a number in [0, 1), such as `random.random`."""

    def delay_s(self, attempt: int) -> float:
        """Return the delay in seconds after failed attempt number `attempt`, counted from 0.

        >>> Backoff(initial_ms=100, max_ms=1000, random=lambda: 0.5).delay_s(2)
        0.4
        """
        delay_ms = min(self.initial_ms * 2.0 ** min(attempt, 32), self.max_ms)
        return delay_ms * (1 - JITTER + 2 * JITTER * self.random()) / 1000
