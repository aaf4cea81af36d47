"""Topics of one broker over a tree and a disk that refuse what they are told to; others change the tree unheard."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from barnabas.broker.broker_events import Events, TopicsDeleted
from barnabas.broker.cluster_watch import MetadataUpdate
from barnabas.broker.open_files import OpenFiles
from barnabas.broker.pipeline.scheduler import CooperativeScheduler
from barnabas.broker.random_source import RandomSource
from barnabas.broker.settings.static import BrokerConfig
from barnabas.broker.settings.topic_config import default_log_config
from barnabas.broker.topic_admin import TopicAdmin
from barnabas.broker.topics import Topics
from barnabas.clock import ManualClock
from barnabas.coordination import topic_metadata_store
from barnabas.coordination.embedded_metadata_store import EmbeddedMetadataStore
from barnabas.coordination.metadata_store import Operation, OperationResult
from barnabas.coordination.values import BrokerRegistration, LiveBroker
from barnabas.errors import ApiError, CoordinationError, ErrorCode, StorageError
from barnabas.records import BatchBuilder
from barnabas.storage import LogManager, OsFileSystem
from tests.support.log_steps import append

CONFIG = BrokerConfig()


class FailingMetadataStore(EmbeddedMetadataStore):
    """Fails writes while it is told to, all or those below a node; counts how often it was made durable."""

    fails = False
    refused = "nothing"
    flushes = 0

    def multi(self, operations: Any) -> list[OperationResult]:
        listed: list[Operation] = list(operations)
        if self.fails or any(operation.path.startswith(self.refused) for operation in listed):
            raise CoordinationError("the disk is full")
        return super().multi(listed)

    def flush(self) -> None:
        self.flushes += 1
        super().flush()


class FailingFiles(OsFileSystem):
    """Cannot make folders, or rename them, whose name is listed."""

    def __init__(self) -> None:
        self.refused: set[str] = set()

    def make_folder(self, path: Path) -> None:
        self._check(path)
        super().make_folder(path)

    def replace(self, source: Path, target: Path) -> None:
        self._check(source)
        super().replace(source, target)

    def _check(self, path: Path) -> None:
        if path.name in self.refused:
            raise OSError(errno.ENOSPC, "No space left on device", str(path))


class Bench:
    """A tree, a data folder, and the topics in them; can be restarted."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.disk = FailingFiles()
        self.tree = FailingMetadataStore(folder / "tree.sqlite")
        topic_metadata_store.prepare(self.tree, "castle")
        self.scheduler = CooperativeScheduler(lambda: 0.0)
        self.gate: asyncio.Event | None = None
        """Where there is one, the tree's thread waits for it."""
        self.thread: ThreadPoolExecutor | None = None
        """Where there is one, it is the tree's thread."""
        self.room = 1_000_000
        """How many partitions the disk has room for."""
        self.cannot_forget = False
        self.forgotten: list[tuple[set[bytes], set[str]]] = []
        """The topics whose offsets were forgotten."""
        self.start()

    def start(self) -> None:
        clock = ManualClock()
        self.logs = LogManager(self.folder, default_log_config(CONFIG), clock, self.disk, cluster_id="castle")
        self.open_files = OpenFiles(10_000, 100, self.logs.count)
        asyncio.run(self._load())

    async def _load(self) -> None:
        """Begin as a broker does that has registered."""
        run: Any = self._in_metadata_thread
        self.events = Events()
        self.events.subscribe(TopicsDeleted, self._forget)
        self.topics = Topics(CONFIG, self.tree, self.logs, run, self.events)
        self.topic_admin = TopicAdmin(
            CONFIG.broker_id,
            self.topics,
            self.tree,
            run,
            self.events,
            self.open_files,
            RandomSource(),
            self._check_disk,
        )
        me = LiveBroker(BrokerRegistration(CONFIG.broker_id, "here", 1), 1)
        await self.topics.load(
            MetadataUpdate({CONFIG.broker_id: me}, topics=dict(topic_metadata_store.each_topic(self.tree)))
        )

    def _check_disk(self, count: int) -> None:
        if count > self.room:
            raise StorageError(f"the disk is full: no room for {count}")

    async def _forget(self, deleted: TopicsDeleted) -> None:
        if self.cannot_forget:
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "wait")
        self.forgotten.append((set(deleted.topic_ids), set(deleted.names)))

    def restart(self) -> None:
        self.logs.abandon()
        self.start()

    def close(self) -> None:
        if self.thread:
            self.thread.shutdown()
        self.logs.abandon()
        self.tree.close()

    async def _in_metadata_thread(self, function: Callable[..., Any], *arguments: Any) -> Any:
        if self.thread:
            return await asyncio.get_running_loop().run_in_executor(self.thread, function, *arguments)
        await (self.gate.wait() if self.gate else asyncio.sleep(0))
        return function(*arguments)

    def create(self, partition_count: int = 1, **settings: str) -> None:
        named = {name.replace("_", "."): value for name, value in settings.items()}
        asyncio.run(self.topic_admin.create("clicks", partition_count, named))

    def grow(self, partition_count: int) -> None:
        asyncio.run(self.topic_admin.grow("clicks", partition_count))

    def append(self, number: int = 0) -> None:
        builder = BatchBuilder()
        builder.append(1_000, None, b"value")
        asyncio.run(append(self.topics.replicas.leader("clicks", number), builder.build()))

    def partitions_in_tree(self) -> int:
        found = topic_metadata_store.read_topic(self.tree, "clicks")
        return len(found.partitions) if found else 0

    def folders(self, pattern: str) -> list[str]:
        return sorted(path.name for path in self.folder.glob(pattern) if path.is_dir())
