"""The statistics of a comparison: ratios of adjacent runs, their median with an exact interval, and the verdict.

A ratio above 1 means that the checkout is better: checkout/base for a rate, base/checkout for a time or memory.

The interval contains the median of the ratio's distribution with a probability of at least 95 %, for any distribution.
Its ends are order statistics (the inverted sign test): the k-th smallest and the k-th largest of n ratios. The
probability that the median is outside equals the probability that fewer than k of n fair coins show heads, or fewer
than k show tails. `k` is the largest number for which this probability is at most 5 %. For seven pairs, k is 1: the
interval is the range of all ratios and contains the median with 98.4 %.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

CONFIDENCE = 0.95
RATIO_TO_REACH = 0.95
CPU_RATIO_MAX = 1.05


@dataclass(frozen=True, slots=True)
class Measurement:
    """The result of one run of one side.

    :param cpu_s: the CPU seconds of the broker per million records; None if no records are counted.
    """

    value: float
    cpu_s: float | None = None


@dataclass(frozen=True, slots=True)
class Interval:
    """The median ratio with the ends of its interval."""

    median: float
    low: float
    high: float


def rank_of(pairs: int) -> int:
    """Return k: the interval extends from the k-th smallest to the k-th largest ratio.

    Fewer than six pairs cannot reach 95 %; their interval is the range of all ratios.

    >>> [rank_of(pairs) for pairs in (1, 7, 8, 9, 12, 20)]
    [1, 1, 1, 2, 3, 6]
    """
    rank = 1
    while coverage(pairs, rank + 1) >= CONFIDENCE:
        rank += 1
    return rank


def coverage(pairs: int, rank: int) -> float:
    """Return the probability that the interval of a rank contains the median.

    >>> round(coverage(7, 1), 4)
    0.9844
    """
    outside: float = 2 * sum(math.comb(pairs, heads) for heads in range(rank)) / 2**pairs
    return max(0.0, 1 - outside)


def interval_of(ratios: Sequence[float]) -> Interval:
    """Return the median of ratios with its interval.

    >>> interval_of([1.0, 0.9, 1.1, 1.2, 0.8, 1.3, 1.05])
    Interval(median=1.05, low=0.8, high=1.3)
    """
    ascending = sorted(ratios)
    rank = rank_of(len(ascending))
    return Interval(statistics.median(ascending), ascending[rank - 1], ascending[-rank])


def ratios_of(base: Sequence[Measurement], checkout: Sequence[Measurement], *, is_rate: bool) -> list[float]:
    """Return the ratio of each pair. If both values are 0, the ratio is 1.

    >>> ratios_of([Measurement(2.0)], [Measurement(1.0)], is_rate=True)
    [0.5]
    >>> ratios_of([Measurement(2.0)], [Measurement(1.0)], is_rate=False)
    [2.0]
    """
    pairs = [(after.value, before.value) for before, after in zip(base, checkout, strict=False)]
    return [_quotient(after, before) if is_rate else _quotient(before, after) for after, before in pairs]


def cpu_ratio_of(base: Sequence[Measurement], checkout: Sequence[Measurement]) -> float | None:
    """Return the median ratio checkout/base of the broker's CPU time; None if it was not measured."""
    pairs = [(each.cpu_s, other.cpu_s) for each, other in zip(checkout, base, strict=False)]
    ratios = [_quotient(after, before) for after, before in pairs if after is not None and before is not None]
    return statistics.median(ratios) if ratios else None


def verdict_of(interval: Interval, cpu_ratio: float | None) -> str:
    """Return `pass`, or the exceeded limits.

    >>> verdict_of(Interval(0.9, 0.85, 0.95), 1.05)
    'pass'
    >>> verdict_of(Interval(0.9, 0.85, 0.94), 1.06)
    'FAIL: below 0.95, CPU above 1.05'
    """
    reasons = []
    if interval.high < RATIO_TO_REACH:
        reasons.append(f"below {RATIO_TO_REACH}")
    if cpu_ratio is not None and cpu_ratio > CPU_RATIO_MAX:
        reasons.append(f"CPU above {CPU_RATIO_MAX}")
    return f"FAIL: {', '.join(reasons)}" if reasons else "pass"


def _quotient(over: float, under: float) -> float:
    if under:
        return over / under
    return math.inf if over else 1.0
