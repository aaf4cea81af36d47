"""The end of a run lets go of everything without a word."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Awaitable

from tests.simulation.world import Host, HostClock, World


async def _answer() -> None:
    """What would be waited for."""


async def _wait(answer: Awaitable[None]) -> None:
    await answer


def test_nobody_is_told_of_work_that_had_not_begun_when_its_host_died() -> None:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        world = World(1)
        host = Host(world, "one", HostClock(world.loop, 1.0, 0))
        task = host.task(_wait(_wait(_answer())))
        host.kill()
        world.end()
        del task
        gc.collect()
    assert [str(each.message) for each in told] == []
