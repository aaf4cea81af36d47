"""The end of a run lets go of everything without a word."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from tests.simulation.world import Host, HostClock, World


async def _answer() -> None:
    """What would be waited for."""


async def _wait(answer: Awaitable[None]) -> None:
    await answer


async def _wait_for_all(answers: list[Awaitable[None]]) -> None:
    for answer in answers:
        await answer


@pytest.mark.parametrize(
    "work", [lambda: _wait(_wait(_answer())), lambda: _wait(_wait_for_all([_answer(), _answer()]))], ids=["one", "many"]
)
def test_nobody_is_told_of_work_that_had_not_begun_when_its_host_died(
    work: Callable[[], Coroutine[Any, Any, None]],
) -> None:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        world = World(1)
        host = Host(world, "one", HostClock(world.loop, 1.0, 0))
        task = host.task(work())
        host.kill()
        world.end()
        del task
        gc.collect()
    assert [str(each.message) for each in told] == []
