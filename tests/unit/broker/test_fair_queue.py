"""Clients take turns: one that asks for little does not stand behind those that ask for much."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine

from barnabas.broker.fair_queue import FairQueue, Share
from barnabas.clock import ManualClock

HEAVY_S, LIGHT_S = 0.1, 0.001
TIMEOUT_S = 60


class Thread:
    """Does one thing at a time; each takes as long as the test says."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.scheduler = FairQueue(self.clock.monotonic)
        self.done: list[str] = []

    async def do(self, name: str, share: Share, cost_s: float, likely_s: float | None = None) -> None:
        async def work() -> None:
            await asyncio.sleep(0)
            self.clock.advance(cost_s)
            self.done.append(name)

        await self.scheduler.take(share, cost_s if likely_s is None else likely_s, work)


def play(scenario: Callable[[Thread], Coroutine[None, None, None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(TIMEOUT_S):
            await scenario(Thread())

    asyncio.run(bounded())


def test_light_client_waits_for_one_turn_of_many_heavy_ones() -> None:
    async def scenario(thread: Thread) -> None:
        heavy = [asyncio.ensure_future(thread.do(f"heavy {n}", Share(), HEAVY_S)) for n in range(60)]
        await asyncio.sleep(0)
        await thread.do("light", Share(), LIGHT_S)
        assert thread.done == ["heavy 0", "light"]
        await asyncio.gather(*heavy)

    play(scenario)


def test_clients_that_ask_for_the_same_take_turns() -> None:
    async def scenario(thread: Thread) -> None:
        async def ask_again_and_again(name: str) -> None:
            share = Share()
            for _ in range(5):
                await thread.do(name, share, LIGHT_S)

        await asyncio.gather(*(ask_again_and_again(name) for name in "abc"))
        for count in range(len(thread.done)):
            turns = [thread.done[:count].count(name) for name in "abc"]
            assert max(turns) - min(turns) <= 1

    play(scenario)


def test_what_takes_longer_than_it_looks_counts_as_long_as_it_took() -> None:
    async def scenario(thread: Thread) -> None:
        async def ask_again_and_again(name: str, cost_s: float, count: int) -> None:
            share = Share()
            for _ in range(count):
                await thread.do(name, share, cost_s, LIGHT_S)

        await asyncio.gather(
            ask_again_and_again("liar", 10 * LIGHT_S, 4), *(ask_again_and_again(name, LIGHT_S, 20) for name in "abc")
        )
        assert thread.done[:30].count("liar") <= 2

    play(scenario)


def test_client_that_gives_up_in_line_or_at_its_turn_holds_nobody_up() -> None:
    async def scenario(thread: Thread) -> None:
        first, second, third = (
            asyncio.ensure_future(thread.do(name, Share(), LIGHT_S)) for name in ("first", "second", "third")
        )
        await asyncio.sleep(0)
        third.cancel()
        first.add_done_callback(lambda _: second.cancel())
        await asyncio.gather(first, second, third, return_exceptions=True)
        await thread.do("last", Share(), LIGHT_S)
        assert thread.done == ["first", "last"]

    play(scenario)


def test_failure_of_one_turn_is_its_own() -> None:
    async def scenario(thread: Thread) -> None:
        async def fail() -> None:
            raise ValueError

        failed, _ = await asyncio.gather(
            thread.scheduler.take(Share(), LIGHT_S, fail), thread.do("next", Share(), LIGHT_S), return_exceptions=True
        )
        assert isinstance(failed, ValueError)
        assert thread.done == ["next"]

    play(scenario)
