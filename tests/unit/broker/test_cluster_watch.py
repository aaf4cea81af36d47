"""How a broker learns what the others changed, and how it makes up for what it missed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker import cluster_watch
from barnabas.broker.cluster_watch import ClusterWatch, MetadataUpdate
from barnabas.coordination import change_notifications, paths, topic_metadata_store
from barnabas.coordination.change_notifications import ChangeNotification, notification_node
from barnabas.coordination.embedded_metadata_store import EmbeddedMetadataStore
from barnabas.coordination.metadata_store import MetadataStoreUnavailableError, NodeError
from barnabas.coordination.values import BrokerRegistration, LiveBroker


class Following:
    """A watch that runs, and what it has read."""

    def __init__(self, tree: EmbeddedMetadataStore) -> None:
        self.tree = tree
        self.other = tree.new_session()
        self.read: asyncio.Queue[MetadataUpdate] = asyncio.Queue()
        self.is_away = False
        self.refused = asyncio.Event()
        self.bug: Exception | None = None
        self.watch = ClusterWatch(tree, self._in_metadata_thread, self._apply_update)  # type: ignore[arg-type]

    async def _in_metadata_thread(self, function: Callable[..., Any], *arguments: Any) -> Any:
        await asyncio.sleep(0)
        if self.is_away:
            self.refused.set()
            raise MetadataStoreUnavailableError("the tree is away")
        return function(*arguments)

    async def _apply_update(self, read: Any) -> MetadataUpdate:
        update: MetadataUpdate = await read()
        if self.bug:
            bug, self.bug = self.bug, None
            raise bug
        self.read.put_nowait(update)
        return update

    def create(self, name: str) -> None:
        topic_metadata_store.create_topic(self.other, name, bytes(16), [[1]])

    async def topics(self) -> list[str]:
        return list((await self.read.get()).topics)


Run = Callable[[Callable[[Following], Coroutine[Any, Any, None]]], None]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    monkeypatch.setattr(cluster_watch, "AGAIN_S", 0)
    tree = EmbeddedMetadataStore(tmp_path / "tree.sqlite")
    topic_metadata_store.prepare(tree, "castle")

    def run_scenario(scenario: Callable[[Following], Coroutine[Any, Any, None]]) -> None:
        async def bounded() -> None:
            following = Following(tree)
            task = asyncio.create_task(following.watch.run())
            try:
                async with asyncio.timeout(60):
                    assert (await following.read.get()).is_everything
                    await scenario(following)
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

        asyncio.run(bounded())

    yield run_scenario
    tree.close()


def test_each_change_is_read_and_the_watch_set_again(run: Run) -> None:
    async def scenario(following: Following) -> None:
        for name in ("clicks", "views", "others"):
            following.create(name)
            update = await following.read.get()
            assert (list(update.topics), update.is_everything, update.brokers) == ([name], False, None)
        topic_metadata_store.delete_topic(following.other, "views")
        assert (await following.read.get()).topics == {"views": None}

    run(scenario)


def test_brokers_that_come_go_and_tell_something_else_are_read(run: Run) -> None:
    async def scenario(following: Following) -> None:
        joining = following.tree.new_session()
        registration = BrokerRegistration(3, "here", 1)
        epoch = topic_metadata_store.register_broker(joining, registration)
        assert (await following.read.get()).brokers == {3: LiveBroker(registration, epoch)}
        leaving = BrokerRegistration(3, "here", 1, is_leaving=True)
        topic_metadata_store.register_broker(joining, leaving)
        assert (await following.read.get()).brokers == {3: LiveBroker(leaving, epoch)}
        joining.close()
        assert (await following.read.get()).brokers == {}

    run(scenario)


def test_registration_that_a_stranger_damages_counts_as_it_was_and_the_others_go_on(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(following: Following) -> None:
        two = following.tree.new_session()
        known = LiveBroker(
            BrokerRegistration(2, "here", 1),
            topic_metadata_store.register_broker(two, BrokerRegistration(2, "here", 1)),
        )
        assert (await following.read.get()).brokers == {2: known}
        two.set(paths.broker(2), b"garbage")
        following.other.create(f"{paths.BROKER_IDS}/stranger", b"{}")
        assert (await following.read.get()).brokers == {2: known}
        three = following.tree.new_session()
        epoch = topic_metadata_store.register_broker(three, BrokerRegistration(3, "there", 1))
        assert (await following.read.get()).brokers == {
            2: known,
            3: LiveBroker(BrokerRegistration(3, "there", 1), epoch),
        }
        two.close()
        update = await following.read.get()
        assert update.brokers is not None
        assert list(update.brokers) == [3]
        three.close()
        await following.read.get()

    run(scenario)
    lines = [each.getMessage().partition(": ")[0] for each in caplog.records if each.levelname == "WARNING"]
    assert lines == [f"skipping {paths.broker(2)}", f"skipping {paths.BROKER_IDS}/stranger"]


def test_gap_between_changes_makes_it_read_everything(run: Run) -> None:
    async def scenario(following: Following) -> None:
        following.create("clicks")
        await following.read.get()
        following.is_away = True
        following.create("views")
        await following.refused.wait()
        following.create("others")
        first = change_notifications.numbers_of(following.other.children(paths.CHANGES))[1]
        following.other.delete(change_notifications.path_of(first))
        following.is_away = False
        update = await following.read.get()
        assert update.is_everything
        assert set(update.topics) == {"clicks", "views", "others"}
        following.create("more")
        assert await following.topics() == ["more"]

    run(scenario)


def test_change_that_cannot_be_understood_makes_it_read_everything(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(following: Following) -> None:
        following.other.create(paths.CHANGE, b"garbage", sequential=True)
        assert (await following.read.get()).is_everything
        following.create("clicks")
        assert await following.topics() == ["clicks"]

    run(scenario)
    assert "reading all brokers and topics again" in caplog.text


def test_topic_that_cannot_be_understood_is_told_beside_the_others(run: Run) -> None:
    async def scenario(following: Following) -> None:
        following.create("clicks")
        await following.read.get()
        following.tree.set(paths.topic("clicks"), b"garbage")
        following.other.multi([notification_node(ChangeNotification(topics=("clicks", "views")))])
        update = await following.read.get()
        assert isinstance(update.topics["clicks"], NodeError)
        assert update.topics["views"] is None

    run(scenario)


def test_what_is_told_while_the_tree_is_away_is_read_when_it_is_there_again(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(following: Following) -> None:
        following.is_away = True
        following.create("clicks")
        for _ in range(3):
            following.refused.clear()
            await following.refused.wait()
        following.is_away = False
        assert await following.topics() == ["clicks"]

    with caplog.at_level(logging.WARNING):
        run(scenario)
    assert len([each for each in caplog.records if "cannot read the cluster" in each.getMessage()]) == 1, "told once"


def test_bug_in_taking_over_makes_it_read_everything(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(following: Following) -> None:
        following.bug = ValueError("bug")
        following.create("clicks")
        update = await following.read.get()
        assert update.is_everything
        assert list(update.topics) == ["clicks"]

    run(scenario)
    assert "ValueError: bug" in caplog.text


def test_new_session_makes_it_read_everything_once_also_if_that_fails_at_first(run: Run) -> None:
    async def scenario(following: Following) -> None:
        following.is_away = True
        following.watch.restart()
        await following.refused.wait()
        following.is_away = False
        following.bug = ValueError("bug")
        update = await following.read.get()
        assert (update.is_everything, update.is_new_session) == (True, True)
        following.create("clicks")
        update = await following.read.get()
        assert (update.is_everything, update.is_new_session) == (False, False)

    run(scenario)


def test_old_changes_are_cleared_away_only_after_new_ones(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(following: Following) -> None:
        cleared = []
        monkeypatch.setattr(change_notifications, "purge_changes", cleared.append)
        await following.watch.purge()
        assert not cleared
        following.create("clicks")
        await following.read.get()
        for _ in range(2):
            await following.watch.purge()
        assert cleared == [following.tree]

    run(scenario)
