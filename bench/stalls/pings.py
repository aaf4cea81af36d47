"""What became of the pings of one window. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

INTERVAL_S = 0.005
"""A ping is to be sent every so often, whether the ones before it were answered or not."""


@dataclass(frozen=True, slots=True)
class Pings:
    """The latencies of a window, each counted from the moment at which its ping was to be sent.

    :param worst_ms: the longest.
    :param answered_all: False if some were never answered: the worst is then at least so long.
    """

    count: int
    worst_ms: float
    p99_ms: float
    answered_all: bool


def summarise(answered_ms: Sequence[float], waiting_ms: Sequence[float] = ()) -> Pings:
    """Put a window together.

    :param answered_ms: latencies of answered pings.
    :param waiting_ms: how long the others had been waiting when the window ended.

    >>> summarise([1.0, 2.0], [7.0])
    Pings(count=3, worst_ms=7.0, p99_ms=7.0, answered_all=False)
    """
    latencies = sorted([*answered_ms, *waiting_ms])
    if not latencies:
        return Pings(0, 0.0, 0.0, answered_all=True)
    return Pings(len(latencies), latencies[-1], nearest_rank(latencies, 0.99), not waiting_ms)


def nearest_rank(ascending: Sequence[float], share: float) -> float:
    """Return the least value that this share of the values does not exceed.

    >>> nearest_rank([1.0, 2.0, 3.0, 4.0], 0.5)
    2.0
    """
    return ascending[max(0, math.ceil(len(ascending) * share) - 1)]
