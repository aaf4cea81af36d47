"""The latencies of the pings during one scenario. This module does no I/O."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

INTERVAL_S = 0.005
"""The interval between the due times of pings, in seconds."""


@dataclass(frozen=True, slots=True)
class Pings:
    """A summary of the latencies of pings, measured from their due times.

    :param worst_ms: the longest latency.
    :param answered_all: False if some pings had no response: the worst latency is then a lower bound.
    """

    count: int
    worst_ms: float
    p99_ms: float
    answered_all: bool


def summarise(answered_ms: Sequence[float], waiting_ms: Sequence[float] = ()) -> Pings:
    """Summarize latencies.

    :param answered_ms: the latencies of pings with a response.
    :param waiting_ms: the waiting times, at the end, of the pings without a response.

    >>> summarise([1.0, 2.0], [7.0])
    Pings(count=3, worst_ms=7.0, p99_ms=7.0, answered_all=False)
    """
    latencies = sorted([*answered_ms, *waiting_ms])
    if not latencies:
        return Pings(0, 0.0, 0.0, answered_all=True)
    return Pings(len(latencies), latencies[-1], nearest_rank(latencies, 0.99), not waiting_ms)


def nearest_rank(ascending: Sequence[float], share: float) -> float:
    """Return the percentile by the nearest-rank method: at least the fraction `share` of all values do not exceed it.

    >>> nearest_rank([1.0, 2.0, 3.0, 4.0], 0.5)
    2.0
    """
    return ascending[max(0, math.ceil(len(ascending) * share) - 1)]
