"""What is noted to be deleted on a broker, while a data folder of it is offline."""

from __future__ import annotations

import asyncio
import errno
import functools
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.broker_events import Events
from barnabas.broker.disk_work import DiskWork
from barnabas.broker.replica_logs import ReplicaLogs
from barnabas.broker.replica_removal import ReplicaRemoval
from barnabas.broker.topic_deletion import TopicDeletion
from barnabas.clock import ManualClock
from barnabas.coordination import paths, reassignments, topic_deletions, topic_metadata_store
from barnabas.coordination.embedded_metadata_store import EmbeddedMetadataStore
from barnabas.errors import DataFolderError
from barnabas.model import TopicPartition
from barnabas.storage import LogConfig, LogManager, OsFileSystem
from barnabas.storage.data_folders import DataFolders
from tests.support.deletion_notes import note

OWN = 1
CLICKS = TopicPartition("clicks", 0)
TOPIC_ID = uuid.UUID(int=7)
OTHER_ID = uuid.UUID(int=8)


async def at_once(function: Callable[..., Any], *arguments: Any) -> Any:
    return function(*arguments)


class Home:
    """A broker's two data folders, and a tree; `start` is the next start."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tree = EmbeddedMetadataStore(folder / "tree.sqlite", ManualClock())
        self.managers: list[LogManager] = []

    def start(self, offline: str = "") -> None:
        """Start anew.

        :param offline: the data folder whose disk fails.
        """
        self.stop()
        open_folder = functools.partial(self._open, offline)
        self.logs = DataFolders([self.folder / "a", self.folder / "b"], OsFileSystem(), open_folder)
        replica_logs = ReplicaLogs(self.logs, at_once)
        self.removals = ReplicaRemoval(OWN, self.tree, at_once, replica_logs)
        self.deletions = TopicDeletion(OWN, self.tree, at_once, replica_logs, Events())

    def _open(self, offline: str, path: Path) -> LogManager:
        if path.name == offline:
            raise DataFolderError("the disk fails") from OSError(errno.EIO, "Input/output error")
        manager = LogManager(
            path, LogConfig(), ManualClock(), OsFileSystem(), cluster_id="castle", boot_id="1", loads=False
        )
        self.managers.append(manager)
        return manager

    def stop(self) -> None:
        for each in self.managers:
            each.abandon()
        self.managers.clear()

    def is_there(self) -> bool:
        return (self.folder / "a" / "clicks-0").exists()


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    """A home whose first data folder has a log."""
    made = Home(tmp_path)
    made.start()
    made.logs.create(CLICKS, LogConfig(), TOPIC_ID)
    assert made.is_there()
    yield made
    made.stop()
    made.tree.close()


def test_replica_that_moved_away_is_deleted_when_its_data_folder_is_back(home: Home) -> None:
    home.tree.create(paths.removed_replica(TOPIC_ID.bytes, 0, OWN), b'{"name": "clicks"}', make_parents=True)
    home.start(offline="a")
    asyncio.run(home.removals.make_room({}, set()))
    home.removals.check_soon()
    asyncio.run(home.removals.resume(lambda _where, _topic_id: False, DiskWork(for_all=at_once)))
    assert len(reassignments.read_removals(home.tree, OWN)) == 1
    home.start()
    asyncio.run(home.removals.make_room({}, set()))
    assert not home.is_there()
    assert reassignments.read_removals(home.tree, OWN) == []


def test_deleted_topic_is_deleted_when_its_data_folder_is_back(home: Home) -> None:
    async def start() -> None:
        await home.deletions.make_room(set(), set())
        await home.deletions.load(set(), set(), set())
        await home.deletions.end_all(set())

    note(home.tree, TOPIC_ID.bytes, "clicks", [OWN])
    home.start(offline="a")
    asyncio.run(start())
    home.deletions.begin(OTHER_ID.bytes, "views", has_folders=False)
    note(home.tree, OTHER_ID.bytes, "views", [OWN])
    asyncio.run(home.deletions.end_all(set()))
    assert topic_deletions.read_deletions(home.tree).keys() == {TOPIC_ID.bytes, OTHER_ID.bytes}
    home.start()
    asyncio.run(start())
    assert not home.is_there()
    assert topic_deletions.read_deletions(home.tree) == {}


def test_note_of_a_partition_that_the_tree_does_not_have_deletes_nothing(home: Home) -> None:
    far = TopicPartition("clicks", 7)
    home.logs.create(far, LogConfig(), TOPIC_ID)
    made = topic_metadata_store.create_topic(home.tree, "clicks", TOPIC_ID.bytes, [(OWN,)])
    home.tree.create(paths.removed_replica(TOPIC_ID.bytes, 7, OWN), b'{"name": "clicks"}', make_parents=True)
    home.start()
    asyncio.run(home.removals.make_room({"clicks": made}, set()))
    assert far in home.logs.topic_ids
    assert len(reassignments.read_removals(home.tree, OWN)) == 1
