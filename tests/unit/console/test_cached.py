"""Values that are fetched once for many callers."""

from __future__ import annotations

import asyncio

import pytest

from barnabas.console.cached import Cached


def test_concurrent_callers_share_a_fetch() -> None:
    async def scenario() -> None:
        calls = 0
        go_on = asyncio.Event()

        async def fetch() -> int:
            nonlocal calls
            calls += 1
            await go_on.wait()
            return calls

        cached = Cached(fetch, 2.0, lambda: 0.0)
        waiting = [asyncio.create_task(cached.get()) for _ in range(5)]
        await asyncio.sleep(0)
        waiting[0].cancel()  # a closed page does not end the fetch of the others
        go_on.set()
        assert [await each for each in waiting[1:]] == [1] * 4
        assert await cached.get() == 1

    asyncio.run(scenario())


def test_old_values_are_fetched_again() -> None:
    async def scenario() -> None:
        now_s, values = [0.0], iter(range(10))

        async def fetch() -> int:
            return next(values)

        cached = Cached(fetch, 2.0, lambda: now_s[0])
        found = []
        for now_s[0] in (0.0, 1.9, 2.0, 3.9, 4.1):
            found.append(await cached.get())
        assert found == [0, 0, 1, 1, 2]

    asyncio.run(scenario())


def test_caller_may_accept_an_older_value() -> None:
    async def scenario() -> None:
        now_s, values = [0.0], iter(range(10))

        async def fetch() -> int:
            return next(values)

        cached = Cached(fetch, 2.0, lambda: now_s[0])
        found = []
        for now_s[0], limit_s in ((0.0, None), (4.9, 5.0), (5.0, 5.0), (9.0, None)):
            found.append(await cached.get(limit_s))
        assert found == [0, 0, 1, 2]

    asyncio.run(scenario())


def test_errors_are_not_kept() -> None:
    async def scenario() -> None:
        results = iter([OSError("once"), 7])

        async def fetch() -> int:
            result = next(results)
            if isinstance(result, OSError):
                raise result
            return result

        cached = Cached(fetch, 2.0, lambda: 0.0)
        with pytest.raises(OSError, match="once"):
            await cached.get()
        assert await cached.get() == 7

    asyncio.run(scenario())
