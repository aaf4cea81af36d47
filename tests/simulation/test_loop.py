"""The loop in virtual time: time passes whatever happens, and what goes round in circles is ended."""

from __future__ import annotations

import asyncio

import pytest

from tests.simulation import loop
from tests.simulation.loop import EndlessError, SimulatedLoop
from tests.simulation.world import HostClock


@pytest.fixture
def simulated() -> SimulatedLoop:
    return SimulatedLoop()


def test_a_host_with_a_slow_clock_comes_to_the_end_of_what_it_waits_for(simulated: SimulatedLoop) -> None:
    clock = HostClock(simulated, rate=0.999, ahead_ms=0)

    async def wait() -> None:
        await asyncio.sleep(8.000_1)  # here the host's time, below 8, can be told more finely than the loop's
        for _ in range(20):
            end_s = clock.monotonic() + 0.000_005
            while (left_s := end_s - clock.monotonic()) > 0:  # noqa: ASYNC110 - as those wait who tell time
                await asyncio.sleep(left_s)

    simulated.run_until_complete(wait())
    simulated.close()
    assert clock.monotonic() < 8 < simulated.time()


def test_a_timer_ends_what_never_pauses(simulated: SimulatedLoop) -> None:
    async def wait() -> None:
        is_over = asyncio.Event()
        simulated.call_later(0.000_01, is_over.set)
        while not is_over.is_set():  # noqa: ASYNC110 - it is what never pauses
            await asyncio.sleep(0)

    simulated.run_until_complete(wait())
    simulated.close()


@pytest.mark.parametrize("pause_s", [0.0, 0.001])
def test_what_has_no_end_is_ended(simulated: SimulatedLoop, monkeypatch: pytest.MonkeyPatch, pause_s: float) -> None:
    monkeypatch.setattr(loop, "MOST_STEPS", 5_000)

    async def circle() -> None:
        while True:  # noqa: ASYNC110 - it is what has no end
            await asyncio.sleep(pause_s)

    with pytest.raises(EndlessError):
        simulated.run_until_complete(circle())
    simulated.close()
