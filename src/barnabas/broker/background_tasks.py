"""The background tasks of a broker: flushes, retention, deletions, metadata store purges and leader elections.

Each task is a loop that runs until it is cancelled. If an iteration fails, the task logs the error and tries again in
the next iteration.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from barnabas.broker.broker_events import ElectionPostponed, Events
from barnabas.broker.cluster_watch import ClusterWatch
from barnabas.broker.controlled_shutdown import ControlledShutdown
from barnabas.broker.disk_work import DiskWork
from barnabas.broker.group_service import GroupService
from barnabas.broker.metadata_store_access import InMetadataThread
from barnabas.broker.offset_move import move_offsets
from barnabas.broker.offset_store import OffsetStore
from barnabas.broker.settings.static import BrokerConfig
from barnabas.broker.topics import Topics
from barnabas.clock import Clock
from barnabas.coordination.metadata_store import MetadataStore
from barnabas.errors import BarnabasError
from barnabas.storage.data_folders import AnyLogs, DataFolders
from barnabas.storage.reserve import Reserve

INTERVAL_MS_MIN = 50
"""The minimum pause between two iterations of a background task in ms, whatever interval a setting has."""

DELETION_INTERVAL_MS = 1_000
"""The interval between checks for unfinished topic deletions, in ms.

A deletion may need several attempts. The committed offsets are deleted when other replicas have the tombstones, but the
metadata update with the deletion may have removed these replicas.
"""

RESERVE_INTERVAL_MS = 60_000
"""The interval between attempts to recreate the disk space reserve after it was used, in ms."""

FLUSH_INTERVAL_MS_MAX = 10_000
"""The maximum interval between flushes of sealed segments, in ms.

