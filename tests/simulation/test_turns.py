"""Questions to the tree take time one by one, and others act in between; the thread that asks never runs beside."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from tests.simulation.turns import Turns, step
from tests.simulation.world import Host, HostClock, World


@pytest.fixture
def world() -> Iterator[World]:
    world = World(1)
    yield world
    world.end()


def _host(world: World, name: str) -> Host:
    return Host(world, name, HostClock(world.loop, 1.0, 0))


def _ask_three_times(world: World, name: str, seen: list[tuple[str, float]]) -> str:
    for _ in range(3):
        step()
        seen.append((name, world.loop.time()))
    return name


def _run_until(world: World, at_s: float) -> None:
    world.loop.call_later(at_s, world.loop.stop)
    world.loop.run_forever()


def test_two_that_ask_at_once_take_turns(world: World) -> None:
    seen: list[tuple[str, float]] = []
    told: list[object] = []
    for name in ("one", "other"):
        turns = Turns(_host(world, name), lambda: 0.5)
        turns.begin(lambda name=name: _ask_three_times(world, name, seen), lambda result, _: told.append(result))  # type: ignore[misc]
    _run_until(world, 10.0)
    assert seen == [(name, at_s) for at_s in (0.0, 1.0, 2.0) for name in ("one", "other")]
    assert told == ["one", "other"]


def test_failure_is_told(world: World) -> None:
    told: list[Exception | None] = []
    Turns(_host(world, "one"), lambda: 0.5).begin(lambda: 1 / 0, lambda _, failure: told.append(failure))
    assert [type(each) for each in told] == [ZeroDivisionError]


def test_dead_host_asks_nothing_more_and_its_thread_ends_with_the_run() -> None:
    world = World(1)
    host = _host(world, "one")
    seen: list[tuple[str, float]] = []
    Turns(host, lambda: 0.5).begin(lambda: _ask_three_times(world, "one", seen), lambda *_: None)
    host.kill()
    _run_until(world, 10.0)
    assert seen == [("one", 0.0)]
    world.end()
    assert not [thread for thread in threading.enumerate() if thread.name == "tree of one"]
