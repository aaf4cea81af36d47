"""Carries a membership's requests to the group's coordinator: joins, heartbeats, leaving. Runs on the event loop."""

from __future__ import annotations

import asyncio
import logging

from barnabas.client.cluster import STALE_COORDINATOR, Cluster
from barnabas.client.consumer.membership import LEAVE_GROUP_VERSION_MAX, Joined, Membership
from barnabas.client.consumer.state import ConsumerState
from barnabas.errors import BarnabasError, KafkaError
from barnabas.model import TopicPartition
from barnabas.protocol.messages.heartbeat import HeartbeatResponse

log = logging.getLogger(__name__)

PURPOSE = "group"
"""A join waits at the coordinator for the other members, and a connection's requests are answered in turn: neither
commits nor the word that this member leaves must wait behind it, so they go over another one."""

JOIN_GRACE_S = 5.0
"""The coordinator answers a join within the rebalance timeout, and then some for the way."""

LEAVE_TIMEOUT_S = 3.0


class GroupSession:
    """One consumer's dealings with its coordinator.

    The membership is changed under the guard only: calls of the application ask it to join again, and a word of theirs
    must not fall between what a request says and that it is under way.
    """

    def __init__(self, state: ConsumerState, cluster: Cluster, membership: Membership) -> None:
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
        :raises KafkaError: the group does not want this member.
        :raises FencedError: another member has taken its instance id.
        """
        tries = 0
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
                    if partitions is not None or (self._membership.lost and self._state.owned()):
                        return partitions
        finally:
            with self._guard:
                self._membership.on_join_failed()

    async def _join_once(self) -> list[TopicPartition] | None:
        membership = self._membership
        timeout_s = self._config.max_poll_interval_ms / 1000 + JOIN_GRACE_S
        with self._guard:
            request: object = membership.join_request(self._state.subscription.topics, self._state.owned())
        response = await self._cluster.ask_coordinator(membership.group, request, purpose=PURPOSE, timeout_s=timeout_s)
        with self._guard:
            joined = membership.on_join(response)
        if joined is Joined.AGAIN:
            return None
        request = membership.sync_request(await self._partition_counts() if joined is Joined.AS_LEADER else None)
        response = await self._cluster.ask_coordinator(membership.group, request, purpose=PURPOSE, timeout_s=timeout_s)
        with self._guard:
            return membership.on_sync(response)

    async def _partition_counts(self) -> dict[str, int]:
        """Return the partition counts of what the members want; topics that do not exist are left out."""
        topics = self._membership.topics_of_members()
        self._cluster.watch_topics(topics, auto_creates=self._config.allow_auto_create_topics)
        view = await self._cluster.refresh()
        counts = {topic: view.partition_count(topic) for topic in topics}
        return {topic: count for topic, count in counts.items() if count is not None}

    def _note(self, error: BarnabasError) -> None:
        log.debug("group %s: %s", self._membership.group, error)
        if isinstance(error, KafkaError) and error.code in STALE_COORDINATOR:
            self._cluster.forget_coordinator(self._membership.group)

    async def heartbeats(self) -> None:
        """Tell the coordinator now and then that this member lives, for ever."""
        while True:
            await asyncio.sleep(self._config.heartbeat_interval_ms / 1000)
            if not self._membership.is_member:
                continue
            if self._state.alive():
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
            with self._guard:
                membership.on_heartbeat(response.error_code, generation)
        except BarnabasError as error:
            self._note(error)
            if not error.retriable:
                with self._guard:
                    membership.on_left(str(error))
                if membership.fenced is None:
                    self._state.report(error)

    async def leave(self, reason: str) -> None:
        """Leave the group, so that the others need not wait for the session to end. Failure does no harm."""
        with self._guard:
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
