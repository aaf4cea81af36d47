"""Carries a membership's requests to the group's coordinator: joins, heartbeats, leaving. Runs on the event loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping

from barnabas.client.cluster import STALE_COORDINATOR, Cluster
from barnabas.client.consumer.classic_membership import LEAVE_GROUP_VERSION_MAX, ClassicMembership, JoinOutcome
from barnabas.client.consumer.state import ConsumerState
from barnabas.client.offset_requests import commit_offsets, committed_offsets
from barnabas.errors import ApiError, BarnabasError, ErrorCode
from barnabas.groups.assignors import NO_GENERATION
from barnabas.model import OffsetAndMetadata, TopicPartition
from barnabas.protocol.messages.heartbeat import HeartbeatResponse

log = logging.getLogger(__name__)

PURPOSE = "group"
"""A join waits at the coordinator for the other members, and a connection's requests are answered in turn: neither
commits nor the word that this member leaves must wait behind it, so they go over another one."""

JOINS_AT_ONCE = 5
"""So many answers in a row that want another join cost no pause."""
JOIN_GRACE_S = 5.0
"""The coordinator answers a join within the rebalance timeout, and then some for the way."""

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
    """One consumer's dealings with its coordinator.

    The membership is changed under the guard only: calls of the application ask it to join again, and a word of theirs
    must not fall between what a request says and that it is under way.
    """

    def __init__(self, state: ConsumerState, cluster: Cluster, membership: ClassicMembership) -> None:
        self._state = state
        self._guard = state.guard
        self._config = state.config
        self._cluster = cluster
        self._membership = membership

    async def join(self) -> list[TopicPartition] | None:
        """Join the group's next generation and return the partitions that fall to this member.

        Tries until it succeeds; waits as long as the other members need.

        :return: None where the group has gone on without this member while it still had partitions: it has lost
            them, and must know that before it joins again.
        :raises ApiError: the group does not want this member.
        :raises FencedError: another member has taken its instance id.
        """
        tries = 0
        answers = 0
        try:
            while True:
                try:
                    partitions = await self._join_once()
                except BarnabasError as error:
                    if not error.retriable:
                        raise
                    self._note(error)
                    await asyncio.sleep(self._cluster.backoff.delay_s(tries))
                    tries += 1
                else:
                    if partitions is not None or (self._membership.lost and self._state.owned_partitions()):
                        return partitions
                    # A member joins again for its id and after a rebalance, not without end and at once.
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
        """Return the partition counts of what the members want; topics that do not exist are left out."""
        topics = self._membership.topics_of_members()
        self._cluster.use_topics(topics)  # each member has those created that it subscribes to, where it may
        view = await self._cluster.refresh()
        counts = {topic: view.partition_count(topic) for topic in topics}
        return {topic: count for topic, count in counts.items() if count is not None}

    def _note(self, error: BarnabasError) -> None:
        log.debug("group %s: %s", self._membership.group, error)
        if isinstance(error, ApiError) and error.code in STALE_COORDINATOR:
            self._cluster.forget_coordinator(self._membership.group)

    async def keep(self) -> None:
        """Tell the coordinator now and then that this member lives, for ever."""
        while True:
            await asyncio.sleep(self._config.heartbeat_interval_ms / 1000)
            if not self._membership.is_member:
                continue
            if self._state.polls_in_time():
                await self._heartbeat()
            else:
                log.warning(
                    "group %s: no poll for max_poll_interval_ms=%d; leaving, so that others get the partitions",
                    self._membership.group,
                    self._config.max_poll_interval_ms,
                )
                await self.leave("poll was not called in time")
            self._state.changed()

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
                    self._state.report(error)

    async def leave(self, reason: str) -> None:
        """Leave the group, so that the others need not wait for the session to end. Failure does no harm."""
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
            log.debug("group %s: leaving: %s", self._membership.group, error)

    async def close(self) -> None:
        """Nothing is its own: the connections are the cluster's."""

    # --- offsets ----------------------------------------------------------------------------------------

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], timeout_s: float | None = None) -> None:
        """Commit offsets as a member of the group, or, where partitions were assigned by hand, as nobody.

        :raises ApiError: the group has moved on, and others.
        :raises FencedError: another consumer has taken this one's instance id.
        """
        membership = self._membership
        if not self._state.subscription.by_topics:
            await commit_offsets(self._cluster, membership.group, offsets, timeout_s=timeout_s)
            return
        if membership.fenced is not None:
            raise membership.fenced.error()
        generation = membership.generation
        if generation == NO_GENERATION:
            # Without a generation the coordinator would take the commit as an administrator's.
            raise moved_on(ErrorCode.UNKNOWN_MEMBER_ID, membership.group)
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
                raise moved_on(error.code, membership.group) from error
            raise _shares_anew(membership.group) from error

    async def committed(
        self, partitions: Iterable[TopicPartition], timeout_s: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return what the group has committed; partitions for which it has not are left out."""
        return await committed_offsets(self._cluster, self._membership.group, partitions, timeout_s=timeout_s)


def moved_on(code: ErrorCode, group: str) -> ApiError:
    """Return what a commit raises whose partitions may be others' by now."""
    return ApiError(
        code,
        f"group {group!r} has moved on, the partitions may be others' now; the next poll joins again "
        "(are records handled too slowly for max_poll_interval_ms?)",
    )


def _shares_anew(group: str) -> ApiError:
    return ApiError(
        ErrorCode.REBALANCE_IN_PROGRESS,
        f"group {group!r} shares its partitions anew just now; poll, and then commit for the partitions that are left",
    )
