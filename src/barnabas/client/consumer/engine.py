"""The consumer's shell: fetches ahead, finds positions, commits, keeps the membership. Runs on the event loop.

The application's side and the event loop share the core (subscription, fetcher, membership) under one guard, which
is never held over an await here. The application waits on it, and it is notified whenever there may be something
new for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from barnabas.client.cluster import Cluster
from barnabas.client.config import ConsumerConfig
from barnabas.client.consumer.fetch_lanes import FetchLanes
from barnabas.client.consumer.fetcher import Fetcher
from barnabas.client.consumer.group_session import GroupSession
from barnabas.client.consumer.membership import Membership
from barnabas.client.consumer.shells import Guard
from barnabas.client.consumer.subscription import NOWHERE, RESET_TIMESTAMPS, PartitionState, Subscription
from barnabas.client.metadata import ClusterView
from barnabas.client.offset_queries import commit_offsets, committed_offsets, list_offsets
from barnabas.errors import BarnabasError, ClosedError, ErrorCode, KafkaError
from barnabas.groups.assignors import NO_GENERATION
from barnabas.model import OffsetAndMetadata, TopicPartition

log = logging.getLogger(__name__)

MISSING_TOPIC_PAUSE_S = 0.5
"""How often topics that do not exist yet are looked for."""

TOPIC_REFUSED = frozenset({ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.TOPIC_AUTHORIZATION_FAILED})

GROUP_HAS_MOVED_ON = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.FENCED_INSTANCE_ID,
    }
)


class ConsumerEngine:
    """All that a consumer does beside the application.

    :param guard: guards what is shared, and is notified when there is something new.
    :param alive: returns whether the application has polled recently enough.
    :param done_offsets: returns, under the guard, what auto-commit should commit.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        cluster: Cluster,
        guard: Guard,
        *,
        alive: Callable[[], bool],
        done_offsets: Callable[[], dict[PartitionState, int]],
    ) -> None:
        self.subscription = Subscription()
        self.fetcher = Fetcher(
            self.subscription,
            reset_policy=config.auto_offset_reset,
            min_bytes=config.fetch_min_bytes,
            max_wait_ms=config.fetch_max_wait_ms,
            max_bytes=config.fetch_max_bytes,
            partition_max_bytes=config.max_partition_fetch_bytes,
            buffer_bytes_max=config.fetch_buffer_bytes,
        )
        self.membership: Membership | None = None
        self.view_changed = False
        """Whether partitions of subscribed topics may have come or gone since somebody looked."""
        self._config = config
        self._cluster = cluster
        self._guard = guard
        self._done_offsets = done_offsets
        self._session: GroupSession | None = None
        self._assigned_counts: dict[str, int | None] = {}
        self._refused: set[str] = set()
        self._positions_wanted = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._lanes = FetchLanes(
            config,
            cluster,
            guard,
            self.fetcher,
            spawn=self._spawn,
            on_answer=self._on_answer,
            report=self._report,
            on_fault=self._on_fault,
        )
        if config.group is not None:
            self.membership = Membership(
                config.group,
                instance_id=config.group_instance_id,
                session_timeout_ms=config.session_timeout_ms,
                rebalance_timeout_ms=config.max_poll_interval_ms,
                strategies=config.partition_assignment_strategy,
            )
            self._session = GroupSession(
                config,
                cluster,
                self.membership,
                topics=lambda: self.subscription.topics,
                owned=self._owned,
                alive=alive,
                report=self._report,
                changed=self._notify,
            )

    def start(self) -> None:
        """Begin; on the event loop."""
        self._cluster.updated.append(self._on_metadata)
        self._spawn(self._cluster.keep_fresh())
        self._spawn(self._find_positions())
        if self._session is not None:
            self._spawn(self._session.heartbeats())
            if self._config.enable_auto_commit:
                self._spawn(self._auto_commit())

    def now_s(self) -> float:
        """Return monotonic time on the client's clock."""
        return self._cluster.clock.monotonic()

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(coroutine)
        task.add_done_callback(self._on_task_done)
        self._tasks.add(task)

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._on_fault(error)

    def _on_fault(self, error: BaseException) -> None:
        """Tell the application of what nobody foresaw, instead of letting it wait for ever."""
        log.error("background work of the consumer stopped", exc_info=error)
        self._report(ClosedError(f"the consumer stopped because of {error!r}; make a new one"))

    def _report(self, error: BarnabasError) -> None:
        with self._guard:
            self.fetcher.errors.append(error)
            self._guard.notify_all()

    def _notify(self) -> None:
        with self._guard:
            self._guard.notify_all()

    # --- metadata ---------------------------------------------------------------------------------------

    def want_topics(self) -> None:
        """Take up a new subscription; on the event loop."""
        if self.subscription.pattern is not None:
            self._cluster.watch_all_topics()
        elif self.subscription.topics:
            self._cluster.watch_topics(self.subscription.topics, auto_creates=self._config.allow_auto_create_topics)
        else:
            topics = {tp.topic for tp in self.subscription.partitions}
            self._cluster.watch_topics(topics, auto_creates=self._config.allow_auto_create_topics)
        self._cluster.want_refresh()
        self.kick()

    def _on_metadata(self, view: ClusterView) -> None:
        with self._guard:
            if self.subscription.pattern is not None:
                names = [name for name, topic in view.topics.items() if not topic.is_internal and topic.partitions]
                if self.subscription.match(names) and self.membership is not None:
                    self.membership.rejoin("the topics that match the pattern have changed")
            counts = {topic: view.partition_count(topic) for topic in self.subscription.topics}
            if counts != self._assigned_counts:
                self.view_changed = True
                if self.membership is not None and self.membership.is_leader and self._assigned_counts:
                    self.membership.rejoin("the partitions of the topics have changed")
                self._assigned_counts = counts
            self._report_refused(view)
            self._guard.notify_all()
        if None in counts.values():
            asyncio.get_running_loop().call_later(MISSING_TOPIC_PAUSE_S, self._cluster.want_refresh)
        self.kick()

    def _report_refused(self, view: ClusterView) -> None:
        """Under the guard: tell the application, once, of topics that it can never have."""
        for name in self.subscription.topics - self._refused:
            topic = view.topics.get(name)
            if topic is not None and topic.error in TOPIC_REFUSED:
                self._refused.add(name)
                self.fetcher.errors.append(KafkaError(topic.error, f"topic {name!r} cannot be subscribed to"))

    # --- fetching ---------------------------------------------------------------------------------------

    def kick(self) -> None:
        """Look for work: positions to find, partitions to fetch. On the event loop."""
        with self._guard:
            self.fetcher.hungry = False
            leaders = self.fetcher.leaders(self._cluster.view)
            if self.subscription.without_position():
                self._positions_wanted.set()
        for node_id in leaders:
            self._lanes.wake(node_id)

    def _on_answer(self) -> None:
        """Under the guard."""
        if self.subscription.without_position():
            self._positions_wanted.set()

    # --- positions --------------------------------------------------------------------------------------

    async def _find_positions(self) -> None:
        """Give every assigned partition a position: the committed one, else by the reset policy. For ever."""
        failures = 0
        while True:
            await self._positions_wanted.wait()
            self._positions_wanted.clear()
            with self._guard:
                missing = {state: state.version for state in self.subscription.without_position()}
            if not missing:
                continue
            try:
                await self._find(missing)
                failures = 0
            except BarnabasError as error:
                log.debug("positions: %s", error)
                if not error.retriable:
                    self._report(error)
                failures += 1
                await asyncio.sleep(self._cluster.backoff.delay_s(failures))
            self.kick()

    async def _find(self, missing: Mapping[PartitionState, int]) -> None:
        unset = [state for state in missing if state.reset is None]
        if unset and self._config.group is not None:
            committed = await committed_offsets(self._cluster, self._config.group, [state.tp for state in unset])
            found = {state: committed[state.tp].offset for state in unset if state.tp in committed}
            self._place(missing, found)
            for state, offset in found.items():
                state.committed = offset
            unset = [state for state in unset if state not in found]
        policy = self._config.auto_offset_reset
        if policy == NOWHERE:
            with self._guard:
                for state in unset:
                    if self._still_missing(state, missing[state]):
                        state.forget_position(NOWHERE)
                self._guard.notify_all()
            unset = []
        resets = {state: state.reset for state in missing if state.reset in RESET_TIMESTAMPS}
        resets.update(dict.fromkeys(unset, policy))
        if resets:
            wanted = {state.tp: RESET_TIMESTAMPS[reset or policy] for state, reset in resets.items()}
            offsets = await list_offsets(self._cluster, wanted)
            self._place(missing, {state: at.offset for state in resets if (at := offsets[state.tp]) is not None})

    def _place(self, missing: Mapping[PartitionState, int], offsets: Mapping[PartitionState, int]) -> None:
        with self._guard:
            for state, offset in offsets.items():
                if self._still_missing(state, missing[state]):
                    state.move_to(offset)
            self._guard.notify_all()

    def _still_missing(self, state: PartitionState, version: int) -> bool:
        return state.version == version and self.subscription.owns(state)

    # --- the group --------------------------------------------------------------------------------------

    def _owned(self) -> list[TopicPartition]:
        """Return what this member keeps while it joins."""
        assert self.membership is not None
        with self._guard:
            return list(self.subscription.partitions) if self.membership.is_cooperative else []

    async def join(self) -> list[TopicPartition] | None:
        """Join the group's next generation; see `GroupSession.join`."""
        assert self._session is not None
        if self.subscription.pattern is not None and not self._cluster.view.topics:
            await self._cluster.retrying(self._cluster.refresh, what="topics are not known")
        self._assigned_counts = {}
        partitions = await self._session.join()
        view = self._cluster.view
        self._assigned_counts = {topic: view.partition_count(topic) for topic in self.subscription.topics}
        return partitions

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], timeout_s: float | None) -> None:
        """Commit offsets as a member of the group, or, where partitions were assigned by hand, as nobody.

        :raises KafkaError: the group has moved on, and others.
        :raises FencedError: another consumer has taken this one's instance id.
        """
        membership = self.membership
        assert membership is not None
        if not self.subscription.by_topics:
            await commit_offsets(self._cluster, membership.group, offsets, timeout_s=timeout_s)
            return
        if membership.fenced is not None:
            raise membership.fenced
        generation = membership.generation
        if generation == NO_GENERATION:
            # Without a generation the coordinator would take the commit as an administrator's.
            raise _moved_on(ErrorCode.UNKNOWN_MEMBER_ID, membership.group)
        try:
            await commit_offsets(
                self._cluster,
                membership.group,
                offsets,
                generation=generation,
                member_id=membership.member_id,
                group_instance_id=membership.instance_id,
                timeout_s=timeout_s,
            )
        except KafkaError as error:
            if error.code not in GROUP_HAS_MOVED_ON:
                raise
            if membership.on_commit_refused(error.code, generation):
                raise _moved_on(error.code, membership.group) from error
            raise _shares_anew(membership.group) from error

    async def commit_done(self, timeout_s: float | None = None) -> None:
        """Commit what the application has dealt with, where that is more than was committed before."""
        with self._guard:
            done = {state: offset for state, offset in self._done_offsets().items() if offset != state.committed}
        if not done:
            return
        await self.commit({state.tp: OffsetAndMetadata(offset) for state, offset in done.items()}, timeout_s)
        for state, offset in done.items():
            state.committed = offset

    async def _auto_commit(self) -> None:
        while True:
            await asyncio.sleep(self._config.auto_commit_interval_ms / 1000)
            assert self.membership is not None
            if self.subscription.by_topics and (self.membership.rejoin_needed or self.membership.joining):
                continue  # the rebalance commits first
            try:
                await self.commit_done()
            except BarnabasError as error:
                log.warning("auto-commit: %s", error)

    async def leave(self, reason: str) -> None:
        """Leave the group, if this consumer is in one."""
        if self._session is not None:
            await self._session.leave(reason)

    async def close(self) -> None:
        """End the background tasks and connections."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        self._lanes.close()
        self._cluster.close()
        await asyncio.gather(*tasks, return_exceptions=True)


def _moved_on(code: ErrorCode, group: str) -> KafkaError:
    return KafkaError(
        code,
        f"group {group!r} has moved on, the partitions may be others' now; the next poll joins again "
        "(are records handled too slowly for max_poll_interval_ms?)",
    )


def _shares_anew(group: str) -> KafkaError:
    return KafkaError(
        ErrorCode.REBALANCE_IN_PROGRESS,
        f"group {group!r} shares its partitions anew just now; poll, and then commit for the partitions that are left",
    )
