"""The consumer groups that this broker coordinates. Passes the requests of members and administrators to the groups.

`barnabas.groups` makes all decisions. A group belongs to a partition of `__consumer_offsets`, and the leader of that
partition coordinates the group (`barnabas.broker.coordinators`).
"""

from __future__ import annotations

import asyncio
import functools
import logging
import uuid
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from barnabas.broker.coordinators.led_replica import InternalTopic
from barnabas.broker.coordinators.runtime import CoordinatorConfig, CoordinatorRuntime
from barnabas.broker.coordinators.shard import CoordinatorShard
from barnabas.broker.internal_topics import CONSUMER_OFFSETS
from barnabas.errors import ApiError, BarnabasError, ErrorCode
from barnabas.groups.classic_group import GroupConfig
from barnabas.groups.coordinator import GroupCoordinator
from barnabas.groups.hashing import partition_of
from barnabas.groups.memory import GroupMemory
from barnabas.groups.records import Change, decode_change, encode_change
from barnabas.groups.requests import JoinRequest, LeavingMember, SyncRequest
from barnabas.groups.results import GroupDescription, JoinResult, LeaveResult, SyncResult
from barnabas.groups.topic_metadata import TopicSnapshot
from barnabas.model import TopicPartition
from barnabas.state_machine import RecordCodec, Reply

if TYPE_CHECKING:
    from barnabas.broker.metadata_image import MetadataImage
    from barnabas.broker.pipeline.scheduler import CooperativeScheduler
    from barnabas.broker.settings.static import BrokerConfig
    from barnabas.broker.topic_admin import TopicAdmin
    from barnabas.broker.topics import Topic, Topics
    from barnabas.clock import Clock


class GroupTopics:
    """The topic metadata of this broker, as groups need it (`barnabas.groups.topic_metadata.TopicMetadata`)."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        self._shared: dict[str, dict[int, TopicPartition]] = {}
        """The `TopicPartition` objects that groups share, by topic and partition number."""

    def topic(self, name: str) -> TopicSnapshot | None:
        topic = self._topics.get(name)
        if topic is None:
            return None
        shared = self._shared.get(name)
        if shared is None:
            shared = self._shared[name] = {}
        return _Snapshot(topic, self._topics, shared)

    def topic_id(self, name: str) -> bytes | None:
        topic = self._topics.get(name)
        return None if topic is None else topic.id

    def has_topic_id(self, topic_id: bytes) -> bool:
        return self._topics.by_id(topic_id) is not None

    def forget(self, names: Collection[str]) -> None:
        """Free the shared objects of deleted topics."""
        for name in names:
            self._shared.pop(name, None)


class _Snapshot:
    """A snapshot of one topic's metadata. Implements `TopicSnapshot`."""

    __slots__ = ("_image", "_shared", "_topic", "_topics")

    def __init__(self, topic: Topic, topics: Topics, shared: dict[int, TopicPartition]) -> None:
        self._topic = topic
        self._image: MetadataImage = topics.image
        self._topics = topics
        self._shared = shared

    @property
    def name(self) -> str:
        return self._topic.name

    @property
    def id(self) -> bytes:
        return self._topic.id

    @property
    def partition_count(self) -> int:
        return len(self._topic.partitions)

    def partition(self, number: int) -> TopicPartition:
        found = self._shared.get(number)
        if found is None:
            found = self._topics.replicas.shared_name(TopicPartition(self._topic.name, number))
            self._shared[number] = found
        return found

    def racks_of(self, number: int) -> frozenset[str]:
        brokers = self._image.brokers
        replicas = self._topic.partitions[number].replicas
        return frozenset(rack for each in replicas if each in brokers and (rack := brokers[each].registration.rack))


GroupShard: TypeAlias = CoordinatorShard[GroupCoordinator, Change]
"""The groups of one partition of `__consumer_offsets`, with their committed offsets."""

GROUP_RECORDS: RecordCodec[Change] = RecordCodec(encode_change, decode_change)

GROUP_ID_BYTES_MAX = 2**15 - 1
"""The maximum size of a group id in bytes. A larger group id would not fit into the group's records."""

MEMORY_PARTS = 4
"""The divisor for the memory of all members together: they may use `queued.max.request.bytes` / `MEMORY_PARTS`."""

REFUSAL_LOGGED_S = 10.0
"""The minimum time in seconds between two log lines about members that are rejected because of their size."""

log = logging.getLogger(__name__)


