"""Machines of the simulation, and who is on them."""

from __future__ import annotations

import asyncio

from tests.simulation.cluster import START_AGAIN_S, SimulatedCluster
from tests.simulation.world import World


def test_a_broker_that_did_not_start_leads_nothing() -> None:
    world = World(1)
    cluster = SimulatedCluster(world, 1)
    cluster.ensemble.is_up = False
    cluster.start()
    (machine,) = cluster.machines.values()
    world.loop.run_until_complete(asyncio.sleep(START_AGAIN_S / 2))
    world.end()
    assert "does not start" in world.story[0][1]
    assert machine.broker is None  # what it had begun to lead is closed, and would seem to be led
