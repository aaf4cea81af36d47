"""All scenarios, by name."""

from __future__ import annotations

from tests.faults import (
    broker_scenarios,
    consumer_scenarios,
    deletion_scenarios,
    link_scenarios,
    random_scenario,
    zookeeper_scenarios,
)
from tests.faults.stage import Scenario

_ALL = (
    *broker_scenarios.SCENARIOS,
    *link_scenarios.SCENARIOS,
    *zookeeper_scenarios.SCENARIOS,
    *deletion_scenarios.SCENARIOS,
    *consumer_scenarios.SCENARIOS,
    *random_scenario.SCENARIOS,
)
SCENARIOS = {each.name: each for each in sorted(_ALL, key=lambda each: (not each.name.isdigit(), each.name.zfill(2)))}
"""By name: numbers first, in their order."""


def by_name(name: str) -> Scenario:
    """Return a scenario.

    Raises:
        KeyError: There is none of that name.
    """
    return SCENARIOS[name]
