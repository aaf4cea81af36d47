"""Several brokers' topics over one tree, in one event loop, without what serves clients and fetches from leaders."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from barnabas.broker.broker_events import Events
from barnabas.broker.cluster_watch import ClusterWatch, MetadataUpdate
from barnabas.broker.leader_replica import LeaderReplica
from barnabas.broker.open_files import OpenFiles
from barnabas.broker.random_source import RandomSource
from barnabas.broker.settings.static import BrokerConfig
from barnabas.broker.settings.topic_config import default_log_config
from barnabas.broker.topic_admin import TopicAdmin
from barnabas.broker.topics import Topics
from barnabas.clock import ManualClock
from barnabas.coordination import paths, topic_metadata_store
from barnabas.coordination.embedded_metadata_store import EmbeddedMetadataStore
from barnabas.coordination.life_counters import read_life_counters, write_life_counters
from barnabas.coordination.topic_metadata_store import PartitionInfo
from barnabas.coordination.values import BrokerRegistration
from barnabas.model import TopicPartition
from barnabas.records import BatchBuilder
from barnabas.storage import LogManager, OsFileSystem

CLICKS = TopicPartition("clicks", 0)


async def in_metadata_thread(function: Callable[..., Any], *arguments: Any) -> Any:
    await asyncio.sleep(0)
    return function(*arguments)


class NextEpochs(RandomSource):
    """Elections skip no epochs, so that tests can name them."""

    def later_epoch(self, epoch: int) -> int:
        return epoch


class Node:
    """What is of a broker here: its session, its folder, its topics, and what it has read."""

    topics: Topics
    topic_admin: TopicAdmin
    watch: ClusterWatch

    def __init__(self, cluster: Cluster, broker_id: int) -> None:
        self.cluster = cluster
        self.id = broker_id
        self.config = BrokerConfig(broker_id=broker_id)
        self.before_loading: Callable[[], None] = lambda: None
        """Called when the tree was read, before what it says is taken over."""

    async def start(self, *, lost_memory: bool = False) -> Node:
        """Begin as a broker does."""
        self.tree = self.cluster.tree.new_session()
        folder = self.cluster.folder / str(self.id)
        self.logs = LogManager(
            folder,
            default_log_config(self.config),
            self.cluster.clock,
            OsFileSystem(),
            broker_id=self.id,
            cluster_id="castle",
            boot_id="monday",
        )
        self.logs.life.compare(read_life_counters(self.tree, [self.logs.folder_id]).get(self.logs.folder_id))
        self.logs.report_age()
        topic_metadata_store.register_broker(self.tree, BrokerRegistration(self.id, "here", 9000 + self.id))
        clock, random_source, files = (
            self.cluster.clock,
            self.cluster.random_source,
            OpenFiles(10_000, 100, self.logs.count),
        )
        run: Any = in_metadata_thread
        self.events = Events()
        self.topics = Topics(
            self.config, self.tree, self.logs, run, self.events, clock=clock, random_source=random_source
        )
        self.topic_admin = TopicAdmin(
            self.id, self.topics, self.tree, run, self.events, files, random_source, lambda _count: None
        )
        self.watch = ClusterWatch(self.tree, in_metadata_thread, self._apply_update)  # type: ignore[arg-type]
        update = self.watch.read_everything()
        self.before_loading()
        await self.topics.load(update, lost_memory=lost_memory)
        self.logs.note_boot()
        self.increment_life_counter()
        await self.topics.end_deletions()
        return self

    def increment_life_counter(self) -> None:
        """Raise the life counter, as a broker does every 10 s."""
        if self.logs.must_stay_ahead:
            self.logs.life.stay_ahead()
        else:
            mark = self.logs.increment_life_counter(self.cluster.clock.time_ms())
            if not write_life_counters(self.tree, self.id, {self.logs.folder_id: mark}):
                self.logs.confirm_life_counter()

    async def follow(self) -> MetadataUpdate:
        """Take over what is new, as after an event."""
        due = {paths.BROKER_IDS, paths.CHANGES}
        return await self._apply_update(functools.partial(in_metadata_thread, self.watch._read, due))

    async def _apply_update(self, read: Any) -> MetadataUpdate:
        update = await self.topics.apply_update(read)
        await self.topics.end_deletions()
        return update

    def die(self) -> None:
        """End as with kill -9, once the others have noticed."""
        self.logs.abandon()
        self.tree.close()

    def info(self, where: TopicPartition = CLICKS) -> PartitionInfo:
        info = self.topics.image.partition(where)
        assert info is not None
        return info

    def leads(self, where: TopicPartition = CLICKS) -> bool:
        return isinstance(self.topics.replicas.get(where), LeaderReplica)

    def folders(self) -> list[str]:
        return sorted(path.name for path in (self.cluster.folder / str(self.id)).glob("*-?") if path.is_dir())


class Cluster:
    """The tree, which outlives all brokers, and the time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = ManualClock()
        self.tree = EmbeddedMetadataStore(folder / "tree.sqlite", self.clock)
        topic_metadata_store.prepare(self.tree, "castle")
        self.nodes: list[Node] = []
        self.random_source: RandomSource = NextEpochs()

    async def start(self, *broker_ids: int) -> list[Node]:
        started = [await Node(self, each).start() for each in broker_ids]
        self.nodes += started
        await self.follow()
        return started

    async def follow(self) -> None:
        """Let all of them take over what is new, until nobody changes anything."""
        for _ in range(3):
            for node in self.nodes:
                await node.follow()

    async def lose(self, node: Node) -> None:
        """Let a broker die."""
        self.nodes.remove(node)
        node.die()

    def close(self) -> None:
        for node in self.nodes:
            node.die()
        self.tree.close()


def append(node: Node, count: int = 1) -> None:
    for _ in range(count):
        builder = BatchBuilder()
        builder.append(1_000, None, b"value")
        partition = node.topics.replicas.leader(*CLICKS)
        partition.log.append(builder.build(), partition.leader_epoch)


Scenario = Callable[[Cluster], Coroutine[Any, Any, None]]
Run = Callable[[Scenario], None]
