"""Leadership transfers during a controlled shutdown, to preferred replicas, and away from offline logs.

The new leader is an in-sync replica with all records. Appends wait during the transfer, so that no acknowledged record
is lost. The old leader writes the new partition state, so no other broker has to detect a failure first.

In a controlled shutdown, the broker marks its registration as leaving. Other leaders then remove this broker from their
ISRs immediately and do not add it again. So no acknowledgement waits for this broker after it has stopped.

The preferred replica is the first replica of the assignment. The current leader transfers the leadership to the
preferred replica, which never claims it.
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
"""The maximum time that appends wait for the next leader to catch up, in seconds."""
LOOK_S = 0.005
"""The interval between checks whether replicas have caught up or this broker has left the ISRs, in seconds."""

log = logging.getLogger(__name__)


class ControlledShutdown:
    """Transfers the leadership of partitions. Used from the event loop's thread only."""

    def __init__(self, topics: Topics, broker_id: int) -> None:
        self._topics = topics
        self._broker_id = broker_id

    async def transfer_all(self) -> None:
        """Transfer all partitions that another broker can lead, and wait until this broker has left the ISRs of other
        leaders.

        The caller must set a timeout, because a new leader may take long to update the ISR.

        :raises BarnabasError: the metadata store is unreachable.
        """
        while led := self._transfers({self._broker_id}, self._topics.replicas.leaders()):
            await self._carry_out(led)
        while self._is_counted_on():  # noqa: ASYNC110 - updates from the metadata store change the metadata image
            await asyncio.sleep(LOOK_S)

    async def transfer_to_preferred(self) -> None:
        """Transfer partitions to their preferred replicas if the preferred replicas are in sync and have all records.

        :raises BarnabasError: the metadata store is unreachable.
        """
        preferred = {
            partition: change
            for partition, change in self._transfers(set(), self._topics.replicas.leaders()).items()
            if change.state.leader == self._topics.preferred_replica(partition.topic_partition)
        }
        if preferred:
            await self._carry_out(preferred, is_urgent=False)

    async def transfer_offline(self) -> None:
        """Transfer the leadership of partitions whose logs on this broker are offline.

        :raises BarnabasError: the metadata store is unreachable.
        """
        offline = [
            partition
            for partition in self._topics.replicas.leaders()
            if partition.followers and partition.log.is_offline
        ]
        changes = self._transfers({self._broker_id}, offline) if offline else {}
        if changes:
            await self._topics.apply_roles(await self._topics.write_states(list(changes.values())))
            log.warning("transferred the leadership of %d partitions whose logs are offline", len(changes))

    async def transfer(self, changes: dict[LeaderReplica, StateChange]) -> None:
        """Transfer partitions to the leaders in the given partition states if these leaders have all records.

        :param changes: the new state of each partition, with the next version. The write fails if the metadata store
            has a newer state.
        :raises BarnabasError: the metadata store is unreachable.
        """
        await self._carry_out(changes, is_urgent=False)

    def _transfers(self, leaving: set[int], among: Iterable[LeaderReplica]) -> dict[LeaderReplica, StateChange]:
        """Return a partition state with a new leader for each partition that another broker can lead."""
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
                # Waiting appends must fail, because the new leader would not have their records.
                if not self._leads_still(partition):
                    partition.fence()
        finally:
            done.set()
            await asyncio.gather(*held, return_exceptions=True)
        await self._topics.apply_roles(changed)
        log.info("transferred the leadership of %d partitions", sum(map(len, changed.values())))

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
        """Return whether this broker is still in the ISR of a partition with another live leader."""
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
