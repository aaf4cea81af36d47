"""Steps that exclude each other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from barnabas.broker.replica_storage import AppendQueue

TIMEOUT_S = 60


def run(scenario: Callable[[AppendQueue], Coroutine[Any, Any, None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(TIMEOUT_S):
            await scenario(AppendQueue())

    asyncio.run(bounded())


def test_steps_run_one_after_the_other_in_their_order() -> None:
    async def scenario(line: AppendQueue) -> None:
        events: list[str] = []

        async def step(name: str) -> str:
            events.append(f"{name} begins")
            await asyncio.sleep(0)
            events.append(f"{name} ends")
            return name

        results = [line.run(lambda name=name: step(name)) for name in "ab"]  # type: ignore[misc]
        assert line.is_busy
        assert await asyncio.gather(*results) == ["a", "b"]
        assert events == ["a begins", "a ends", "b begins", "b ends"]

    run(scenario)


def test_failed_step_fails_its_own_future_and_the_next_step_runs() -> None:
    async def scenario(line: AppendQueue) -> None:
        async def fail() -> None:
            raise OSError("no space")

        async def succeed() -> int:
            return 7

        failed, succeeded = line.run(fail), line.run(succeed)
        with pytest.raises(OSError, match="no space"):
            await failed
        assert await succeeded == 7

    run(scenario)


def test_step_runs_although_its_caller_has_cancelled_the_wait() -> None:
    async def scenario(line: AppendQueue) -> None:
        has_run = []

        async def step() -> None:
            has_run.append(True)

        line.run(step).cancel()
        await line.wait_until_idle()
        assert has_run == [True]
        assert not line.is_busy

    run(scenario)


def test_idle_line_is_waited_for_until_the_steps_that_steps_add_have_run() -> None:
    async def scenario(line: AppendQueue) -> None:
        has_run = []

        async def last() -> None:
            has_run.append("last")

        async def first() -> None:
            has_run.append("first")
            line.run(last)

        line.run(first)
        await line.wait_until_idle()
        assert has_run == ["first", "last"]

    run(scenario)
