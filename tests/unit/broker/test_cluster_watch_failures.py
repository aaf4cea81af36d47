"""What a broker reads of the tree is taken over, whatever fails meanwhile, and whenever a session ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker import cluster_watch
from barnabas.broker.cluster_watch import ClusterWatch, MetadataUpdate, Read
from barnabas.coordination import paths, topic_metadata_store
from barnabas.coordination.embedded_metadata_store import EmbeddedMetadataStore
from barnabas.coordination.metadata_store import MetadataStoreUnavailableError
from barnabas.coordination.values import BrokerRegistration, encode_broker


class Reader:
    """Who takes over what a watch reads; as often as it is told to, this fails after it was read."""

    def __init__(self, tree: EmbeddedMetadataStore) -> None:
        self.tree = tree
        self.failures = 0
        self.taken_over: list[MetadataUpdate] = []
        self.is_news = asyncio.Event()
        self.watch = ClusterWatch(tree, self._in_metadata_thread, self._apply_update)  # type: ignore[arg-type]
        self.watch.read_everything()

    async def _in_metadata_thread(self, function: Callable[..., Any], *arguments: Any) -> Any:
        await asyncio.sleep(0)
        return function(*arguments)

    async def _apply_update(self, read: Read) -> MetadataUpdate:
        update = await read()
        if self.failures:
            self.failures -= 1
            raise MetadataStoreUnavailableError("the tree is out of reach")
        self.taken_over.append(update)
        self.is_news.set()
        return update

    async def until(self, is_found: Callable[[MetadataUpdate], object]) -> MetadataUpdate:
        """Return news of a kind, once it was taken over."""
        while not any(map(is_found, self.taken_over)):
            self.is_news.clear()
            await self.is_news.wait()
        return next(filter(is_found, self.taken_over))

    async def until_idle(self) -> None:
        """Return when what there is was read."""
        await self.until(lambda update: update.brokers is not None)
        self.taken_over.clear()


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[EmbeddedMetadataStore]:
    monkeypatch.setattr(cluster_watch, "AGAIN_S", 0.0)
    made = EmbeddedMetadataStore(tmp_path / "tree.sqlite")
    topic_metadata_store.prepare(made, "castle")
    yield made
    made.close()


def run(tree: EmbeddedMetadataStore, scenario: Callable[[Reader], Coroutine[Any, Any, None]]) -> None:
    async def watching() -> None:
        reader = Reader(tree)
        task = asyncio.create_task(reader.watch.run())
        try:
            async with asyncio.timeout(60):
                await reader.until_idle()
                await scenario(reader)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    asyncio.run(watching())


def test_change_whose_take_over_failed_is_read_again(tree: EmbeddedMetadataStore) -> None:
    async def scenario(reader: Reader) -> None:
        reader.failures = 1
        topic_metadata_store.create_topic(tree, "clicks", b"T" * 16, [[1]])
        await reader.until(lambda update: "clicks" in update.topics)

    run(tree, scenario)


def test_everything_is_read_after_the_coming_of_a_broker_was_not_taken_over(tree: EmbeddedMetadataStore) -> None:
    """Who comes and goes is found by comparison: what was compared already would be news no longer."""

    async def scenario(reader: Reader) -> None:
        reader.failures = 1
        tree.create(paths.broker(1), encode_broker(BrokerRegistration(1, "here", 9092)), ephemeral=True)
        update = await reader.until(lambda update: 1 in (update.brokers or ()))
        assert update.is_everything

    run(tree, scenario)


def test_session_that_begins_while_changes_are_read_is_read_from_the_beginning(
    tree: EmbeddedMetadataStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(reader: Reader) -> None:
        read_topic, is_begun = topic_metadata_store.read_topic, False

        def read_and_begin_anew(*arguments: Any) -> Any:
            nonlocal is_begun
            if not is_begun:
                is_begun = True
                reader.watch.restart()
            return read_topic(*arguments)

        monkeypatch.setattr(topic_metadata_store, "read_topic", read_and_begin_anew)
        topic_metadata_store.create_topic(tree, "clicks", b"T" * 16, [[1]])
        update = await reader.until(lambda update: update.is_new_session)
        assert update.is_everything

    run(tree, scenario)


def test_session_that_begins_while_the_one_before_is_taken_over_is_one_more(tree: EmbeddedMetadataStore) -> None:
    async def scenario(reader: Reader) -> None:
        reader.watch.restart()
        await reader.until(lambda update: update.is_new_session)
        apply_update = reader.watch._apply_update

        async def take_over_and_begin_anew(read: Read) -> MetadataUpdate:
            update = await apply_update(read)
            reader.watch._apply_update = apply_update
            reader.watch.restart()
            return update

        reader.watch._apply_update = take_over_and_begin_anew
        reader.watch.restart()
        reader.taken_over.clear()
        await reader.until(lambda _: sum(update.is_new_session for update in reader.taken_over) == 2)

    run(tree, scenario)
