"""The I/O of a `ClassicMembership`: sends joins, heartbeats, leave requests and commits to the group coordinator."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping

from barnabas.client.cluster import STALE_COORDINATOR, Cluster
from barnabas.client.committed_offsets import commit_offsets, committed_offsets
from barnabas.client.consumer.classic_membership import LEAVE_GROUP_VERSION_MAX, ClassicMembership, JoinOutcome
from barnabas.client.consumer.state import ConsumerState
from barnabas.client.permissions import Need
from barnabas.errors import ApiError, BarnabasError, ErrorCode
from barnabas.groups.assignors import NO_GENERATION
from barnabas.model import OffsetAndMetadata, TopicPartition
from barnabas.protocol.messages.heartbeat import HeartbeatResponse

log = logging.getLogger(__name__)

PURPOSE = "group"
"""The purpose of the connection for joins and heartbeats.

A join waits at the coordinator for other members, so commits and the leave request use another connection.
"""

JOINS_AT_ONCE = 5
"""The number of consecutive joins without a pause. After it, the member pauses before each further join."""
JOIN_GRACE_S = 5.0
"""The network delay in seconds that is added to the rebalance timeout to get the timeout of a join request."""

LEAVE_TIMEOUT_S = 3.0

GROUP_HAS_MOVED_ON = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.FENCED_INSTANCE_ID,
    }
)


class ClassicGroupSession:
    """The session of one consumer with its coordinator.

    The membership changes only with the guard held. So no call of the application can request a rejoin between the
    creation of a join request and its registration as in flight.
    """

    def __init__(self, state: ConsumerState, cluster: Cluster, membership: ClassicMembership) -> None:
        self._state = state
        self._guard = state.guard
        self._config = state.config
        self._cluster = cluster
        self._membership = membership

    async def join(self) -> list[TopicPartition] | None:
        """Join the next generation of the group, and return this member's partitions.

        The coordinator responds when the other members have joined, too. Retries until the join succeeds.

        :return: the partitions, or None if a rebalance took place without this member. The member has then
            lost its partitions: the consumer calls the listener, and joins again.
        :raises ApiError: the coordinator rejects this member.
        :raises FencedError: another member has the same instance id.
        """
        tries = 0
        answers = 0
        try:
            while True:
                try:
                    partitions = await self._join_once()
                except BarnabasError as error:
                    if not error.retriable:
                        raise self._explained(error) from error
                    self._note(error)
                    await asyncio.sleep(self._cluster.backoff.delay_s(tries))
                    tries += 1
                else:
                    if partitions is not None or (self._membership.lost and self._state.owned_partitions()):
                        return partitions
                    # The first rejoins are normal: the member has a new member id, or the group has rebalanced. Pause
                    # if they do not end.
                    answers += 1
                    if answers > JOINS_AT_ONCE:
                        await asyncio.sleep(self._cluster.backoff.delay_s(answers - JOINS_AT_ONCE - 1))
        finally:
            with self._guard.lock:
                self._membership.on_join_failed()

    async def _join_once(self) -> list[TopicPartition] | None:
        membership = self._membership
        timeout_s = self._config.max_poll_interval_ms / 1000 + JOIN_GRACE_S
        with self._guard.lock:
            request: object = membership.join_request(self._state.subscription.topics, self._state.owned_partitions())
        response = await self._cluster.ask_coordinator(membership.group, request, purpose=PURPOSE, timeout_s=timeout_s)
        with self._guard.lock:
            joined = membership.on_join(response)
        if joined is JoinOutcome.AGAIN:
            return None
        request = membership.sync_request(await self._partition_counts() if joined is JoinOutcome.AS_LEADER else None)
        response = await self._cluster.ask_coordinator(membership.group, request, purpose=PURPOSE, timeout_s=timeout_s)
        with self._guard.lock:
            return membership.on_sync(response)

    async def _partition_counts(self) -> dict[str, int]:
        """Return the partition counts of the members' topics, without topics that do not exist."""
        topics = self._membership.topics_of_members()
        self._cluster.use_topics(topics)  # never create topics here: each member creates its own topics, if it may
        view = await self._cluster.refresh()
        counts = {topic: view.partition_count(topic) for topic in topics}
        return {topic: count for topic, count in counts.items() if count is not None}

    def _explained(self, error: BarnabasError) -> BarnabasError:
        needed = Need("read", "group", self._membership.group)
        return self._cluster.refused(error, needed) if isinstance(error, ApiError) else error

    def _note(self, error: BarnabasError) -> None:
        log.debug("a request to the coordinator of group %s failed: %s", self._membership.group, error)
        if isinstance(error, ApiError) and error.code in STALE_COORDINATOR:
            self._cluster.forget_coordinator(self._membership.group)

    async def maintain(self) -> None:
        """Send heartbeats; never returns."""
        while True:
            await asyncio.sleep(self._config.heartbeat_interval_ms / 1000)
            if not self._membership.is_member:
                continue
            if self._state.polls_in_time():
                await self._heartbeat()
            else:
                log.warning(
                    "group %s: no poll for max_poll_interval_ms=%d; leaving the group to release its partitions",
                    self._membership.group,
                    self._config.max_poll_interval_ms,
                )
                await self.leave("poll was not called in time")
            self._state.notify_change()

    async def _heartbeat(self) -> None:
        membership = self._membership
        generation = membership.generation
        try:
            response: HeartbeatResponse = await self._cluster.ask_coordinator(
                membership.group,
                membership.heartbeat_request(),
                purpose=PURPOSE,
                timeout_s=self._config.session_timeout_ms / 1000,
            )
            with self._guard.lock:
                membership.on_heartbeat(response.error_code, generation)
        except BarnabasError as error:
            self._note(error)
            if not error.retriable:
                with self._guard.lock:
                    membership.on_left(str(error))
                if membership.fenced is None:
                    self._state.report_error(self._explained(error))

    async def leave(self, reason: str) -> None:
        """Leave the group, so that the other members need not wait for the session timeout. Errors are only logged."""
        with self._guard.lock:
            request = self._membership.leave_request()
            self._membership.on_left(reason)
        if request is None:
            return
        try:
            await self._cluster.ask_coordinator(
                self._membership.group,
                request,
                version_max=LEAVE_GROUP_VERSION_MAX,
                timeout_s=LEAVE_TIMEOUT_S,
            )
        except BarnabasError as error:
            log.debug("cannot leave group %s: %s", self._membership.group, error)

    async def close(self) -> None:
        """Do nothing, because the connections belong to the `Cluster`."""

    # --- offsets ----------------------------------------------------------------------------------------

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], timeout_s: float | None = None) -> None:
        """Commit offsets as a member of the group, or as a non-member if the application used `assign`.

        :raises ApiError: the group has rebalanced, and other errors.
        :raises FencedError: another consumer has the same instance id.
        """
        membership = self._membership
        if not self._state.subscription.by_topics:
            await commit_offsets(self._cluster, membership.group, offsets, timeout_s=timeout_s)
            return
        if membership.fenced is not None:
            raise membership.fenced.error()
        generation = membership.generation
        if generation == NO_GENERATION:
            # Do not send this commit: without a generation, the coordinator would accept it like an admin client's
            # commit.
            raise rebalanced_error(ErrorCode.UNKNOWN_MEMBER_ID, membership.group)
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
        except ApiError as error:
            if error.code not in GROUP_HAS_MOVED_ON:
                raise
            with self._guard.lock:
                is_out = membership.on_commit_refused(error.code, generation)
            if is_out:
                raise rebalanced_error(error.code, membership.group) from error
            raise _rebalancing_error(membership.group) from error

    async def committed(
        self, partitions: Iterable[TopicPartition], timeout_s: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the committed offsets of the group, without partitions that have none."""
        return await committed_offsets(self._cluster, self._membership.group, partitions, timeout_s=timeout_s)


def rebalanced_error(code: ErrorCode, group: str) -> ApiError:
    """Return the error of a commit for partitions that other members may already own."""
    return ApiError(
        code,
        f"group {group!r} has rebalanced, and other members may own the partitions; the next poll joins again "
        "(are records handled too slowly for max_poll_interval_ms?)",
    )


def _rebalancing_error(group: str) -> ApiError:
    return ApiError(
        ErrorCode.REBALANCE_IN_PROGRESS,
        f"group {group!r} is rebalancing; poll, and then commit for the remaining partitions",
    )