It limits the work of crash recovery, which reads all unflushed segments.
"""

CLAIM_INTERVAL_MS = 100
"""The interval between checks for postponed leader elections that are due, in ms."""

OFFLINE_INTERVAL_MS = 1_000
"""The interval between checks for offline logs of partitions that this broker leads, in ms."""

PURGE_INTERVAL_MS = 60_000
"""The interval between purges of old change notifications, in ms."""

MOVE_AGAIN_S = 10.0
"""The pause before a failed migration of committed offsets from the metadata store is retried, in seconds."""

log = logging.getLogger(__name__)


class BackgroundTasks:
    """Creates the loops of the background tasks. Used from the event loop's thread only.

    :param config: returns the effective settings.
    :param flush_due: an event that is set when many sealed segments are unflushed.
    """

    def __init__(
        self,
        config: Callable[[], BrokerConfig],
        topics: Topics,
        groups: GroupService,
        offsets: OffsetStore,
        watch: ClusterWatch,
        clock: Clock,
        work: DiskWork,
        events: Events,
        flush_due: asyncio.Event,
    ) -> None:
        self._config = config
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._watch = watch
        self._clock = clock
        self._work = work
        self._flush_due = flush_due
        self._may_elect = asyncio.Event()
        events.subscribe(ElectionPostponed, lambda _event: self._may_elect.set())

    def all(self, logs: AnyLogs, reserve: Reserve) -> list[Coroutine[Any, Any, None]]:
        """Return the loops of all background tasks except `watch_folders`."""
        return [
            _again_and_again(lambda: CLAIM_INTERVAL_MS, "elect leaders", self._elect_when_due),
            _again_and_again(lambda: PURGE_INTERVAL_MS, "purge change notifications", self._purge_changes),
            _again_and_again(lambda: OFFLINE_INTERVAL_MS, "transfer offline partitions", self._give_up_offline),
            _again_and_again(
                lambda: self._config().leader_imbalance_check_interval_seconds * 1000,
                "transfer partitions to their preferred replicas",
                self._prefer,
            ),
            _again_and_again(lambda: DELETION_INTERVAL_MS, "complete deletions", self._topics.end_deletions),
            _again_and_again(self._expiry_interval_ms, "delete expired offsets", self._expire_offsets),
            _again_and_again(
                self._retention_interval_ms, "delete old records", self._topics.replicas.delete_old_records
            ),
            _again_and_again(
                lambda: self._config().file_delete_delay_ms // 2,
                "remove deleted files",
                functools.partial(self._work.for_all, logs.purge_deleted),
            ),
            _again_and_again(
                lambda: RESERVE_INTERVAL_MS,
                "create the disk space reserve",
                functools.partial(self._work.for_all, reserve.make),
            ),
            _again_and_again(
                lambda: self._config().replica_high_watermark_checkpoint_interval_ms,
                "store high watermarks",
                functools.partial(self._work.for_all, logs.checkpoint_high_watermarks),
            ),
            self._flush_sealed(logs),
        ]

    def watch_folders(self, folders: DataFolders) -> Coroutine[Any, Any, None]:
        """Return the loop that checks whether the log directories are still usable."""
        check = functools.partial(self._work.for_all, folders.check)
        return _again_and_again(lambda: OFFLINE_INTERVAL_MS, "check the log directories", check)

    async def begin_with_groups(
        self, tree: MetadataStore, in_metadata_thread: InMetadataThread, *, must_move: bool
    ) -> None:
        """Start the group coordinators.

        First migrate the committed offsets from the metadata store, where an early release stored them, if `must_move`.
        """
        topic_ids = {topic.name: topic.id for topic in self._topics.all()}
        while must_move:
            try:
                await move_offsets(tree, in_metadata_thread, self._groups, self._topics, topic_ids, self._clock)
                must_move = False
            except BarnabasError as error:
                log.warning(
                    "cannot migrate committed offsets from the metadata store: %s; retrying in %g s",
                    error,
                    MOVE_AGAIN_S,
                )
                await asyncio.sleep(MOVE_AGAIN_S)
        self._groups.start()
        await self._groups.wait_until_loaded()
        await self._topics.end_deletions()

    async def _elect_when_due(self) -> None:
        election = self._topics.election
        if election.next_deadline is None:
            # No election is postponed: sleep until an `ElectionPostponed` event.
            self._may_elect.clear()
            await self._may_elect.wait()
        due_s = election.next_deadline
        if due_s is not None and due_s <= self._clock.monotonic():
            await self._topics.elect_due()

    async def _give_up_offline(self) -> None:
        await ControlledShutdown(self._topics, self._config().broker_id).transfer_offline()

    async def _prefer(self) -> None:
        if self._config().auto_leader_rebalance_enable:
            await ControlledShutdown(self._topics, self._config().broker_id).transfer_to_preferred()

    async def _purge_changes(self) -> None:
        if self._topics.image.controller_id == self._config().broker_id:
            await self._watch.purge()

    def _expiry_interval_ms(self) -> int:
        return self._config().offsets_retention_check_interval_ms

    async def _expire_offsets(self) -> None:
        forgotten = await self._offsets.expire(self._config().offsets_retention_minutes * 60_000)
        if forgotten:
            log.info("deleted %d expired offsets", forgotten)

    def _retention_interval_ms(self) -> int:
        return self._config().log_retention_check_interval_ms

    async def _flush_sealed(self, logs: AnyLogs) -> None:
        wanted_ms = min(self._config().log_flush_offset_checkpoint_interval_ms, FLUSH_INTERVAL_MS_MAX)
        interval_s = max(wanted_ms, INTERVAL_MS_MIN) / 1000

        async def flush() -> None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(interval_s):
                    await self._flush_due.wait()
            self._flush_due.clear()
            await self._work.for_all(logs.flush_sealed)

        await _again_and_again(lambda: INTERVAL_MS_MIN, "flush logs", flush)


def setter_for_threads(event: asyncio.Event) -> Callable[[], object]:
    """Return a function that sets an asyncio event. Any thread may call this function."""
    return functools.partial(asyncio.get_running_loop().call_soon_threadsafe, event.set)


async def _again_and_again(interval_ms: Callable[[], int], what: str, action: Callable[[], Awaitable[None]]) -> None:
    while True:
        await asyncio.sleep(max(interval_ms(), INTERVAL_MS_MIN) / 1000)
        try:
            await action()
        except BarnabasError as error:
            log.warning("cannot %s: %s; retrying later", what, error)
        except Exception:
            log.exception("cannot %s; retrying later", what)
