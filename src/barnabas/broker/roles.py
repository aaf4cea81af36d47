"""Which role a replica on this broker has: it leads, it follows, or it waits for a leader.

A role is an object of its own in each leader epoch (`barnabas.broker.replica`). When the picture of the cluster says
that another one is due, the old object ends, and the new one goes on with the same log.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from barnabas.broker.disk_work import DiskWork
from barnabas.broker.follower_replica import FollowerReplica
from barnabas.broker.leader_replica import LeaderReplica
from barnabas.broker.picture import Picture
from barnabas.broker.replica import Replica
from barnabas.broker.settings.topic_config import TopicConfig
from barnabas.clock import Clock
from barnabas.coordination.registry import PartitionInfo
from barnabas.coordination.values import NO_LEADER
from barnabas.errors import ErrorCode, KafkaError
from barnabas.model import TopicPartition
from barnabas.replication.in_sync import RemoteReplicas
from barnabas.storage.log import Log

log = logging.getLogger(__name__)


class Roles:
    """Used from the event loop's thread only."""

    def __init__(self, broker_id: int, picture: Picture, work: DiskWork, clock: Clock) -> None:
        self._broker_id = broker_id
        self._picture = picture
        self._work = work
        self._clock = clock
        self.on_isr_wanted: Callable[[LeaderReplica], None] = lambda _partition: None
        """Called when a partition may want other replicas in sync."""
        self.on_begun: Callable[[Replica], None] = lambda _replica: None
        """Called with each new role object, and again when the leader's broker begins another life."""
        self.on_ended: Callable[[Replica], None] = lambda _replica: None
        """Called when a role has ended, before the next one begins."""

    def first(self, where: TopicPartition, opened: Log, info: PartitionInfo, config: TopicConfig) -> Replica:
        """Return the role of a log that has none yet."""
        replica = self._begin(where, opened, info, config)
        self.on_begun(replica)
        return replica

    async def next(self, replica: Replica, info: PartitionInfo) -> Replica:
        """Return the role that a replica is to have now: the one that it has, or another one when that has ended."""
        leader = self._leader(replica.topic_partition, info)
        if (replica.leader, replica.leader_epoch) == (leader, info.state.leader_epoch):
            if isinstance(replica, LeaderReplica) and replica.followers is not None:
                _adopt(replica, replica.followers, info)
            return replica
        why = f"leader epoch {replica.leader_epoch} has ended; broker {leader} leads now"
        leads_on = isinstance(replica, LeaderReplica) and leader == self._broker_id
        await self.end(replica, why, leads_on=leads_on)
        if isinstance(replica, LeaderReplica) and info.state.leader == NO_LEADER and not replica.log.is_offline:
            # A replica with a newer log than the tree deposed this leader, which may have acknowledged other records.
            replica.log.is_newer_than_tree = True
        following = self.first(replica.topic_partition, replica.log, info, replica.config)
        if isinstance(replica, LeaderReplica) and isinstance(following, LeaderReplica):
            following.succeed(replica)
        elif leads_on:  # another life of this broker has begun meanwhile, and has yet to claim the partition
            replica.end_waits(_over(replica, why))
        return following

    async def end(self, replica: Replica, why: str, *, leads_on: bool = False) -> None:
        """End a role; return when nothing of it is under way any longer.

        :param leads_on: this broker leads, and leads in the next role, too.
        """
        self.on_ended(replica)
        replica.resign(_over(replica, why), leads_on=leads_on)
        await replica.end()

    def _leader(self, where: TopicPartition, info: PartitionInfo) -> int:
        """Return who leads; -1 for this broker, where it led in an earlier life and has yet to claim that anew."""
        state = info.state
        if state.leader != self._broker_id or self._picture.leads_in_this_life(self._broker_id, where, state):
            return state.leader
        return NO_LEADER

    def _begin(self, where: TopicPartition, opened: Log, info: PartitionInfo, config: TopicConfig) -> Replica:
        state, leader = info.state, self._leader(where, info)
        if leader != self._broker_id:
            topic_id = self._picture.topics[where.topic].topic_id
            return FollowerReplica(
                where, opened, state.leader_epoch, config, self._work, leader=leader, topic_id=topic_id
            )
        followers = None
        # What is lost here no other replica has: in later epochs the log is what it is now.
        opened.lost_from = None
        opened.is_newer_than_tree = False
        if len(info.replicas) > 1:
            opened.hold_high_watermark()
            followers = RemoteReplicas(
                self._broker_id,
                state.leader_epoch,
                info.replicas,
                state.isr,
                opened.log_end_offset,
                opened.high_watermark,
                self._clock.monotonic(),
            )
        elif config.log.has_flush_policy and not opened.is_offline:
            # Whatever could be read before: from here on the partition only lets it rise.
            opened.high_watermark = opened.recovery_point
        partition = LeaderReplica(
            where, opened, state.leader_epoch, config, self._work, leader=self._broker_id, followers=followers
        )
        partition.on_isr_wanted = self.on_isr_wanted
        return partition


def _adopt(partition: LeaderReplica, followers: RemoteReplicas, info: PartitionInfo) -> None:
    """Let a leader have the replicas, and the in-sync ones, that the tree has.

    If these are the ones that it has, they may be older than a change of its own that is under way, which goes on.
    """
    if info.state.isr != followers.isr:
        followers.adopt(info.state.isr)
        partition.isr_changed()
    if info.replicas != followers.replicas:
        followers.set_replicas(info.replicas)
        partition.isr_changed()
        partition.on_isr_wanted(partition)


def _over(replica: Replica, why: str) -> KafkaError:
    """Return what whoever comes to a role that is over is told."""
    return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{replica.topic_partition}: {why}")
