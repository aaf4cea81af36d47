"""Runs of whole brokers from seeds; `make simulate` has many more of them."""

from __future__ import annotations

import pytest

from tests.simulation.story import run

SECONDS = 20.0
SEEDS = [1, 2, 3]

FOUND = [8, 60]
"""Seeds that found bugs: a follower under a flush policy that waited for ever after a truncation, and a new leader
under one whose last records nobody could read."""


@pytest.mark.parametrize("seed", [*SEEDS, *FOUND])
def test_nothing_is_lost_whatever_befalls_the_brokers(seed: int) -> None:
    result = run(seed, SECONDS)
    assert result.ok, result.told()
    assert result.report is not None
    assert result.report.records > 0


def test_a_seed_tells_the_same_story_each_time() -> None:
    first, second = run(5, SECONDS / 2), run(5, SECONDS / 2)
    assert first.story == second.story
    assert first.report == second.report
    assert first.simulated_s == second.simulated_s
