"""What a broker does beside answering: flushes, retention, deletions, what is old in the tree, and taking over.

Each is a loop that goes on until it is cancelled. What fails is logged, and tried again in its next round.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from barnabas.broker.broker_events import ClaimsPostponed, Events
from barnabas.broker.cluster_watch import ClusterWatch
from barnabas.broker.controlled_shutdown import HandingOver
from barnabas.broker.disk_work import DiskWork
from barnabas.broker.group_service import GroupService
from barnabas.broker.offset_move import move_offsets
from barnabas.broker.offset_store import OffsetStore
from barnabas.broker.settings.static import BrokerConfig
from barnabas.broker.topics import Topics
from barnabas.broker.tree_thread import InTreeThread
from barnabas.clock import Clock
from barnabas.coordination.metadata_store import MetadataStore
from barnabas.errors import BarnabasError
from barnabas.storage.data_folders import AnyLogs, DataFolders
from barnabas.storage.reserve import Reserve

INTERVAL_MS_MIN = 50
"""The shortest pause between two rounds of background work, whatever the settings say."""

DELETION_INTERVAL_MS = 1_000
"""How often it is looked whether something is left of topics that are deleted. Not when that becomes known: what groups
committed is forgotten once other replicas know it, and they may have gone with the same news."""

RESERVE_INTERVAL_MS = 60_000
"""How often the broker tries to make the reserve again after it was given up."""

FLUSH_INTERVAL_MS_MAX = 10_000
"""The longest time between two checks for logs with much that is not flushed: after a crash, all of that is checked."""

CLAIM_INTERVAL_MS = 100
"""How often it is looked whether this broker's turn has come to take partitions over."""

OFFLINE_INTERVAL_MS = 1_000
"""How often it is looked whether a log that this broker leads has gone offline."""

PURGE_INTERVAL_MS = 60_000
"""How often changes that all brokers have seen are cleared away."""

MOVE_AGAIN_S = 10.0
"""The pause after which it is tried again to move offsets into the log that an earlier release kept in the tree."""

log = logging.getLogger(__name__)


class Background:
    """Used from the event loop's thread only.

    :param config: returns the settings that are in force.
    :param flush_due: set when sealed segments that are not flushed pile up.
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
        self._may_claim = asyncio.Event()
        events.subscribe(ClaimsPostponed, lambda _event: self._may_claim.set())

    def all(self, logs: AnyLogs, reserve: Reserve) -> list[Coroutine[Any, Any, None]]:
        """Return the loops that need nothing else."""
        return [
            _again_and_again(lambda: CLAIM_INTERVAL_MS, "take partitions over", self._claim_when_due),
            _again_and_again(lambda: PURGE_INTERVAL_MS, "clear old changes away", self._purge_changes),
            _again_and_again(lambda: OFFLINE_INTERVAL_MS, "hand on what is offline here", self._give_up_offline),
            _again_and_again(
                lambda: self._config().leader_imbalance_check_interval_seconds * 1000,
                "hand partitions to their preferred replicas",
                self._prefer,
            ),
            _again_and_again(lambda: DELETION_INTERVAL_MS, "end deletions", self._topics.end_deletions),
            _again_and_again(self._expiry_interval_ms, "forget offsets", self._expire_offsets),
            _again_and_again(
                self._retention_interval_ms, "delete old records", self._topics.replicas.delete_old_records
            ),
            _again_and_again(
                lambda: self._config().file_delete_delay_ms // 2,
                "remove deleted files",
                functools.partial(self._work.for_all, logs.purge_deleted),
            ),
            _again_and_again(
                lambda: RESERVE_INTERVAL_MS, "make the reserve", functools.partial(self._work.for_all, reserve.make)
            ),
            _again_and_again(
                lambda: self._config().replica_high_watermark_checkpoint_interval_ms,
                "store high watermarks",
                functools.partial(self._work.for_all, logs.checkpoint_high_watermarks),
            ),
            self._flush_sealed(logs),
        ]

    def watch_folders(self, folders: DataFolders) -> Coroutine[Any, Any, None]:
        """Return the loop that looks whether the disks of data folders fail."""
        check = functools.partial(self._work.for_all, folders.check)
        return _again_and_again(lambda: OFFLINE_INTERVAL_MS, "look at the data folders", check)

    async def begin_with_groups(self, tree: MetadataStore, in_tree_thread: InTreeThread, *, must_move: bool) -> None:
        """Serve groups, once their offsets are where they are to be."""
        topic_ids = {topic.name: topic.id for topic in self._topics.all()}
        while must_move:
            try:
                await move_offsets(tree, in_tree_thread, self._groups, self._topics, topic_ids, self._clock)
                must_move = False
            except BarnabasError as error:
                log.warning("offsets could not be moved; tried again in %g s: %s", MOVE_AGAIN_S, error)
                await asyncio.sleep(MOVE_AGAIN_S)
        self._groups.start()
        await self._groups.wait_until_loaded()
        await self._topics.end_deletions()

    async def _claim_when_due(self) -> None:
        claims = self._topics.claims
        if claims.next_deadline is None:
            # An idle broker does nothing for it.
            self._may_claim.clear()
            await self._may_claim.wait()
        due_s = claims.next_deadline
        if due_s is not None and due_s <= self._clock.monotonic():
            await self._topics.claim_due()

    async def _give_up_offline(self) -> None:
        await HandingOver(self._topics, self._config().broker_id).give_up_offline()

    async def _prefer(self) -> None:
        if self._config().auto_leader_rebalance_enable:
            await HandingOver(self._topics, self._config().broker_id).prefer()

    async def _purge_changes(self) -> None:
        if self._topics.image.controller_id == self._config().broker_id:
            await self._watch.purge()

    def _expiry_interval_ms(self) -> int:
        return self._config().offsets_retention_check_interval_ms

    async def _expire_offsets(self) -> None:
        forgotten = await self._offsets.expire(self._config().offsets_retention_minutes * 60_000)
        if forgotten:
            log.info("forgot %d offsets of groups without members", forgotten)

    def _retention_interval_ms(self) -> int:
        return self._config().log_retention_check_interval_ms

    async def _flush_sealed(self, logs: AnyLogs) -> None:
        wanted_ms = min(self._config().log_flush_offset_checkpoint_interval_ms, FLUSH_INTERVAL_MS_MAX)
        interval_s = max(wanted_ms, INTERVAL_MS_MIN) / 1000

        async def flush() -> None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._flush_due.wait(), interval_s)
            self._flush_due.clear()
            await self._work.for_all(logs.flush_sealed)

        await _again_and_again(lambda: INTERVAL_MS_MIN, "flush logs", flush)


def setter_for_threads(event: asyncio.Event) -> Callable[[], object]:
    """Return a function that sets an event of the running loop, and may be called on any thread."""
    return functools.partial(asyncio.get_running_loop().call_soon_threadsafe, event.set)


async def _again_and_again(interval_ms: Callable[[], int], what: str, action: Callable[[], Awaitable[None]]) -> None:
    while True:
        await asyncio.sleep(max(interval_ms(), INTERVAL_MS_MIN) / 1000)
        try:
            await action()
        except BarnabasError as error:
            log.warning("cannot %s; tried again later: %s", what, error)
        except Exception:
            log.exception("cannot %s; tried again later", what)
