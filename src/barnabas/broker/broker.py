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

from barnabas.broker.config import BrokerConfig
from barnabas.broker.disk_lane import DiskThreads
from barnabas.broker.dispatch import Dispatcher
from barnabas.broker.dynamic_settings import DynamicSettings
from barnabas.broker.fetch_sessions import FetchSessions
from barnabas.broker.group_shell import GroupShell
from barnabas.broker.loop_watch import LoopWatch
from barnabas.broker.offset_store import OffsetStore
from barnabas.broker.open_files import OpenFiles, open_files_limit
from barnabas.broker.producer_ids import ProducerIds
from barnabas.broker.topic_config import default_log_config
from barnabas.broker.topics import Topics
from barnabas.broker.turns import Turns
from barnabas.clock import SYSTEM_CLOCK, Clock
from barnabas.coordination import registry
from barnabas.coordination.embedded import EmbeddedTree
from barnabas.coordination.tree import Tree
from barnabas.coordination.values import BrokerRegistration
from barnabas.errors import ConfigurationError, CoordinationError, DataFolderError, StorageError
from barnabas.net.limits import Limits
from barnabas.net.listener import Listener
from barnabas.net.server_connection import Peer
from barnabas.storage.file_names import LOCK
from barnabas.storage.filesystem import OsFileSystem
from barnabas.storage.log_manager import LogManager
from barnabas.storage.reserve import Reserve

WILDCARD_HOSTS = frozenset({"", "0.0.0.0", "::"})
TREE_FILE = "tree.sqlite"
FINISH_S = 5.0
"""How long requests that have begun may take to come to their end when the broker stops."""
RESERVE_INTERVAL_MS = 60_000
"""How often it is looked whether there is room for a reserve that was given up."""

FLUSH_INTERVAL_MS_MAX = 10_000
"""How often it is looked at the latest whether much was appended that is not flushed: it is checked after a crash."""

INTERVAL_MS_MIN = 50
"""What is done again and again is not done without a pause, whatever the settings say."""

log = logging.getLogger(__name__)


class Broker:
    """One broker with its embedded tree. Used from the thread of the event loop in which it was started."""

    settings: DynamicSettings
    topics: Topics
    groups: GroupShell
    offsets: OffsetStore
    producer_ids: ProducerIds

    def __init__(self, config: BrokerConfig, clock: Clock = SYSTEM_CLOCK) -> None:
        self.config = config
        self.clock = clock
        self.node_id = config.broker_id
        self.cluster_id = ""
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
        """Answer nobody any more, write down everything and leave a clean data folder."""
        if self._listener:
            await self._listener.finish(FINISH_S)
            self._listener.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        # What clients have begun to change is made to its end, also if they did not wait for it.
        await self.settings.end_changes()
        await self.topics.end_changes()
        self._stopping.close()

    def address_for(self, peer: Peer) -> tuple[str, int]:
        """Return the address that a client is to use for this broker.

        A broker that listens on all addresses tells each client the one at which that client reached it.
        """
        host = self.config.advertised_host or self.config.host
        if host in WILDCARD_HOSTS:
            host = peer.local_host
        return host, self.config.advertised_port or self.port

    def _start(self) -> None:
        stopping = self._stopping
        open_files = OpenFiles(open_files_limit(), self.config.max_connections)
        listener = self._listener = Listener(Dispatcher(self), _limits(self.config, open_files))
        # Listening comes first: an address in use is told before any log is touched, and clients that come
        # early wait in the backlog instead of being refused.
        stopping.callback(listener.close)
        self.port = self._listen(listener)
        folder = Path(self.config.data)
        reserve = self._reserve = Reserve(OsFileSystem(), folder)
        tree = self._open_tree(folder)
        stopping.callback(tree.close)
        stopping.callback(self._tree_thread.shutdown)
        self.cluster_id = registry.prepare(tree, _new_cluster_id())
        logs = self._open_logs(folder, open_files)
        stopping.callback(logs.close)
        open_files.count_logs = logs.count
        open_files.tell()
        self._register(tree)
        self.settings = DynamicSettings(self.config, tree, self._in_tree_thread, self._put_into_force)
        self.config = self.settings.broker.config
        threads = DiskThreads()
        stopping.callback(threads.close)
        self.topics = Topics(self.config, tree, logs, self._in_tree_thread, open_files, threads.work())
        self.topics.load()
        reserve.make()
        self.groups = GroupShell(self.config, self.clock, self.turns.wake)
        stopping.callback(self.groups.close)
        self.offsets = OffsetStore(tree, self.clock, self._in_tree_thread)
        self.producer_ids = ProducerIds(tree, self.node_id, self._in_tree_thread)
        self._tasks = [
            asyncio.create_task(self._expire_offsets()),
            asyncio.create_task(self._now_and_then(self.config.file_delete_delay_ms // 2, logs.purge_deleted)),
            asyncio.create_task(self._now_and_then(RESERVE_INTERVAL_MS, reserve.make)),
            asyncio.create_task(self._flush_sealed(logs)),
            asyncio.create_task(self._delete_old_records()),
        ]
        watch = LoopWatch(self.clock.monotonic)
        watch.start()
        stopping.callback(watch.stop)
        # The last to be stopped is the first that was started; requests must end before what they use.
        stopping.callback(listener.close)
        listener.accept()

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

    def _open_logs(self, folder: Path, open_files: OpenFiles) -> LogManager:
        return LogManager(
            folder,
            default_log_config(self.config),
            self.clock,
            OsFileSystem(),
            broker_id=self.node_id,
            cluster_id=self.cluster_id,
            file_delete_delay_ms=self.config.file_delete_delay_ms,
            segments_open_max=open_files.segments_max,
        )

    def _register(self, tree: Tree) -> None:
        host = self.config.advertised_host or self.config.host
        port = self.config.advertised_port or self.port
        registry.register_broker(tree, BrokerRegistration(self.node_id, host, port, self.clock.time_ms()))

    def _in_tree_thread(self, function: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:
        if function is registry.note_deletion:
            # What makes room must not fail for want of it.
            self._reserve.give_up_if_short()
        return asyncio.get_running_loop().run_in_executor(self._tree_thread, function, *arguments)

    async def _expire_offsets(self) -> None:
        while True:
            await asyncio.sleep(self.config.offsets_retention_check_interval_ms / 1000)
            try:
                retention_ms = self.config.offsets_retention_minutes * 60_000
                forgotten = await self.offsets.expire(retention_ms, self.groups.empty_for_ms)
                self.groups.forget_unused(frozenset(await self.offsets.group_ids()))
            except CoordinationError as error:
                log.warning("%s", error)
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
        # It is told by the thread that rolls a segment, and an event is for its loop's own thread only.
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
        """Do something to the logs again and again, off the event loop."""
        while True:
            await asyncio.sleep(max(interval_ms, INTERVAL_MS_MIN) / 1000)
            try:
                await asyncio.to_thread(action)
            except StorageError as error:
                log.warning("%s", error)
            except Exception:
                log.exception("%s failed; tried again later", action.__qualname__)


def _limits(config: BrokerConfig, open_files: OpenFiles) -> Limits:
    """Return what clients may cost."""
    return Limits(
        # Kafka asks that the one be no more than the other; here the smaller one counts.
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
