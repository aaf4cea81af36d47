"""Random draws from a seed. The module uses numpy's PCG64 generator, but implements the distributions itself.

numpy guarantees that PCG64 yields the same numbers in all versions, but gives no such guarantee for its distributions.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class RandomDraws:
    """A source of random numbers.

    :param place: numbers that select one of the seed's independent random streams.
    """

    def __init__(self, seed: int, *place: int) -> None:
        self._generator = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, *place])))

    def uniform(self, count: int, low: float = 0.0, high: float = 1.0) -> Floats:
        """Return uniform numbers from `low` to `high`."""
        return low + (high - low) * self._generator.random(count)

    def chance(self, likely: Floats | float, count: int) -> NDArray[np.bool_]:
        """Return booleans that are true with the given probabilities."""
        return self._generator.random(count) < likely

    def below(self, limit: int, count: int) -> Ints:
        """Return integers from 0 to a limit (exclusive)."""
        return (self._generator.random(count) * limit).astype(np.int64)

    def exponential(self, mean: float, count: int) -> Floats:
        """Return exponentially distributed waiting times."""
        waits: Floats = -mean * np.log1p(-self._generator.random(count))
        return waits

    def ranks(self, cumulative: Floats, count: int) -> Ints:
        """Return random ranks with the weights that `zipf` returned."""
        return np.searchsorted(cumulative, self._generator.random(count), side="right").astype(np.int64)

    def permutation(self, count: int) -> Ints:
        """Return the numbers below `count` in random order."""
        return np.argsort(self._generator.random(count), kind="stable").astype(np.int64)


def zipf(count: int, exponent: float) -> Floats:
    """Return the cumulative weights of ranks by Zipf's law, ending at 1. Rank n has the weight 1 / n ** exponent.

    >>> zipf(2, 1.0).round(3).tolist()
    [0.667, 1.0]
    """
    weights = np.arange(1, count + 1, dtype=np.float64) ** -exponent
    summed: Floats = np.cumsum(weights) / weights.sum()
    summed[-1] = 1.0
    return summed
