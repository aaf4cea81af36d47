"""Committed offsets: written together, read back, forgotten with their group."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.offset_store import OffsetStore
from barnabas.clock import ManualClock
from barnabas.coordination.embedded import EmbeddedTree
from barnabas.coordination.tree import Operation, OperationResult
from barnabas.errors import CoordinationError
from barnabas.model import OffsetAndMetadata, TopicPartition

FIRST, SECOND = TopicPartition("clicks", 0), TopicPartition("clicks", 1)
HOUR_MS = 3_600_000
CLICKS = "/brokers/topics/clicks"


class CountingTree(EmbeddedTree):
    """Counts its writes, and fails them while it is told to."""

    writes = 0
    fails = False
    failure: Exception = CoordinationError("the disk is full")

    def multi(self, operations: Any) -> list[OperationResult]:
        listed: list[Operation] = list(operations)
        self.writes += 1
        if self.fails:
            raise self.failure
        return super().multi(listed)


async def at_once(function: Any, *arguments: Any) -> Any:
    """Stands in for the tree's thread; gives way first, as a thread does."""
    await asyncio.sleep(0)
    return function(*arguments)


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[CountingTree]:
    tree = CountingTree(tmp_path / "tree.sqlite")
    tree.create(CLICKS, make_parents=True)
    yield tree
    tree.close()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(tree: CountingTree, clock: ManualClock) -> OffsetStore:
    return OffsetStore(tree, clock, at_once)  # type: ignore[arg-type]


def offset(number: int) -> OffsetAndMetadata:
    return OffsetAndMetadata(number, f"at {number}")


def test_what_is_committed_is_read_back_with_its_metadata(store: OffsetStore) -> None:
    async def scenario() -> None:
        await store.commit("g", {FIRST: offset(5), SECOND: offset(7)})
        await store.commit("g", {FIRST: offset(6)})
        assert await store.committed("g") == {FIRST: offset(6), SECOND: offset(7)}
        assert await store.committed("other") == {}

    asyncio.run(scenario())


def test_commits_that_come_together_are_written_together(store: OffsetStore, tree: CountingTree) -> None:
    async def scenario() -> None:
        await store.commit("warm", {FIRST: offset(0)})
        before = tree.writes
        await asyncio.gather(*(store.commit(f"g{number}", {FIRST: offset(number)}) for number in range(100)))
        assert tree.writes - before <= 4, "one write for the first, one for those that came meanwhile"
        assert await store.committed("g99") == {FIRST: offset(99)}

    asyncio.run(scenario())


def test_a_commit_is_told_what_is_not_stored_since_its_topic_is_gone(store: OffsetStore, tree: CountingTree) -> None:
    other = TopicPartition("views", 0)
    tree.create("/brokers/topics/views")

    async def scenario() -> None:
        first = asyncio.create_task(store.commit("a", {FIRST: offset(1), other: offset(1)}))
        second = asyncio.create_task(store.commit("b", {other: offset(2)}))
        tree.delete(CLICKS)
        assert await first == {FIRST}
        assert await second == set()
        assert await store.committed("a") == {other: offset(1)}

    asyncio.run(scenario())


def test_a_commit_that_fails_is_told_and_the_next_one_is_tried(store: OffsetStore, tree: CountingTree) -> None:
    async def scenario() -> None:
        tree.fails = True
        with pytest.raises(CoordinationError, match="disk is full"):
            await store.commit("g", {FIRST: offset(1)})
        tree.fails = False
        await store.commit("g", {SECOND: offset(2)})
        assert await store.committed("g") == {SECOND: offset(2)}

    asyncio.run(scenario())


def test_an_error_that_nobody_foresaw_fails_the_commit_and_not_those_after_it(
    store: OffsetStore, tree: CountingTree
) -> None:
    async def scenario() -> None:
        tree.fails, tree.failure = True, ValueError("bug")
        async with asyncio.timeout(5):
            with pytest.raises(CoordinationError, match="bug"):
                await store.commit("g", {FIRST: offset(1)})
            tree.fails = False
            await store.commit("g", {SECOND: offset(2)})
        assert await store.committed("g") == {SECOND: offset(2)}

    asyncio.run(scenario())


def test_offsets_are_forgotten_when_group_and_commit_are_old(store: OffsetStore, clock: ManualClock) -> None:
    async def scenario() -> None:
        await store.commit("dead", {FIRST: offset(1), SECOND: offset(1)})
        await store.commit("alive", {FIRST: offset(1)})
        clock.advance(3600)
        await store.commit("dead", {SECOND: offset(2)})
        empty_for_ms = {"dead": HOUR_MS, "alive": 0}
        assert await store.expire(HOUR_MS, empty_for_ms.__getitem__) == 1
        assert await store.committed("dead") == {SECOND: offset(2)}
        assert await store.committed("alive") == {FIRST: offset(1)}
        clock.advance(3600)
        assert await store.expire(HOUR_MS, empty_for_ms.__getitem__) == 1
        assert await store.group_ids() == ["alive"]

    asyncio.run(scenario())


def test_members_that_come_meanwhile_keep_the_offsets(store: OffsetStore, clock: ManualClock) -> None:
    async def scenario() -> None:
        await store.commit("g", {FIRST: offset(1)})
        clock.advance(3600)
        answers = iter([HOUR_MS, 0])
        assert await store.expire(HOUR_MS, lambda _: next(answers)) == 0
        assert await store.committed("g") == {FIRST: offset(1)}

    asyncio.run(scenario())
