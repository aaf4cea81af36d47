"""The transitions of the replicas of this broker: become leader, become follower, resign.

A role is an object of its own in each leader epoch (`barnabas.broker.replica`). When the metadata give a replica
another leader or leader epoch, the old role resigns, and the new one begins with the same log.
"""

from __future__ import annotations

import logging

from barnabas.broker.broker_events import Events, IsrChangeDue, RoleBegan, RoleEnded
from barnabas.broker.disk_work import DiskWork
from barnabas.broker.follower_replica import FollowerReplica
from barnabas.broker.leader_replica import LeaderReplica
from barnabas.broker.metadata_cache import MetadataCache
from barnabas.broker.replica import Replica
from barnabas.broker.settings.topic_config import TopicConfig
from barnabas.clock import Clock
from barnabas.coordination.topic_metadata_store import PartitionInfo
from barnabas.coordination.values import NO_LEADER
from barnabas.errors import ApiError, ErrorCode
from barnabas.model import TopicPartition
from barnabas.replication.in_sync import RemoteReplicas
from barnabas.storage.log import Log

log = logging.getLogger(__name__)


class Roles:
    """Used from the event loop's thread only."""

    def __init__(self, broker_id: int, metadata: MetadataCache, work: DiskWork, clock: Clock, events: Events) -> None:
        self._broker_id = broker_id
        self._metadata = metadata
        self._work = work
        self._clock = clock
        self._events = events

    def begin(self, where: TopicPartition, opened: Log, info: PartitionInfo, config: TopicConfig) -> Replica:
        """Return the role of a log that has none."""
        leader = self._leader(where, info)
        if leader == self._broker_id:
            replica: Replica = self._become_leader(where, opened, info, config)
        else:
            replica = self._become_follower(where, opened, info, config, leader)
        self._events.publish(RoleBegan(replica))
        return replica

    async def transition(self, replica: Replica, info: PartitionInfo) -> Replica:
        """Return the role that the metadata give a replica: the one that it has, or another after that has ended."""
        leader = self._leader(replica.topic_partition, info)
        if (replica.leader, replica.leader_epoch) == (leader, info.state.leader_epoch):
            if isinstance(replica, LeaderReplica) and replica.followers is not None:
                _adopt(replica, replica.followers, info)
            return replica
        why = f"leader epoch {replica.leader_epoch} has ended; broker {leader} leads now"
        leads_on = isinstance(replica, LeaderReplica) and leader == self._broker_id
        await self.resign(replica, why, leads_on=leads_on)
        if isinstance(replica, LeaderReplica) and info.state.is_doubted and not replica.log.is_offline:
            # A replica with a newer log than the tree deposed this leader, which may have acknowledged other records.
            # Other states without a leader follow a successor, which had all acknowledged records.
            replica.log.mark_newer_than_tree()
        following = self.begin(replica.topic_partition, replica.log, info, replica.config)
        if isinstance(replica, LeaderReplica):
            if isinstance(following, LeaderReplica):
                following.succeed(replica)
            elif leads_on:  # this broker has registered again meanwhile, and has to claim the partition first
                replica.end_waits(_has_ended(replica, why))
        return following

    async def resign(self, replica: Replica, why: str, *, leads_on: bool = False) -> None:
        """End a role; return when no work of it is under way.

        :param leads_on: this broker is the leader, and is the next leader too.
        """
        self._events.publish(RoleEnded(replica))
        error = _has_ended(replica, why)
        if isinstance(replica, LeaderReplica):
            replica.resign(error, leads_on=leads_on)
        else:
            replica.resign(error)
        await replica.end()

    def _publish_isr_change(self, replica: LeaderReplica) -> None:
        self._events.publish(IsrChangeDue(replica))

    def _leader(self, where: TopicPartition, info: PartitionInfo) -> int:
        """Return the leader; -1 for this broker, where an earlier registration of it has led."""
        state = info.state
        if state.leader != self._broker_id or self._metadata.leads_in_this_life(self._broker_id, where, state):
            return state.leader
        return NO_LEADER

    def _become_follower(
        self, where: TopicPartition, opened: Log, info: PartitionInfo, config: TopicConfig, leader: int
    ) -> FollowerReplica:
        topic_id = self._metadata.image.topics[where.topic].topic_id
        epoch = info.state.leader_epoch
        return FollowerReplica(where, opened, epoch, config, self._work, leader=leader, topic_id=topic_id)

    def _become_leader(
        self, where: TopicPartition, opened: Log, info: PartitionInfo, config: TopicConfig
    ) -> LeaderReplica:
        state, followers = info.state, None
        # No other replica has the lost records: in later epochs the log is what it is now.
        opened.accept_loss()
        opened.mark_compared()
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
            # The leader only raises the high watermark from here on.
            opened.move_high_watermark(opened.recovery_point)
        return LeaderReplica(
            where,
            opened,
            state.leader_epoch,
            config,
            self._work,
            leader=self._broker_id,
            followers=followers,
            on_isr_change_due=self._publish_isr_change,
        )


def _adopt(partition: LeaderReplica, followers: RemoteReplicas, info: PartitionInfo) -> None:
    """Let a leader take over the replicas and the ISR of the metadata.

    Where they are the ones that the leader has, they may be older than its own change under way, which goes on.
    """
    if info.state.isr != followers.isr:
        followers.adopt(info.state.isr)
        partition.isr_changed()
    if info.replicas != followers.replicas:
        followers.set_replicas(info.replicas)
        partition.isr_changed()
        partition.ask_for_isr_change()


def _has_ended(replica: Replica, why: str) -> ApiError:
    """Return the error of all requests to a role that has ended."""
    return ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{replica.topic_partition}: {why}")
