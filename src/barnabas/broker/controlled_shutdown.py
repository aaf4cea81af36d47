"""How leadership is handed on: by a broker that stops, and to the preferred replica of a partition.

Leadership goes to a replica in sync that has everything: for the moment that this takes nothing is appended, so that
not even what was acknowledged by the leader alone is lost. The leader itself writes the new state, so nobody has to
notice that it is gone (Kafka calls this a controlled shutdown).

That a broker is leaving stands in its registration: other leaders drop it from the in-sync replicas at once, and do
not take it in again, so that no acknowledgement waits for it after it has gone.

The preferred replica is the first one of a partition's assignment: if each has its own, the load is spread as it was
meant. It is given the leadership, and never takes it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

from barnabas.broker.leader_replica import LeaderReplica
from barnabas.broker.metadata_image import next_state
from barnabas.broker.topics import Topics
from barnabas.coordination.change_notifications import StateChange
from barnabas.replication.leader_election import hand_over

CAUGHT_UP_S = 0.25
"""So long appends wait for the next leader to have everything."""
LOOK_S = 0.005
"""How often it is looked whether it has."""

log = logging.getLogger(__name__)


class HandingOver:
    """Used from the event loop's thread only."""

    def __init__(self, topics: Topics, broker_id: int) -> None:
        self._topics = topics
        self._broker_id = broker_id

    async def leave(self) -> None:
        """Hand on all that can be; return when this broker leads nothing that another one could, and is in sync with
        nobody. Goes on until cancelled: somebody may have to be waited for.

        :raises BarnabasError: the tree cannot be reached.
        """
        while led := self._to_hand_on({self._broker_id}, self._topics.replicas.leaders()):
            await self._hand_on(led)
        while self._is_counted_on():  # noqa: ASYNC110 - the image changes with the news of other brokers
            await asyncio.sleep(LOOK_S)

    async def prefer(self) -> None:
        """Hand to their preferred replicas the partitions whose preferred replica is in sync, and has everything; the
        others have time.

        :raises BarnabasError: the tree cannot be reached.
        """
        preferred = {
            partition: change
            for partition, change in self._to_hand_on(set(), self._topics.replicas.leaders()).items()
            if change.state.leader == self._topics.preferred_replica(partition.topic_partition)
        }
        if preferred:
            await self._hand_on(preferred, is_urgent=False)

    async def give_up_offline(self) -> None:
        """Hand on the partitions whose log here has gone offline: the disk refused, and others can serve them.

        :raises BarnabasError: the tree cannot be reached.
        """
        offline = [
            partition
            for partition in self._topics.replicas.leaders()
            if partition.followers and partition.log.is_offline
        ]
        changes = self._to_hand_on({self._broker_id}, offline) if offline else {}
        if changes:
            await self._topics.follow(await self._topics.propose(list(changes.values())))
            log.warning("handed on %d partitions whose logs are offline here", len(changes))

    async def hand_to(self, changes: dict[LeaderReplica, StateChange]) -> None:
        """Hand partitions on to those that lead after these changes, where they have everything; the others have time.

        :param changes: each with the version that follows that of the state from which it was made: what the tree has
            by then may be newer.
        :raises BarnabasError: the tree cannot be reached.
        """
        await self._hand_on(changes, is_urgent=False)

    def _to_hand_on(self, leaving: set[int], among: Iterable[LeaderReplica]) -> dict[LeaderReplica, StateChange]:
        """Return, by partition, the change after which another broker leads, where there is one that can."""
        image = self._topics.image
        live = image.brokers.keys()
        leaving = leaving | {each for each, broker in image.brokers.items() if broker.registration.is_leaving}
        changes = {}
        for partition in among:
            info = image.partition(partition.topic_partition)
            if partition.followers is None or info is None or info.state.leader_epoch != partition.leader_epoch:
                continue
            state = hand_over(info.state, info.replicas, live, leaving)
            if state is not None:
                where = partition.topic_partition
                changes[partition] = next_state(where, image.topics[where.topic], state)
        return changes

    async def _hand_on(self, changes: dict[LeaderReplica, StateChange], *, is_urgent: bool = True) -> None:
        done = asyncio.Event()
        held = [partition.hold_appends(done.wait) for partition in changes]
        try:
            await self._wait_until_caught_up(changes)
            ready = [
                change for partition, change in changes.items() if is_urgent or _has_all(partition, change.state.leader)
            ]
            changed = await self._topics.propose(ready) if ready else {}
            for partition in changes:
                # What has waited must not be appended here any more: the next leader has not got it.
                if not self._leads_still(partition):
                    partition.fence()
        finally:
            done.set()
            await asyncio.gather(*held, return_exceptions=True)
        await self._topics.follow(changed)
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
        """Whether this broker is in sync with a leader that lives."""
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
