"""Threads that clients share by address."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from barnabas.broker.fair_threads import FairThreads
from barnabas.clock import SYSTEM_CLOCK

MANY = 200


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as made:
        yield made


def test_one_call_waits_for_few_of_another_address(threads: ThreadPoolExecutor) -> None:
    order: list[str] = []

    async def scenario() -> None:
        fair = FairThreads(threads, SYSTEM_CLOCK.monotonic)
        attacker, honest = fair.share_of("10.0.0.1"), fair.share_of("10.0.0.2")

        async def call(share_name: str) -> None:
            share = attacker if share_name == "attacker" else honest
            await fair.run(share, lambda message: order.append(message.decode()), share_name.encode())

        calls = [asyncio.ensure_future(call("attacker")) for _ in range(MANY)]
        await calls[0]
        await call("honest")
        await asyncio.gather(*calls)

    asyncio.run(scenario())
    assert order.count("attacker") == MANY
    assert order.index("honest") < 5


def test_cancelled_calls_leave_the_line(threads: ThreadPoolExecutor) -> None:
    async def scenario() -> None:
        fair = FairThreads(threads, SYSTEM_CLOCK.monotonic)
        share, may_end = fair.share_of("10.0.0.1"), threading.Event()
        first = asyncio.ensure_future(fair.run(share, lambda _: may_end.wait(60), b""))
        waiting = [asyncio.ensure_future(fair.run(fair.share_of(str(n)), len, b"abc")) for n in range(MANY)]
        await asyncio.sleep(0)
        for each in waiting[:-1]:
            each.cancel()
        may_end.set()
        assert await first
        assert await waiting[-1] == 3
        with pytest.raises(ZeroDivisionError):
            await fair.run(share, lambda message: 1 // len(message), b"")
        assert await fair.run(share, len, b"ab") == 2

    asyncio.run(scenario())


def test_nothing_is_kept_of_addresses_without_connections(threads: ThreadPoolExecutor) -> None:
    async def scenario() -> None:
        fair = FairThreads(threads, SYSTEM_CLOCK.monotonic)
        kept = fair.share_of("10.0.0.1")
        assert fair.share_of("10.0.0.1") is kept
        for number in range(MANY):
            await fair.run(fair.share_of(f"host {number}"), len, b"")
        gc.collect()
        assert list(fair._shares) == ["10.0.0.1"]

    asyncio.run(scenario())
