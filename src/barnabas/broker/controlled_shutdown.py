"""Transfers of leadership: of a broker that shuts down, to preferred replicas, and away from logs that are offline.

The new leader is an in-sync replica that has all records. Appends wait during the transfer, so that records
acknowledged by the leader alone are kept. The leader writes the new state, so no other broker has to detect that it is
gone (Kafka's controlled shutdown).

The registration of the broker says that it is leaving. Other leaders remove it from the in-sync replicas at once and do
not add it again, so that no acknowledgement waits for it after its end.

The preferred replica is the first one of the assignment. It receives the leadership, and never takes it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

from barnabas.broker.leader_replica import LeaderReplica
from barnabas.broker.metadata_image import next_state
from barnabas.broker.topics import Topics
from barnabas.coordination.change_notifications import StateChange
from barnabas.replication.leader_election import transfer_leadership

CAUGHT_UP_S = 0.25
"""The time for which appends wait until the next leader has all records."""
LOOK_S = 0.005
"""The interval at which the broker checks this."""

log = logging.getLogger(__name__)


class ControlledShutdown:
    """Used from the event loop's thread only."""

    def __init__(self, topics: Topics, broker_id: int) -> None:
        self._topics = topics
        self._broker_id = broker_id

    async def transfer_all(self) -> None:
        """Transfer all partitions that another broker can lead; return when this broker has left all ISRs.

        Runs until it is cancelled: a new leader may need time.

        :raises BarnabasError: the metadata store cannot be reached.
        """
        while led := self._transfers({self._broker_id}, self._topics.replicas.leaders()):
            await self._carry_out(led)
        while self._is_counted_on():  # noqa: ASYNC110 - the image changes with the news of other brokers
            await asyncio.sleep(LOOK_S)

    async def transfer_to_preferred(self) -> None:
        """Transfer partitions to their preferred replicas, where these are in sync and have all records.

        :raises BarnabasError: the metadata store cannot be reached.
        """
        preferred = {
            partition: change
            for partition, change in self._transfers(set(), self._topics.replicas.leaders()).items()
            if change.state.leader == self._topics.preferred_replica(partition.topic_partition)
        }
        if preferred:
            await self._carry_out(preferred, is_urgent=False)

    async def transfer_offline(self) -> None:
        """Transfer the partitions whose log here is offline.

        :raises BarnabasError: the metadata store cannot be reached.
        """
        offline = [
            partition
            for partition in self._topics.replicas.leaders()
            if partition.followers and partition.log.is_offline
        ]
        changes = self._transfers({self._broker_id}, offline) if offline else {}
        if changes:
            await self._topics.apply_roles(await self._topics.write_states(list(changes.values())))
            log.warning("handed on %d partitions whose logs are offline here", len(changes))

    async def transfer(self, changes: dict[LeaderReplica, StateChange]) -> None:
        """Transfer partitions to the leaders of these states, where the new leader has all records.

        :param changes: each with the version that follows the state from which it was made: the tree may have a newer
            state by then.
        :raises BarnabasError: the metadata store cannot be reached.
        """
        await self._carry_out(changes, is_urgent=False)

    def _transfers(self, leaving: set[int], among: Iterable[LeaderReplica]) -> dict[LeaderReplica, StateChange]:
        """Return, by partition, the state with another leader, where another broker can lead."""
        image = self._topics.image
        live = image.brokers.keys()
        leaving = leaving | {each for each, broker in image.brokers.items() if broker.registration.is_leaving}
        changes = {}
        for partition in among:
            info = image.partition(partition.topic_partition)
            if partition.followers is None or info is None or info.state.leader_epoch != partition.leader_epoch:
                continue
            state = transfer_leadership(info.state, info.replicas, live, leaving)
            if state is not None:
                where = partition.topic_partition
                changes[partition] = next_state(where, image.topics[where.topic], state)
        return changes

    async def _carry_out(self, changes: dict[LeaderReplica, StateChange], *, is_urgent: bool = True) -> None:
        done = asyncio.Event()
        held = [partition.hold_appends(done.wait) for partition in changes]
        try:
            await self._wait_until_caught_up(changes)
            ready = [
                change for partition, change in changes.items() if is_urgent or _has_all(partition, change.state.leader)
            ]
            changed = await self._topics.write_states(ready) if ready else {}
            for partition in changes:
                # Appends that have waited must fail: the next leader would not have them.
                if not self._leads_still(partition):
                    partition.fence()
        finally:
            done.set()
            await asyncio.gather(*held, return_exceptions=True)
        await self._topics.apply_roles(changed)
        log.info("handed on the leadership of %d partitions", sum(map(len, changed.values())))

    def _leads_still(self, partition: LeaderReplica) -> bool:
        info = self._topics.image.partition(partition.topic_partition)
        return info is not None and info.state.leader_epoch == partition.leader_epoch

    async def _wait_until_caught_up(self, changes: dict[LeaderReplica, StateChange]) -> None:
        rounds = round(CAUGHT_UP_S / LOOK_S)
        for _ in range(rounds):
            if all(_has_all(partition, change.state.leader) for partition, change in changes.items()):
                return
            await asyncio.sleep(LOOK_S)

    def _is_counted_on(self) -> bool:
        """Return whether this broker is in the ISR of a live leader."""
        image = self._topics.image
        for replica in self._topics.replicas.all():
            info = image.partition(replica.topic_partition)
            if info is None or self._broker_id not in info.state.isr:
                continue
            if info.state.leader != self._broker_id and info.state.leader in image.brokers:
                return True
        return False


def _has_all(partition: LeaderReplica, follower: int) -> bool:
    followers = partition.followers
    return followers is None or followers.log_end_offset_of(follower) >= partition.log.log_end_offset