class GroupService:
    """All consumer groups that this broker coordinates. Used from the event loop's thread only."""

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        topics: Topics,
        topic_admin: TopicAdmin,
        scheduler: CooperativeScheduler,
        new_id: Callable[[], uuid.UUID] = uuid.uuid4,
    ) -> None:
        limits = GroupConfig(
            session_timeout_ms_min=config.group_min_session_timeout_ms,
            session_timeout_ms_max=config.group_max_session_timeout_ms,
            members_max=config.group_max_size,
            initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
        )
        self.memory = GroupMemory(config.queued_max_request_bytes // MEMORY_PARTS, self._log_refusal)
        self.metadata = GroupTopics(topics)
        self._refusal_logged_s = float("-inf")
        self._loop = asyncio.get_running_loop()
        self._clock = clock
        self._topics = topics
        self._scheduler = scheduler

        def leader_of(topic: Any, number: int) -> int:
            return topics.image.leader_of(topic.partitions[number])

        self.runtime = CoordinatorRuntime[GroupCoordinator, Change](
            InternalTopic(
                CONSUMER_OFFSETS,
                functools.partial(topics.get, CONSUMER_OFFSETS),
                functools.partial(topic_admin.create_with_defaults, CONSUMER_OFFSETS),
                functools.partial(topics.replicas.leaders_of_topic, CONSUMER_OFFSETS),
                leader_of,
            ),
            lambda: GroupCoordinator(limits, lambda: str(new_id()), self.memory, lambda: self.metadata),
            GROUP_RECORDS,
            CoordinatorConfig(config.offsets_commit_timeout_ms / 1000, config.offsets_load_buffer_size),
            clock,
            scheduler,
            self._deliver,
            partition_of,
        )

    # -- group coordinators ------------------------------------------------------------------------

    @property
    def has_topic(self) -> bool:
        """True if the topic `__consumer_offsets` exists."""
        return self.runtime.has_topic

    async def ensure_topic(self) -> None:
        """Create the topic `__consumer_offsets` if it does not exist.

        :raises ApiError: COORDINATOR_NOT_AVAILABLE: the creation failed.
        """
        await self.runtime.ensure_topic()

    def find(self, group_id: str) -> GroupShard:
        """Return the shard of a group.

        :raises ApiError: INVALID_GROUP_ID, COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR.
        """
        found = self._find(group_id)
        if isinstance(found, ErrorCode):
            raise ApiError(found, f"group {group_id!r} is not served by this broker now")
        return found

    def coordinates(self, group_id: str) -> bool:
        """Return whether this broker coordinates the group. The group may still be loading."""
        return self.runtime.coordinates(group_id)

    @property
    def image(self) -> MetadataImage:
        """The current metadata image."""
        return self._topics.image

    def coordinator_of(self, group_id: str) -> int:
        """Return the id of the broker that coordinates a group, or -1.

        The coordinator may still be loading the group.
        """
        return self.runtime.coordinator_of(group_id)

    def loaded_shards(self) -> list[GroupShard]:
        """Return all group shards of this broker.

        :raises ApiError: COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE: some shards are not loaded.
        """
        return self.runtime.all_shards()

    def served_shards(self) -> list[GroupShard]:
        """Return the loaded shards."""
        return self.runtime.served_shards()

    def _find(self, group_id: str) -> GroupShard | ErrorCode:
        if len(group_id) > GROUP_ID_BYTES_MAX // 4 and len(group_id.encode()) > GROUP_ID_BYTES_MAX:
            self.runtime.follow_topic()
            return ErrorCode.COORDINATOR_NOT_AVAILABLE if self.runtime.is_closed else ErrorCode.INVALID_GROUP_ID
        return self.runtime.find(group_id)

    # -- member requests -------------------------------------------------------------------------------

    def join(self, group_id: str, request: JoinRequest) -> Awaitable[JoinResult]:
        """Add a member to a group. The result is available when the new generation is complete."""
        waiter: asyncio.Future[JoinResult] = self._loop.create_future()
        shard = self._find(group_id)
        if isinstance(shard, ErrorCode):
            if shard is ErrorCode.NOT_COORDINATOR and not self.has_topic and group_id:
                return self._join_later(group_id, request)
            waiter.set_result(JoinResult(shard, request.member_id))
        else:
            shard.perform(shard.machine.join(self._clock.monotonic(), waiter, group_id, request))
        return waiter

    async def _join_later(self, group_id: str, request: JoinRequest) -> JoinResult:
        try:
            await self.ensure_topic()
        except ApiError as error:
            return JoinResult(error.code, request.member_id)
        if not self.has_topic:
            return JoinResult(ErrorCode.COORDINATOR_NOT_AVAILABLE, request.member_id)
        # Let other requests run, because many joins may have waited for the topic.
        await self._scheduler.pause(is_short=True)
        return await self.join(group_id, request)

    def sync(self, group_id: str, request: SyncRequest) -> asyncio.Future[SyncResult]:
        """Return a future of the member's assignment.

        It completes when the group leader has sent the assignment and it is stored.
        """
        waiter: asyncio.Future[SyncResult] = self._loop.create_future()
        shard = self._find(group_id)
        if isinstance(shard, ErrorCode):
            waiter.set_result(SyncResult(shard))
        else:
            shard.perform(shard.machine.sync(self._clock.monotonic(), waiter, group_id, request))
        return waiter

    def heartbeat(self, group_id: str, member_id: str, group_instance_id: str | None, generation: int) -> ErrorCode:
        """Record that a member is alive."""
        shard = self._find(group_id)
        if isinstance(shard, ErrorCode):
            # As in Kafka, heartbeats succeed while the group is loading.
            return ErrorCode.NONE if shard is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else shard
        machine = shard.machine
        error = machine.heartbeat(self._clock.monotonic(), group_id, member_id, group_instance_id, generation)
        shard.arm(machine.next_deadline())
        return error

    def leave(self, group_id: str, members: Sequence[LeavingMember]) -> LeaveResult:
        """Remove members from a group."""
        shard = self._find(group_id)
        if isinstance(shard, ErrorCode):
            return LeaveResult(shard)
        result, effects = shard.machine.leave(self._clock.monotonic(), group_id, members)
        shard.perform(effects)
        return result

    def check_commit(self, group_id: str, member_id: str, group_instance_id: str | None, generation: int) -> ErrorCode:
        """Return the error if this member must not commit offsets for the group now, or NONE."""
        found = self.find_for_commit(group_id, member_id, group_instance_id, generation)
        return found if isinstance(found, ErrorCode) else ErrorCode.NONE

    def find_for_commit(
        self, group_id: str, member_id: str, group_instance_id: str | None, generation: int
    ) -> GroupShard | ErrorCode:
        """Return the shard of a group if this member may commit offsets for the group now; otherwise the error."""
        shard = self._find(group_id)
        if isinstance(shard, ErrorCode):
            return shard
        machine = shard.machine
        error = machine.check_commit(self._clock.monotonic(), group_id, member_id, group_instance_id, generation)
        shard.arm(machine.next_deadline())
        return error or shard

    # -- administration ------------------------------------------------------------------------------------

    def error_of(self, group_id: str) -> ErrorCode:
        """Return the error for lookups of a group, or NONE.

        If `__consumer_offsets` does not exist, no group exists, and the result is NONE.
        """
        found = self._find(group_id)
        if isinstance(found, CoordinatorShard) or (not self.has_topic and not self.runtime.is_closed):
            return ErrorCode.NONE
        return found

    def describe(self, group_id: str) -> GroupDescription | None:
        """Return the description of a group for administrators, or None if the group does not exist."""
        shard = self._find(group_id)
        return None if isinstance(shard, ErrorCode) else shard.machine.describe(group_id)

    def subscriptions(self, group_id: str) -> list[list[bytes]]:
        """Return the metadata from the last join of each member of a group, even during a rebalance."""
        shard = self._find(group_id)
        return [] if isinstance(shard, ErrorCode) else shard.machine.subscriptions(group_id)

    def group_ids(self) -> list[str]:
        """Return the ids of the groups that have or had members."""
        return [group_id for shard in self.runtime.shards for group_id in shard.machine.group_ids()]

    def delete(self, group_id: str) -> asyncio.Future[None] | ErrorCode:
        """Delete a group without members.

        Return a future that completes when the group's tombstone is stored, or the error.
        """
        shard = self._find(group_id)
        if isinstance(shard, ErrorCode):
            return ErrorCode.GROUP_ID_NOT_FOUND if not self.has_topic and not self.runtime.is_closed else shard
        stored: asyncio.Future[None] = self._loop.create_future()
        error, effects = shard.machine.delete(self._clock.monotonic(), stored, group_id)
        shard.perform(effects)
        return error or stored

    def forget_if_unused(self, shard: GroupShard, group_id: str) -> bool:
        """Delete a group that has no offsets, if it also has no members. Return whether the group was deleted."""
        is_gone, effects = shard.machine.forget_if_unused(self._clock.monotonic(), group_id)
        shard.perform(effects)
        return is_gone

    # -- leadership ----------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start to load and serve groups. Before this call, clients get COORDINATOR_LOAD_IN_PROGRESS."""
        self.runtime.start()

    async def wait_until_loaded(self) -> None:
        """Wait until no shard is loading."""
        await self.runtime.wait_until_loaded()

    def close(self) -> None:
        """Close all shards, and complete all waiting requests with an error."""
        self.runtime.close()

    def follow_topic(self) -> None:
        """Load the partitions of `__consumer_offsets` that this broker leads now, and drop all other shards."""
        self.runtime.follow_topic()

    # -- replies -------------------------------------------------------------------------------------------

    def _deliver(self, reply: Reply) -> None:
        waiter, result = reply
        # The waiter was cancelled because its connection has closed.
        if waiter.done():
            return
        if isinstance(result, JoinResult | SyncResult):
            self._scheduler.wake(waiter, result)
        elif isinstance(result, BarnabasError):
            waiter.set_exception(result)
        else:
            waiter.set_result(result)

    def _log_refusal(self, reason: str) -> None:
        now = self._clock.monotonic()
        if now - self._refusal_logged_s >= REFUSAL_LOGGED_S:
            self._refusal_logged_s = now
            log.warning("%s", reason)
