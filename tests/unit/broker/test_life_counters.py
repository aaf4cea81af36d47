"""When a broker raises the life counters of its log directories."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker import life_counters as lives_module
from barnabas.broker.life_counters import LifeCounters
from barnabas.clock import ManualClock
from barnabas.coordination.embedded_metadata_store import EmbeddedMetadataStore
from barnabas.coordination.life_counters import read_life_counters
from barnabas.coordination.metadata_store import MetadataStoreUnavailableError
from barnabas.model import LifeMark


async def at_once(call: Callable[..., Any], *arguments: Any) -> Any:
    return call(*arguments)


class World:
    """A broker with one log directory, whose disk and tree answer when a test wants it."""

    def __init__(self, folder: Path) -> None:
        self.tree = EmbeddedMetadataStore(folder / "tree.sqlite", ManualClock())
        self.life = 0
        self.is_full = self.is_silent = self.is_overtaken = False
        self.is_member, self.has_unread = True, False
        self.may_lack_records = self.is_noted = self.is_ahead_of_tree = False
        self.confirmed: set[str] = set()
        self.raised = asyncio.Event()
        self.lives = LifeCounters(
            1,
            self,  # type: ignore[arg-type]
            self.tree,
            self.in_metadata_thread,  # type: ignore[arg-type]
            at_once,
            ManualClock(),
            lambda: self.is_member,
            lambda: self.has_unread,
        )

    def increment_life_counters(self, now_ms: int) -> dict[str, LifeMark]:
        self.raised.set()
        self.life += 1
        return {} if self.is_full else {"one": LifeMark(self.life, now_ms, 0)}

    def note_boot(self) -> None:
        self.is_noted = True

    def confirm_life_counters(self, folder_ids: set[str]) -> None:
        self.confirmed |= folder_ids

    def stop_life_counter(self, _: str) -> None:
        self.is_overtaken = True

    async def in_metadata_thread(self, call: Callable[..., Any], *arguments: Any) -> Any:
        if self.is_silent:
            raise MetadataStoreUnavailableError("no answer")
        return call(*arguments)

    @property
    def in_tree(self) -> int:
        return read_life_counters(self.tree, ["one"])["one"].life


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.tree.close()


def test_tree_has_no_counter_that_the_disk_does_not_have(world: World) -> None:
    asyncio.run(world.lives.raise_all())
    world.is_full = True
    asyncio.run(world.lives.raise_all())
    assert world.in_tree == 1
    world.is_full = False
    asyncio.run(world.lives.raise_all())
    assert world.in_tree == 3
    assert world.confirmed == {"one"}


def test_broker_that_is_no_member_raises_nothing(world: World) -> None:
    asyncio.run(world.lives.raise_all())
    world.is_member = False
    asyncio.run(world.lives.raise_all())
    assert (world.life, world.in_tree) == (1, 1)


@pytest.mark.parametrize("has_unread", [False, True])
def test_disks_that_lack_records_show_it_until_all_topics_could_be_read(world: World, has_unread: bool) -> None:
    world.may_lack_records, world.has_unread = True, has_unread
    asyncio.run(world.lives.begin())
    assert (world.is_noted, world.life) == (not has_unread, 1 - has_unread)
    asyncio.run(world.lives.raise_all())
    assert world.is_noted != has_unread
    world.has_unread = False
    asyncio.run(world.lives.raise_all())
    assert world.is_noted
    assert world.in_tree == 3 - 2 * has_unread


def test_topics_that_cannot_be_read_do_not_matter_where_no_records_are_missing(world: World) -> None:
    world.has_unread = True
    asyncio.run(world.lives.begin())
    assert world.is_noted
    assert world.in_tree == 1


def test_tree_that_does_not_answer_is_logged_once_and_gets_a_later_counter(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    asyncio.run(world.lives.raise_all())
    world.is_silent = True
    for _ in range(2):
        asyncio.run(world.lives.raise_all())
    assert caplog.text.count("cannot increment life counters in the metadata store") == 1
    world.is_silent = False
    asyncio.run(world.lives.raise_all())
    assert (world.in_tree, world.is_overtaken) == (4, False)


def test_counter_that_is_higher_in_the_tree_is_not_raised_any_more(world: World) -> None:
    world.life = 7
    asyncio.run(world.lives.raise_all())
    world.life = 3
    asyncio.run(world.lives.raise_all())
    assert (world.in_tree, world.is_overtaken) == (8, True)


def test_counters_are_raised_again_and_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lives_module, "INTERVAL_S", 0.001)

    async def scenario() -> None:
        running = asyncio.create_task(world.lives.run())
        for _ in range(3):
            world.raised.clear()
            await world.raised.wait()
        running.cancel()
        await asyncio.wait([running])

    asyncio.run(scenario())
    assert world.in_tree >= 2


def test_counters_are_raised_soon_after_this_broker_led(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lives_module, "PAUSE_S", 0.001)

    async def scenario() -> None:
        running = asyncio.create_task(world.lives.run())
        world.lives.raise_soon()
        await world.raised.wait()
        running.cancel()
        await asyncio.wait([running])

    asyncio.run(scenario())
    assert world.in_tree == 1


def test_disks_that_show_an_older_tree_do_so_until_all_topics_could_be_read(world: World) -> None:
    world.is_ahead_of_tree = world.has_unread = True
    asyncio.run(world.lives.begin())
    assert world.life == 0
    world.has_unread = False
    asyncio.run(world.lives.raise_all())
    assert (world.in_tree, world.confirmed) == (1, {"one"})
