"""Summarizes latencies: exact percentiles, and a histogram on a logarithmic scale."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

BUCKETS_PER_DECADE = 20
LOWEST_MS = 0.01
"""The upper bound of the histogram's first bucket, in milliseconds."""


@dataclass(frozen=True, slots=True)
class LatencySummary:
    """The summary of latencies in milliseconds. The figures are None if there are no samples.

    :param histogram: pairs of the upper bound and the count of a bucket, from the first to the last bucket that is not
        empty.
    """

    count: int
    mean_ms: float | None
    p50_ms: float | None
    p90_ms: float | None
    p99_ms: float | None
    p999_ms: float | None
    max_ms: float | None
    histogram: tuple[tuple[float, int], ...]

    def as_json(self) -> dict[str, Any]:
        """Return the fields for the report."""
        return asdict(self)


NOTHING = LatencySummary(0, None, None, None, None, None, None, ())


def summarise(samples_s: array[float]) -> LatencySummary:
    """Return the summary of latencies in seconds; `NOTHING` if there are none."""
    if not samples_s:
        return NOTHING
    ordered = sorted(samples_s)
    p50, p90, p99, p999 = (round(percentile(ordered, share) * 1e3, 4) for share in (0.5, 0.9, 0.99, 0.999))
    return LatencySummary(
        count=len(ordered),
        mean_ms=round(math.fsum(ordered) / len(ordered) * 1e3, 4),
        p50_ms=p50,
        p90_ms=p90,
        p99_ms=p99,
        p999_ms=p999,
        max_ms=round(ordered[-1] * 1e3, 4),
        histogram=histogram_ms(ordered),
    )


def percentile(ordered: Sequence[float], share: float) -> float:
    """Return the exact percentile by the nearest-rank method: at least the fraction `share` of all values do not exceed
    it.

    >>> percentile([1, 2, 3, 4], 0.5), percentile([1, 2, 3, 4], 0.51), percentile([7], 0.999)
    (2, 3, 7)
    """
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def histogram_ms(ordered_s: Sequence[float]) -> tuple[tuple[float, int], ...]:
    """Return the buckets of sorted latencies in seconds as pairs (upper bound in ms, count)."""
    buckets: list[tuple[float, int]] = []
    done = 0
    number = _bucket_of(ordered_s[0] * 1e3)
    while done < len(ordered_s):
        upper_ms = _upper_ms(number)
        end = bisect_right(ordered_s, upper_ms / 1e3, lo=done)
        if end:
            buckets.append((upper_ms, end - done))
        done = end
        number += 1
    return tuple(buckets)


def _upper_ms(number: int) -> float:
    return float(f"{LOWEST_MS * 10 ** (number / BUCKETS_PER_DECADE):.4g}")


def _bucket_of(value_ms: float) -> int:
    """Return the bucket number of a value. Because of rounding, the number may be too low."""
    if value_ms <= LOWEST_MS:
        return 0
    return max(0, math.floor(math.log10(value_ms / LOWEST_MS) * BUCKETS_PER_DECADE))
