"""Brokers' topics over one tree, for the tests of all that they do together."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.topics_cluster import Cluster, Run, Scenario


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    """Run a scenario of brokers over one tree; all of them end with the test."""
    cluster = Cluster(tmp_path)

    def run_scenario(scenario: Scenario) -> None:
        async def bounded() -> None:
            async with asyncio.timeout(60):
                await scenario(cluster)

        asyncio.run(bounded())

    yield run_scenario
    cluster.close()
