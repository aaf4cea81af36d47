"""Tries seeds until one finds a bug that was planted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest

from tests.simulation.plan import Plan
from tests.simulation.story import run

SEEDS = 100
"""So many are tried at most: a bug that one seed in seven finds is missed once in five million times."""


def first_that_finds(
    told: str,
    likely: int,
    *,
    plan: Plan | None = None,
    seconds: float | None = None,
    workloads: Sequence[str] = (),
    seeds: int = SEEDS,
) -> int:
    """Return the first seed whose run fails as it is to fail; none is a failure of the test.

    :param told: a part of what is to be broken; an empty one stands for all in which a run can fail.
    :param likely: the seed to begin with: one that found it once.
    :param plan: what befalls the cluster; drawn by each seed if there is none.
    :param seconds: of faults, if there is no plan.
    :param seeds: so many are tried at most.
    """
    others: Counter[str] = Counter()
    for seed in [likely, *(each for each in range(1, seeds + 1) if each != likely)][:seeds]:
        result = run(seed, seconds, plan=plan, workloads=workloads)
        if not result.ok and (not told or any(told in line for line in result.broken)):
            return seed
        others.update(result.broken)
    pytest.fail(f"none of {seeds} seeds found it; they found {others.most_common(3)}")
