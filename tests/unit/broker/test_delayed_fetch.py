"""A fetch that waits: what completes it, and what it leaves behind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pytest

from barnabas.broker import delayed_fetch
from barnabas.broker.delayed_fetch import DelayedFetch
from barnabas.broker.pipeline.call import Steps
from barnabas.broker.pipeline.scheduler import CooperativeScheduler
from barnabas.broker.replica_storage import ReadListener
from tests.support.steps import at_once

TIMEOUT_S = 60
MINUTES_MS = 600_000


class Source:
    """A source that tells who waits for it."""

    def __init__(self) -> None:
        self.listeners: list[ReadListener] = []

    def watch(self, listener: ReadListener) -> None:
        self.listeners.append(listener)

    def unwatch(self, listener: ReadListener) -> None:
        if listener in self.listeners:
            self.listeners.remove(listener)

    def bring(self, size: int) -> None:
        for each in tuple(self.listeners):
            each.on_readable(size)

    def change_reads(self) -> None:
        for each in tuple(self.listeners):
            each.on_reads_changed()


def nothing_new() -> None:
    """Find the sources as they were read."""


def delayed(sources: Sequence[Source], min_bytes: int = 1, max_wait_ms: int = MINUTES_MS) -> DelayedFetch:
    return DelayedFetch(CooperativeScheduler(asyncio.get_running_loop().time), sources, min_bytes, max_wait_ms)


async def begin(fetch: DelayedFetch, check: Callable[[], Steps[None] | None] = nothing_new) -> asyncio.Task[None]:
    """Let a fetch wait; return its wait, which has begun."""
    at_once(fetch.begin(check))
    waiting = asyncio.create_task(fetch.wait())
    await asyncio.sleep(0)
    return waiting


def run(scenario: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(TIMEOUT_S):
            await scenario

    asyncio.run(bounded())


def test_fetch_waits_until_its_sources_together_bring_min_bytes() -> None:
    async def scenario() -> None:
        first, second = Source(), Source()
        waiting = await begin(delayed([first, second], min_bytes=10))
        first.bring(6)
        await asyncio.sleep(0)
        assert not waiting.done()
        second.bring(4)
        await waiting
        assert first.listeners == second.listeners == []

    run(scenario())


def test_fetch_waits_no_longer_than_max_wait() -> None:
    async def scenario() -> None:
        source = Source()
        waiting = await begin(delayed([source], max_wait_ms=1))
        await waiting
        assert source.listeners == []

    run(scenario())


def test_lost_leadership_or_a_deletion_completes_the_fetch() -> None:
    async def scenario() -> None:
        source = Source()
        waiting = await begin(delayed([source], min_bytes=1_000_000))
        source.change_reads()
        await waiting
        assert source.listeners == []

    run(scenario())


def test_closed_connection_cancels_the_wait_and_leaves_no_listener() -> None:
    async def scenario() -> None:
        source = Source()
        waiting = await begin(delayed([source]))
        assert source.listeners
        waiting.cancel()
        await asyncio.wait([waiting])
        assert source.listeners == []

    run(scenario())


def test_pipeline_completes_a_fetch_for_which_there_is_no_memory() -> None:
    async def scenario() -> None:
        fetch = delayed([Source()])
        waiting = await begin(fetch)
        fetch.complete()
        fetch.complete()
        await waiting

    run(scenario())


def test_fetch_that_is_complete_before_it_waits_does_not_wait() -> None:
    async def scenario() -> None:
        source = Source()
        fetch = delayed([source])
        at_once(fetch.begin(nothing_new))
        source.bring(1)
        await fetch.wait()
        assert source.listeners == []

    run(scenario())


def test_bytes_of_the_check_replace_those_that_came_before() -> None:
    async def scenario() -> None:
        source = Source()
        fetch = delayed([source], min_bytes=2)

        def check() -> Steps[None]:
            source.bring(1)
            fetch.expect(10)
            fetch.on_readable(6)
            yield from ()

        waiting = await begin(fetch, check)
        source.bring(3)
        await asyncio.sleep(0)
        assert not waiting.done()
        source.bring(1)
        await waiting

    run(scenario())


@pytest.mark.parametrize("steps_done", [1, 2, 3])
def test_fetch_that_is_broken_off_while_it_begins_leaves_no_listener(
    monkeypatch: pytest.MonkeyPatch, steps_done: int
) -> None:
    monkeypatch.setattr(delayed_fetch, "SOURCES_PER_PAUSE", 1)

    async def scenario() -> None:
        sources = [Source() for _ in range(3)]
        steps = delayed(sources).begin(nothing_new)
        for _ in range(steps_done):
            next(steps)
        assert [bool(each.listeners) for each in sources] == [number < steps_done for number in range(3)]
        steps.close()
        assert not any(each.listeners for each in sources)

    run(scenario())


def test_urgent_fetch_is_complete_before_those_that_wait_for_their_turn() -> None:
    async def scenario() -> None:
        ends_of_rounds: list[Callable[[], None]] = []
        scheduler = CooperativeScheduler(lambda: 0.0, ends_of_rounds.append)
        while not scheduler.waiting:
            scheduler.wake(asyncio.get_running_loop().create_future())
        patient, urgent = Source(), Source()
        patient_wait = await begin(DelayedFetch(scheduler, [patient], 1, MINUTES_MS))
        urgent_wait = await begin(DelayedFetch(scheduler, [urgent], 1, MINUTES_MS, is_urgent=True))
        patient.bring(1)
        urgent.bring(1)
        await urgent_wait
        assert not patient_wait.done()
        ends_of_rounds.pop()()
        await patient_wait

    run(scenario())
