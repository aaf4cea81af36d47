"""Random draws from a seed: uniform numbers of numpy's PCG64, and distributions made from them.

numpy keeps the stream of that generator, but not those of its distributions; so these are our own.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class RandomDraws:
    """A source of random numbers; `place` says which of those of a seed."""

    def __init__(self, seed: int, *place: int) -> None:
        self._generator = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, *place])))

    def uniform(self, count: int, low: float = 0.0, high: float = 1.0) -> Floats:
        """Return numbers from `low` to `high`."""
        return low + (high - low) * self._generator.random(count)

    def chance(self, likely: Floats | float, count: int) -> NDArray[np.bool_]:
        """Return what comes true, given how likely each is."""
        return self._generator.random(count) < likely

    def below(self, limit: int, count: int) -> Ints:
        """Return whole numbers from 0 up to a limit, which is not included."""
        return (self._generator.random(count) * limit).astype(np.int64)

    def exponential(self, mean: float, count: int) -> Floats:
        """Return waiting times, of which most are short."""
        waits: Floats = -mean * np.log1p(-self._generator.random(count))
        return waits

    def ranks(self, cumulative: Floats, count: int) -> Ints:
        """Return ranks, drawn by the weights of `zipf`."""
        return np.searchsorted(cumulative, self._generator.random(count), side="right").astype(np.int64)

    def permutation(self, count: int) -> Ints:
        """Return the numbers below `count` in a random order."""
        return np.argsort(self._generator.random(count), kind="stable").astype(np.int64)


def zipf(count: int, exponent: float) -> Floats:
    """Return the summed weights of ranks, up to 1: the n-th has the weight 1 / n ** exponent.

    >>> zipf(2, 1.0).round(3).tolist()
    [0.667, 1.0]
    """
    weights = np.arange(1, count + 1, dtype=np.float64) ** -exponent
    summed: Floats = np.cumsum(weights) / weights.sum()
    summed[-1] = 1.0
    return summed
