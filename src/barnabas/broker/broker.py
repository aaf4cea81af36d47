"""The broker: puts the parts together, starts them in order and stops them in the reverse order."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import errno
import functools
import logging
import os
import secrets
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from barnabas.broker.cleaner_process import CleanerProcess
from barnabas.broker.disk_work import DiskThreads
from barnabas.broker.dispatch import Dispatcher
from barnabas.broker.fetch_sessions import FetchSessions
from barnabas.broker.group_shell import GroupShell
from barnabas.broker.handlers import SERVED
from barnabas.broker.identity import Identity
from barnabas.broker.log_cleaner import LogCleaner
from barnabas.broker.loop_watch import LoopWatch
from barnabas.broker.offset_move import move_offsets
from barnabas.broker.offset_store import OffsetStore
from barnabas.broker.open_files import OpenFiles, open_files_limit
from barnabas.broker.parts import Parts
from barnabas.broker.producer_ids import ProducerIds
from barnabas.broker.settings.dynamic import DynamicSettings
from barnabas.broker.settings.static import BrokerConfig
from barnabas.broker.settings.topic_config import default_log_config
from barnabas.broker.topics import Topics, log_configs
from barnabas.broker.turns import Turns
from barnabas.clock import SYSTEM_CLOCK, Clock
from barnabas.coordination import registry
from barnabas.coordination.embedded import EmbeddedTree
from barnabas.coordination.tree import Tree
from barnabas.coordination.values import BrokerRegistration
from barnabas.errors import BarnabasError, ConfigurationError, DataFolderError, StorageError
from barnabas.net.limits import Limits
from barnabas.net.listener import Listener
from barnabas.storage.file_names import LOCK
from barnabas.storage.filesystem import OsFileSystem
from barnabas.storage.log_manager import LogManager
from barnabas.storage.reserve import Reserve

TREE_FILE = "tree.sqlite"
FINISH_S = 5.0
"""How long a broker that stops waits for the requests that it has begun."""
RESERVE_INTERVAL_MS = 60_000
"""How often the broker tries to make the reserve again after it was given up."""

FLUSH_INTERVAL_MS_MAX = 10_000
"""The longest time between two checks for logs with much that is not flushed: after a crash, all of that is checked."""

MOVE_AGAIN_S = 10.0
"""The pause after which it is tried again to move offsets into the log that an earlier release kept in the tree."""

INTERVAL_MS_MIN = 50
"""The shortest pause between two rounds of background work, whatever the settings say."""

log = logging.getLogger(__name__)


class Broker:
    """One broker with its embedded tree. Used from the thread of the event loop in which it was started."""

    identity: Identity
    settings: DynamicSettings
    topics: Topics
    groups: GroupShell
    offsets: OffsetStore
    producer_ids: ProducerIds
    parts: Parts
    dispatcher: Dispatcher

    def __init__(self, config: BrokerConfig, clock: Clock = SYSTEM_CLOCK) -> None:
        self.config = config
        self.clock = clock
        self.port = 0
        self.turns = Turns(clock.monotonic)
        self.fetch_sessions = FetchSessions(config.max_incremental_fetch_session_cache_slots, secrets.randbelow)
        self._listener: Listener | None = None
        self._stopping = contextlib.ExitStack()
        self._tree_thread = ThreadPoolExecutor(1, thread_name_prefix="tree")
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Begin to serve; `port` is known afterwards.

        :raises ConfigurationError: the address cannot be listened on.
        :raises DataFolderError: the data folder cannot be used.
        """
        try:
            self._start()
        except BaseException:
            self._stopping.close()
            raise

    async def stop(self) -> None:
        """Stop serving, store everything, and leave a clean data folder."""
        if self._listener:
            await self._listener.finish(FINISH_S)
            self._listener.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        # Changes that clients have begun are completed, even if those clients are gone.
        await self.settings.end_changes()
        await self.topics.end_changes()
        self._stopping.close()

    def _start(self) -> None:
        stopping = self._stopping
        open_files = OpenFiles(open_files_limit(), self.config.max_connections)
        listener = self._listener = Listener(_limits(self.config, open_files))
        # Listening comes first: an address in use is told before any log is touched, and clients that come
        # early wait in the backlog instead of being refused.
        stopping.callback(listener.close)
        self.port = self._listen(listener)
        folder = Path(self.config.data)
        reserve = self._reserve = Reserve(OsFileSystem(), folder)
        tree = self._open_tree(folder)
        stopping.callback(tree.close)
        stopping.callback(self._tree_thread.shutdown)
        self.identity = Identity(
            self.config.broker_id,
            registry.prepare(tree, _new_cluster_id()),
            self.config.advertised_host or self.config.host,
            self.config.advertised_port or self.port,
        )
        self.settings = DynamicSettings(self.config, tree, self._in_tree_thread, self._put_into_force)
        self.config = self.settings.broker.config
        logs = self._open_logs(folder, open_files, tree)
        stopping.callback(logs.close)
        open_files.count_logs = logs.count
        open_files.tell()
        self._register(tree)
        threads = DiskThreads()
        stopping.callback(threads.close)
        self.topics = Topics(self.config, tree, logs, self._in_tree_thread, open_files, threads.work())
        self.topics.load()
        reserve.make()
        self.groups = GroupShell(self.config, self.clock, self.topics, self.turns)
        stopping.callback(self.groups.close)
        self.offsets = OffsetStore(self.groups, self.topics, self.clock, self.turns)
        self.topics.forget_offsets = self.offsets.delete_topics
        must_move = registry.must_move_offsets(tree)
        if not must_move:
            self.groups.start()
        self.producer_ids = ProducerIds(tree, self.identity.node_id, self._in_tree_thread)
        self._tasks = [
            asyncio.create_task(self._begin_with_groups(tree, must_move=must_move)),
            asyncio.create_task(self._expire_offsets()),
            asyncio.create_task(self._now_and_then(self.config.file_delete_delay_ms // 2, logs.purge_deleted)),
            asyncio.create_task(self._now_and_then(RESERVE_INTERVAL_MS, reserve.make)),
            asyncio.create_task(self._flush_sealed(logs)),
            asyncio.create_task(self._delete_old_records()),
        ]
        if self.config.log_cleaner_enable:
            cleaner = LogCleaner(self.topics, logs, self.clock, lambda: self.config, self._new_cleaner)
            self._tasks.append(asyncio.create_task(cleaner.run()))
        watch = LoopWatch(self.clock.monotonic)
        watch.start()
        stopping.callback(watch.stop)
        # Callbacks run in reverse order: the listener is closed first, so requests end before the parts that they use.
        stopping.callback(listener.close)
        self.parts = Parts(
            topics=self.topics,
            groups=self.groups,
            offsets=self.offsets,
            producer_ids=self.producer_ids,
            fetch_sessions=self.fetch_sessions,
            settings=self.settings,
            identity=self.identity,
            turns=self.turns,
            clock=self.clock,
            served=SERVED,
        )
        self.dispatcher = Dispatcher(self.parts.bind_all(), self.turns)
        listener.accept(self.dispatcher)

    def _new_cleaner(self) -> CleanerProcess:
        return CleanerProcess(self.clock.monotonic)

    async def _put_into_force(self, config: BrokerConfig) -> None:
        self.config = config
        await self.topics.set_defaults(config)

    def _listen(self, listener: Listener) -> int:
        host, port = self.config.host, self.config.port
        try:
            return listener.listen(host, port)
        except OSError as error:
            hint = "; choose another with --port, or --port 0 for a free one" if error.errno == errno.EADDRINUSE else ""
            raise ConfigurationError(f"cannot listen on {host}:{port}: {os.strerror(error.errno or 0)}{hint}") from None

    def _open_tree(self, folder: Path) -> EmbeddedTree:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            # SQLite would say "disk I/O error" where this says "Read-only file system".
            (folder / LOCK).open("ab").close()
        except OSError as error:
            raise DataFolderError(f"{folder} cannot be used as a data folder: {error.strerror}") from None
        self._reserve.give_up_if_short()
        return EmbeddedTree(folder / TREE_FILE, self.clock)

    def _open_logs(self, folder: Path, open_files: OpenFiles, tree: Tree) -> LogManager:
        return LogManager(
            folder,
            default_log_config(self.config),
            self.clock,
            OsFileSystem(),
            broker_id=self.identity.node_id,
            cluster_id=self.identity.cluster_id,
            file_delete_delay_ms=self.config.file_delete_delay_ms,
            segments_open_max=open_files.segments_max,
            topic_configs=lambda: log_configs(tree, self.config),
        )

    def _register(self, tree: Tree) -> None:
        own = self.identity
        registry.register_broker(tree, BrokerRegistration(own.node_id, own.host, own.port, self.clock.time_ms()))

    def _in_tree_thread(self, function: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:
        if function is registry.note_deletion:
            # Deleting a topic makes room, so it must work on a full disk.
            self._reserve.give_up_if_short()
        return asyncio.get_running_loop().run_in_executor(self._tree_thread, function, *arguments)

    async def _begin_with_groups(self, tree: Tree, *, must_move: bool) -> None:
        topic_ids = {topic.name: topic.id for topic in self.topics.all()}
        while must_move:
            try:
                await move_offsets(tree, self._in_tree_thread, self.groups, self.topics, topic_ids, self.clock)
                must_move = False
            except BarnabasError as error:
                log.warning("offsets could not be moved; tried again in %g s: %s", MOVE_AGAIN_S, error)
                await asyncio.sleep(MOVE_AGAIN_S)
        self.groups.start()
        await self.groups.wait_until_loaded()
        await self.topics.end_deletions()

    async def _expire_offsets(self) -> None:
        while True:
            await asyncio.sleep(self.config.offsets_retention_check_interval_ms / 1000)
            try:
                retention_ms = self.config.offsets_retention_minutes * 60_000
                forgotten = await self.offsets.expire(retention_ms)
            except BarnabasError as error:
                log.warning("offsets could not be forgotten; tried again later: %s", error)
            except Exception:
                log.exception("offsets could not be forgotten; tried again later")
            else:
                if forgotten:
                    log.info("forgot %d offsets of groups without members", forgotten)

    async def _delete_old_records(self) -> None:
        while True:
            await asyncio.sleep(max(self.config.log_retention_check_interval_ms, INTERVAL_MS_MIN) / 1000)
            try:
                await self.topics.delete_old_records()
            except StorageError as error:
                log.warning("%s", error)
            except Exception:
                log.exception("old records could not be deleted; tried again later")

    async def _flush_sealed(self, logs: LogManager) -> None:
        due = asyncio.Event()
        # Called by the thread that rolls a segment; an asyncio event may be set by its loop's own thread only.
        logs.on_flush_due = functools.partial(asyncio.get_running_loop().call_soon_threadsafe, due.set)
        wanted_ms = min(self.config.log_flush_offset_checkpoint_interval_ms, FLUSH_INTERVAL_MS_MAX)
        interval_s = max(wanted_ms, INTERVAL_MS_MIN) / 1000
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(due.wait(), interval_s)
            due.clear()
            try:
                await asyncio.to_thread(logs.flush_sealed)
            except StorageError as error:
                log.warning("%s", error)
            except Exception:
                log.exception("logs could not be flushed; tried again later")
            await asyncio.sleep(INTERVAL_MS_MIN / 1000)

    async def _now_and_then(self, interval_ms: int, action: Callable[[], None]) -> None:
        """Run `action` on a thread, again and again."""
        while True:
            await asyncio.sleep(max(interval_ms, INTERVAL_MS_MIN) / 1000)
            try:
                await asyncio.to_thread(action)
            except StorageError as error:
                log.warning("%s", error)
            except Exception:
                log.exception("%s failed; tried again later", action.__qualname__)


def _limits(config: BrokerConfig, open_files: OpenFiles) -> Limits:
    """Return the limits for clients that the settings ask for."""
    return Limits(
        # Kafka demands socket.request.max.bytes <= queued.max.request.bytes; here the smaller of the two counts.
        frame_bytes_max=min(config.socket_request_max_bytes, config.queued_max_request_bytes),
        queued_bytes_max=config.queued_max_request_bytes,
        connections_max=open_files.connections_max,
        connections_per_host_max=config.max_connections_per_ip,
        idle_s_max=config.connections_max_idle_ms / 1000,
        partial_frame_s_max=config.socket_partial_request_timeout_ms / 1000,
    )


def _new_cluster_id() -> str:
    """Make an id as Kafka's are: the 16 bytes of a UUID, in 22 characters."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
