"""The group coordinator on the event loop: waiters are futures, deadlines are timers, what lasts goes into a log.

`barnabas.groups` makes all decisions, and knows neither futures nor timers nor files. This module delivers its replies,
stores what it wants stored, and wakes it at its next deadline.

A group belongs to a partition of `__consumer_offsets`, and whoever leads that coordinates the group. The topic is made
when the first group needs it. Of each partition that this broker leads it has a shard (`GroupShard`), which is loaded
from the log before it answers; the others are served meanwhile.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import logging
import uuid
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

from barnabas.broker.group_log import coordinator_error
from barnabas.broker.group_shard import GroupShard
from barnabas.broker.internal_topics import CONSUMER_OFFSETS
from barnabas.broker.picture import Picture
from barnabas.broker.settings.static import BrokerConfig
from barnabas.broker.topic_lookup import Topic
from barnabas.broker.topics import Topics
from barnabas.broker.turns import Turns
from barnabas.clock import Clock
from barnabas.coordination.values import NO_LEADER
from barnabas.errors import ApiError, BarnabasError, ErrorCode
from barnabas.groups.coordinator import GroupCoordinator
from barnabas.groups.group import GroupConfig, GroupWrite
from barnabas.groups.hashing import partition_of
from barnabas.groups.memory import GroupMemory
from barnabas.groups.records import GroupRecord
from barnabas.groups.requests import JoinRequest, LeavingMember, SyncRequest
from barnabas.groups.results import GroupDescription, JoinResult, LeaveResult, Reply, SyncResult

GROUP_ID_BYTES_MAX = 2**15 - 1
"""The longest name of a group that fits its records."""

GROUPS_PER_TICK = 8
"""Of so many groups of a partition one turn of the event loop does what is due, and of other partitions while `TICK_S`
is not over: the sessions of all members begin together when their groups are loaded, and may end together."""
TICK_S = 0.002

FENCED_LOOK_S = 1.0
"""How often it is looked whether a broker whose session is in doubt coordinates still."""
GRACE_S = 5.0
"""So long members have, once it does, to find that out: those whose sessions ended meanwhile could not say that they
live."""

MEMORY_PARTS = 4
"""The members of all groups may hold as much as the requests under way divided by this."""

REFUSAL_LOGGED_S = 10.0
"""The shortest time between two log lines about members that are refused for their size."""

LOAD_AGAIN_S = 60.0
"""The pause after which a partition is loaded again that could not be."""

log = logging.getLogger(__name__)


class GroupShell:
    """Every group that this broker coordinates. Used from the event loop's thread only."""

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        topics: Topics,
        turns: Turns,
        new_id: Callable[[], uuid.UUID] = uuid.uuid4,
    ) -> None:
        self._new_id = new_id
        self._config = config
        self._limits = GroupConfig(
            session_timeout_ms_min=config.group_min_session_timeout_ms,
            session_timeout_ms_max=config.group_max_session_timeout_ms,
            members_max=config.group_max_size,
            initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
        )
        self._memory = GroupMemory(config.queued_max_request_bytes // MEMORY_PARTS, self._log_refusal)
        self._refusal_logged_s = float("-inf")
        self._loop = asyncio.get_running_loop()
        self._clock = clock
        self._topics = topics
        self._turns = turns
        self._topic: Topic | None = None
        self._shards: dict[int, GroupShard] = {}
        self._making: asyncio.Task[None] | None = None
        self._told = ""
        """Why there is no place for groups, as it was logged last."""
        self._loading: set[asyncio.Task[None]] = set()
        self._may_load = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_deadline = 0.0
        self._is_closed = False

    # -- where a group is ----------------------------------------------------------------------------------

    @property
    def has_place(self) -> bool:
        """Whether there is a place for groups."""
        return self._topics.get(CONSUMER_OFFSETS) is not None

    async def prepare(self) -> None:
        """Make sure that there is a place for groups.

        :raises ApiError: COORDINATOR_NOT_AVAILABLE: it could not be made.
        """
        if self.has_place or self._is_closed:
            return
        if self._making is None:
            self._making = self._loop.create_task(self._make_topic())
            self._making.add_done_callback(self._on_made)
        await asyncio.shield(self._making)

    def find(self, group_id: str) -> GroupShard:
        """Return where a group is.

        :raises ApiError: INVALID_GROUP_ID, COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR.
        """
        found = self._find(group_id)
        if isinstance(found, ErrorCode):
            raise ApiError(found, f"group {group_id!r} cannot be had from this broker now")
        return found

    def coordinates(self, group_id: str) -> bool:
        """Whether this broker coordinates the group, or will once that is loaded."""
        self.follow_topic()
        return self._topic is not None and partition_of(group_id, len(self._topic.partitions)) in self._shards

    @property
    def picture(self) -> Picture:
        """What is known of the cluster."""
        return self._topics.picture

    def coordinator_of(self, group_id: str) -> int:
        """Return which broker coordinates a group, or will once it is loaded there; -1 where none does now."""
        self.follow_topic()
        topic = self._topic
        if topic is None or self._is_closed:
            return NO_LEADER
        number = partition_of(group_id, len(topic.partitions))
        shard = self._shards.get(number)
        if shard is not None and not shard.partition.is_led:
            return NO_LEADER
        return self.picture.leader_of(topic.partitions[number])

    def loaded_shards(self) -> list[GroupShard]:
        """Return all that this broker coordinates.

        :raises ApiError: COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE: not all of it is there yet.
        """
        self.follow_topic()
        if not self._may_load.is_set():
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "groups are not served yet")
        for shard in self._shards.values():
            if shard.error:
                raise ApiError(shard.error, f"{shard.partition.topic_partition} is not loaded")
            if shard.refusal:
                message = f"{shard.partition.topic_partition} may be led by another broker"
                raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, message)
        return list(self._shards.values())

    def served_shards(self) -> list[GroupShard]:
        """Return those that are loaded, also while others are not, or cannot be."""
        self.follow_topic()
        return [shard for shard in self._shards.values() if not shard.refusal]

    def _find(self, group_id: str) -> GroupShard | ErrorCode:
        self.follow_topic()
        if self._is_closed:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if len(group_id) > GROUP_ID_BYTES_MAX // 4 and len(group_id.encode()) > GROUP_ID_BYTES_MAX:
            return ErrorCode.INVALID_GROUP_ID
        if self._topic is None:
            return ErrorCode.NOT_COORDINATOR
        shard = self._shards.get(partition_of(group_id, len(self._topic.partitions)))
        if shard is None:
            return ErrorCode.NOT_COORDINATOR
        return shard.refusal or shard

    # -- what members ask ----------------------------------------------------------------------------------

    def join(self, group_id: str, request: JoinRequest) -> Awaitable[JoinResult]:
        """Join, and wait until the generation is complete."""
        waiter: asyncio.Future[JoinResult] = self._loop.create_future()
        shard = self._find(group_id)
        if isinstance(shard, ErrorCode):
            if shard is ErrorCode.NOT_COORDINATOR and self._topic is None and group_id:
                return self._join_later(group_id, request)
            waiter.set_result(JoinResult(shard, request.member_id))
        else:
            self._deliver(shard, shard.coordinator.join(self._clock.monotonic(), waiter, group_id, request))
        return waiter

    async def _join_later(self, group_id: str, request: JoinRequest) -> JoinResult:
        try:
            await self.prepare()
        except ApiError as error:
            return JoinResult(error.code, request.member_id)
        if not self.has_place:
            return JoinResult(ErrorCode.COORDINATOR_NOT_AVAILABLE, request.member_id)
        await self._turns.pause(is_short=True)  # a crowd may have waited
        return await self.join(group_id, request)

    def sync(self, group_id: str, request: SyncRequest) -> asyncio.Future[SyncResult]:
        """Wait for the leader's assignment, and until it is stored."""
        waiter: asyncio.Future[SyncResult] = self._loop.create_future()
        shard = self._find(group_id)
        if isinstance(shard, ErrorCode):
            waiter.set_result(SyncResult(shard))
        else:
            self._deliver(shard, shard.coordinator.sync(self._clock.monotonic(), waiter, group_id, request))
        return waiter

    def heartbeat(self, group_id: str, member_id: str, group_instance_id: str | None, generation: int) -> ErrorCode:
        """Note that a member is alive."""
        shard = self._find(group_id)
        if isinstance(shard, ErrorCode):
            # While its group is being loaded, a member has no reason to do anything but to go on, as in Kafka.
            return ErrorCode.NONE if shard is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else shard
        now = self._clock.monotonic()
        error = shard.coordinator.heartbeat(now, group_id, member_id, group_instance_id, generation)
        self._arm(shard.coordinator.next_deadline())
        return error

    def leave(self, group_id: str, members: Sequence[LeavingMember]) -> LeaveResult:
        """Take members out of a group."""
        shard = self._find(group_id)
        if isinstance(shard, ErrorCode):
            return LeaveResult(shard)
        result, replies = shard.coordinator.leave(self._clock.monotonic(), group_id, members)
        self._deliver(shard, replies)
        return result

    def check_commit(self, group_id: str, member_id: str, group_instance_id: str | None, generation: int) -> ErrorCode:
        """Tell whether this member may commit offsets for the group now."""
        found = self.find_for_commit(group_id, member_id, group_instance_id, generation)
        return found if isinstance(found, ErrorCode) else ErrorCode.NONE

    def find_for_commit(
        self, group_id: str, member_id: str, group_instance_id: str | None, generation: int
    ) -> GroupShard | ErrorCode:
        """Return where a group is for which this member may commit offsets now, or why it may not."""
        shard = self._find(group_id)
        if isinstance(shard, ErrorCode):
            return shard
        coordinator = shard.coordinator
        error = coordinator.check_commit(self._clock.monotonic(), group_id, member_id, group_instance_id, generation)
        self._arm(coordinator.next_deadline())
        return error or shard

    # -- administration ------------------------------------------------------------------------------------

    def error_of(self, group_id: str) -> ErrorCode:
        """Return why nothing can be told of a group now, or NONE. Where no group ever was, none is."""
        found = self._find(group_id)
        if isinstance(found, GroupShard) or (self._topic is None and not self._is_closed):
            return ErrorCode.NONE
        return found

    def describe(self, group_id: str) -> GroupDescription | None:
        """Return the group as administrators see it; None if nothing is known of members of it."""
        shard = self._find(group_id)
        return None if isinstance(shard, ErrorCode) else shard.coordinator.describe(group_id)

    def subscriptions(self, group_id: str) -> list[list[bytes]]:
        """Return of each member of a group the metadata of its last join, also while the group rebalances."""
        shard = self._find(group_id)
        return [] if isinstance(shard, ErrorCode) else shard.coordinator.subscriptions(group_id)

    def group_ids(self) -> list[str]:
        """Return the ids of the groups that have members, or had some."""
        return [group_id for shard in self._shards.values() for group_id in shard.coordinator.group_ids()]

    def delete(self, group_id: str) -> ErrorCode:
        """Forget a group without members."""
        shard = self._find(group_id)
        if isinstance(shard, ErrorCode):
            return ErrorCode.GROUP_ID_NOT_FOUND if self._topic is None and not self._is_closed else shard
        error = shard.coordinator.delete(group_id)
        self._deliver(shard, [])
        return error

    def forget_if_unused(self, shard: GroupShard, group_id: str) -> bool:
        """Forget a group that has no offsets, if it has no members either; return whether it is gone."""
        is_gone = shard.coordinator.forget_if_unused(group_id)
        self._deliver(shard, [])
        return is_gone

    # -- leadership ----------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to load what belongs to the partitions that this broker leads, and to serve it. Until then clients are
        told that it is being loaded."""
        self._may_load.set()
        self.follow_topic()

    async def wait_until_loaded(self) -> None:
        """Return when all that is being loaded is loaded, or could not be."""
        while self._loading:
            await asyncio.wait(self._loading)

    def close(self) -> None:
        """Answer everyone who waits."""
        self._is_closed = True
        for task in (*self._loading, *([self._making] if self._making else [])):
            task.cancel()
        for shard in self._shards.values():
            self._wake(shard.resign(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        if self._timer:
            self._timer.cancel()

    def follow_topic(self) -> None:
        """Take over partitions that are led here now, and resign from those that are not any more.

        A partition that is led in another epoch is another object, so it is loaded anew.
        """
        topic = self._topics.get(CONSUMER_OFFSETS)
        if topic is self._topic or self._is_closed:
            return
        self._topic = topic
        led = {} if topic is None else topic.led
        for number, shard in list(self._shards.items()):
            if led.get(number) is not shard.partition:
                del self._shards[number]
                self._wake(shard.resign(ErrorCode.NOT_COORDINATOR))
        added = []
        for number, partition in led.items():
            if number not in self._shards:
                coordinator = GroupCoordinator(self._limits, lambda: str(self._new_id()), self._memory)
                shard = self._shards[number] = GroupShard(partition, coordinator, self._config, self._clock)
                added.append(shard)
        self._load_all(added)

    def _load_all(self, shards: Sequence[GroupShard]) -> None:
        to_read = []
        for shard in shards:
            stored = shard.partition.log
            if stored.log_start_offset < stored.log_end_offset or stored.is_offline or not self._may_load.is_set():
                to_read.append(shard)
            else:
                shard.error = ErrorCode.NONE
        if to_read:
            task = self._loop.create_task(self._load_one_by_one(to_read))
            self._loading.add(task)
            task.add_done_callback(self._loading.discard)

    async def _load_one_by_one(self, shards: Sequence[GroupShard]) -> None:
        await self._may_load.wait()
        failed = []
        for shard in shards:
            try:
                await self._load(shard)
            except BarnabasError as error:
                log.warning("%s: its groups cannot be loaded: %s", shard.partition.topic_partition, error)
                failed.append(shard)
            except Exception:
                log.exception("%s: its groups cannot be loaded", shard.partition.topic_partition)
                failed.append(shard)
        for shard in failed:
            shard.error = ErrorCode.COORDINATOR_NOT_AVAILABLE
            self._loop.call_later(LOAD_AGAIN_S, self._load_again, shard)

    def _load_again(self, shard: GroupShard) -> None:
        if shard in self._shards.values() and not self._is_closed:
            self._load_all([shard])

    async def _load(self, shard: GroupShard) -> None:
        started_s = self._clock.monotonic()
        await shard.load(self._topics, self._turns, self._config.offsets_load_buffer_size)
        if shard not in self._shards.values():
            return
        shard.error = ErrorCode.NONE
        self._arm(shard.coordinator.next_deadline())
        groups = len({*shard.coordinator.group_ids(), *shard.offsets})
        took_ms = (self._clock.monotonic() - started_s) * 1000
        log.info("%s: loaded %d groups in %.0f ms", shard.partition.topic_partition, groups, took_ms)

    async def _make_topic(self) -> None:
        try:
            await self._topics.create_with_defaults(CONSUMER_OFFSETS)
        except BarnabasError as error:
            if self.has_place:
                return  # a client was faster
            # Where another broker was faster, news of that is on its way.
            is_there = isinstance(error, ApiError) and error.code == ErrorCode.TOPIC_ALREADY_EXISTS
            if not is_there and str(error) != self._told:  # clients ask again and again
                log.warning("groups cannot be used: %s", error)
            self._told = str(error)
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"there is no place for groups: {error}") from None

    def _on_made(self, making: asyncio.Task[None]) -> None:
        self._making = None
        if not making.cancelled():
            making.exception()  # was told to those who waited

    # -- replies, writes and time --------------------------------------------------------------------------

    def _deliver(self, shard: GroupShard, replies: Iterable[Reply]) -> None:
        self._wake(replies)
        for write in shard.coordinator.take_writes():
            self._store(shard, write)
        self._arm(shard.coordinator.next_deadline())

    def _wake(self, replies: Iterable[Reply]) -> None:
        for waiter, result in replies:
            # A waiter whose connection is gone was cancelled with it.
            if not waiter.done():
                self._turns.wake(waiter, result)

    def _store(self, shard: GroupShard, write: GroupWrite) -> None:
        stored = write.stored and dataclasses.replace(write.stored, since_ms=self._clock.time_ms())
        done: Callable[[BarnabasError | None], Any] = functools.partial(self._on_stored, shard, write)
        try:
            shard.log.write([GroupRecord(write.group.group_id, stored)], done)
        except BarnabasError as error:
            # Not at once: the caller has yet to deliver what its own call made due.
            self._loop.call_soon(done, error)

    def _on_stored(self, shard: GroupShard, write: GroupWrite, error: BarnabasError | None) -> None:
        if error and not self._is_closed:
            log.warning("group %r cannot be stored: %s", write.group.group_id, error)
        now = self._clock.monotonic()
        self._deliver(shard, shard.coordinator.stored(now, write, coordinator_error(error)))

    def _log_refusal(self, reason: str) -> None:
        now = self._clock.monotonic()
        if now - self._refusal_logged_s >= REFUSAL_LOGGED_S:
            self._refusal_logged_s = now
            log.warning("%s", reason)

    def _arm(self, deadline: float | None) -> None:
        """Have one timer run for the earliest deadline."""
        if deadline is None or (self._timer and self._timer_deadline <= deadline) or self._is_closed:
            return
        if self._timer:
            self._timer.cancel()
        self._timer_deadline = deadline
        self._timer = self._loop.call_later(max(0.0, deadline - self._clock.monotonic()), self._tick)

    def _tick(self) -> None:
        self._timer = None
        now = self._clock.monotonic()
        for shard in list(self._shards.values()):
            # What is due and left is done as soon as others have had their turn: the timer is armed for it.
            if self._is_held(shard, now):
                self._arm(now + FENCED_LOOK_S)
            elif self._clock.monotonic() - now < TICK_S:
                self._deliver(shard, shard.coordinator.tick(now, GROUPS_PER_TICK))
            else:
                self._arm(shard.coordinator.next_deadline())

    def _is_held(self, shard: GroupShard, now: float) -> bool:
        """Whether nothing ends in the groups of a shard for now: its members may be told to ask another broker."""
        if not shard.partition.is_led:
            shard.fenced_s = now
        return now < shard.fenced_s + GRACE_S
