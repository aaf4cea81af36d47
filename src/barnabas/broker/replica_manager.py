"""Manages the replicas of this broker: their logs, their roles, and operations on all replicas.

`ReplicaManager` keeps each replica from the opening of its log until its last role has resigned. `Topics` decides which
replicas exist and applies the metadata. `Topics` holds its lock (`Topics.changing`) during calls that change replicas.

Each leader epoch has its own role object (`barnabas.broker.replica`). If the leader or the leader epoch of a partition
changes, `RoleTransitions` ends the old role, and begins a new role with the same log.

Used from the event loop's thread only.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence

from barnabas.broker.broker_events import Events, IsrChangeDue, LifeCountersDue, RoleBegan, RoleEnded
from barnabas.broker.disk_work import DiskWork
from barnabas.broker.follower_replica import FollowerReplica
from barnabas.broker.leader_replica import LeaderReplica
from barnabas.broker.metadata_cache import MetadataCache
from barnabas.broker.replica import Replica
from barnabas.broker.replica_logs import CreateLog, ReplicaLogs, create_logs
from barnabas.broker.settings.topic_config import TopicConfig
from barnabas.clock import Clock
from barnabas.coordination.topic_metadata_store import PartitionInfo, TopicInfo
from barnabas.coordination.values import NO_LEADER
from barnabas.errors import ApiError, ErrorCode, StorageError
from barnabas.model import TopicPartition
from barnabas.replication.in_sync import RemoteReplicas
from barnabas.storage.log import Log

log = logging.getLogger(__name__)


class RoleTransitions:
    """Begins and ends the roles of replicas. Used from the event loop's thread only."""

    def __init__(self, broker_id: int, metadata: MetadataCache, work: DiskWork, clock: Clock, events: Events) -> None:
        self._broker_id = broker_id
        self._metadata = metadata
        self._work = work
        self._clock = clock
        self._events = events
        self.leader_count = 0
        """The number of times that a replica on this broker has become leader."""

    def begin(self, where: TopicPartition, opened: Log, info: PartitionInfo, config: TopicConfig) -> Replica:
        """Begin the first role of a replica with an opened log. Return the role."""
        leader = self._leader(where, info)
        if leader == self._broker_id:
            replica: Replica = self._become_leader(where, opened, info, config)
        else:
            replica = self._become_follower(where, opened, info, config, leader)
        self._events.publish(RoleBegan(replica))
        return replica

    async def transition(self, replica: Replica, info: PartitionInfo) -> Replica:
        """End the current role of a replica and begin a new role, if the metadata requires this. Return the role."""
        leader = self._leader(replica.topic_partition, info)
        if (replica.leader, replica.leader_epoch) == (leader, info.state.leader_epoch):
            if isinstance(replica, LeaderReplica) and replica.followers is not None:
                _adopt(replica, replica.followers, info)
            return replica
        why = f"leader epoch {replica.leader_epoch} has ended; broker {leader} leads now"
        leads_on = isinstance(replica, LeaderReplica) and leader == self._broker_id
        await self.resign(replica, why, leads_on=leads_on)
        if isinstance(replica, LeaderReplica) and info.state.is_doubted and not replica.log.is_offline:
            # A replica whose log is newer than the metadata store has caused this election. This leader may have
            # acknowledged records that the next leader lacks. After any other election, the next leader has all
            # acknowledged records.
            replica.log.mark_newer_than_tree()
        following = self.begin(replica.topic_partition, replica.log, info, replica.config)
        if isinstance(replica, LeaderReplica):
            if isinstance(following, LeaderReplica):
                following.take_over_from(replica)
            elif leads_on:  # This broker has registered again, so it must claim the partition before it leads.
                replica.end_waits(_has_ended(replica, why))
        return following

    async def resign(self, replica: Replica, why: str, *, leads_on: bool = False) -> None:
        """End a role, and wait until none of its work is in progress.

        :param leads_on: True if this broker also leads in the next leader epoch.
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
        """Return the leader's id, or -1 if the leader is this broker with an earlier registration."""
        state = info.state
        if state.leader != self._broker_id or self._metadata.leads_in_this_incarnation(self._broker_id, where, state):
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
        self.leader_count += 1
        # This replica became leader, so its log is valid as it is, even if it has lost records.
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
            # Set the high watermark before the role begins, because the leader role only raises it.
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
    """Apply the replicas and the ISR from the metadata to a leader.

    If they equal the leader's current replicas and ISR, do nothing, because the leader may have an ISR change in
    progress.
    """
    if info.state.isr != followers.isr:
        followers.adopt(info.state.isr)
        partition.isr_changed()
    if info.replicas != followers.replicas:
        followers.set_replicas(info.replicas)
        partition.isr_changed()
        partition.ask_for_isr_change()


def _has_ended(replica: Replica, why: str) -> ApiError:
    """Return the error for requests that wait when the role of a replica ends."""
    return ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{replica.topic_partition}: {why}")


TRANSITIONS_PER_PAUSE = 64
"""The number of role transitions before other tasks of the event loop run."""

NO_REPLICAS: Mapping[int, Replica] = {}

PartitionsOf = Callable[[str], Sequence[PartitionInfo] | None]
"""Returns the partitions of a topic that are visible to clients, or None if the topic is not visible."""


class ReplicaManager:
    """All replicas on this broker.

    :param partitions_of: returns the partitions of a topic, for error messages.
    """

    def __init__(
        self,
        broker_id: int,
        partitions_of: PartitionsOf,
        metadata: MetadataCache,
        replica_logs: ReplicaLogs,
        work: DiskWork,
        clock: Clock,
        events: Events,
    ) -> None:
        self._broker_id = broker_id
        self._partitions_of = partitions_of
        self._metadata = metadata
        self._replica_logs = replica_logs
        self._work = work
        self._events = events
        self.roles = self._roles = RoleTransitions(broker_id, metadata, work, clock, events)
        self._replicas: dict[str, Mapping[int, Replica]] = {}
        """The replicas by topic and partition number. A change replaces the whole mapping of a topic."""
        self._transition_count = 0

    # -- lookup ----------------------------------------------------------------------------------------------

    def replica(self, topic: str, number: int) -> Replica:
        """Return this broker's replica of a partition.

        :raises ApiError: UNKNOWN_TOPIC_OR_PARTITION; NOT_LEADER_OR_FOLLOWER if only other brokers have replicas.
        """
        replica = self._replicas.get(topic, NO_REPLICAS).get(number)
        if replica is None:
            raise self._not_here(topic, number)
        return replica

    def leader(self, topic: str, number: int) -> LeaderReplica:
        """Return the leader replica of a partition that this broker leads.

        :raises ApiError: UNKNOWN_TOPIC_OR_PARTITION; NOT_LEADER_OR_FOLLOWER if another broker or no broker leads.
        """
        replica = self._replicas.get(topic, NO_REPLICAS).get(number)
        if isinstance(replica, LeaderReplica):
            return replica
        if replica is None:
            raise self._not_here(topic, number)
        raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{topic}-{number} is led by broker {replica.leader}")

    def _not_here(self, topic: str, number: int) -> ApiError:
        partitions = self._partitions_of(topic)
        if partitions is None or not 0 <= number < len(partitions):
            return ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"partition {topic}-{number} does not exist")
        message = f"{topic}-{number} has replicas on brokers {list(partitions[number].replicas)}, not on this broker"
        return ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, message)

    def get(self, where: TopicPartition) -> Replica | None:
        """Return this broker's replica of a partition, or None."""
        return self.of_topic(where.topic).get(where.partition)

    def of_topic(self, topic: str) -> Mapping[int, Replica]:
        """Return this broker's replicas of a topic, by partition number."""
        return self._replicas.get(topic, NO_REPLICAS)

    def leaders_of_topic(self, topic: str) -> dict[int, LeaderReplica]:
        """Return the replicas of a topic that lead on this broker, by partition number."""
        return {n: replica for n, replica in self.of_topic(topic).items() if isinstance(replica, LeaderReplica)}

    def all(self) -> list[Replica]:
        """Return all replicas on this broker. Any thread may call it."""
        return [replica for replicas in list(self._replicas.values()) for replica in replicas.values()]

    def leaders(self) -> list[LeaderReplica]:
        """Return all replicas that lead on this broker."""
        return [replica for replica in self.all() if isinstance(replica, LeaderReplica)]

    def shared_name(self, where: TopicPartition) -> TopicPartition:
        """Return the `TopicPartition` object of this broker's replica if there is one, to share one object instead of
        many equal objects.
        """
        replica = self.get(where)
        return where if replica is None else replica.topic_partition

    # -- opening ---------------------------------------------------------------------------------------------

    async def restore(self, info: TopicInfo, config: TopicConfig) -> None:
        """Open the logs of this broker's replicas of a topic, and begin their roles.

        The broker calls this method at its start. If a topic's node was unreadable then, it calls this method later.
        """
        own = self._own(info)
        logs = await self._replica_logs.restore_all(
            [TopicPartition(info.name, n) for n in own], config.log, info.topic_id
        )
        self._replicas[info.name] = self._begin(info, config, dict(zip(own, logs, strict=True)))

    async def open_new(self, info: TopicInfo, config: TopicConfig, make: CreateLog) -> None:
        """Create the logs of replicas that are new on this broker, and begin their roles.

        :raises BarnabasError: a log cannot be created.
        """
        known = self.of_topic(info.name)
        new = [number for number in self._own(info) if number not in known]
        logs = await create_logs(make, [TopicPartition(info.name, n) for n in new], config.log, info.topic_id)
        self._replicas[info.name] = {**known, **self._begin(info, config, dict(zip(new, logs, strict=True)))}

    def _own(self, info: TopicInfo) -> list[int]:
        return [number for number, each in enumerate(info.partitions) if self._broker_id in each.replicas]

    def _begin(self, info: TopicInfo, config: TopicConfig, logs: Mapping[int, Log]) -> dict[int, Replica]:
        return {n: self._roles.begin(log.partition, log, info.partitions[n], config) for n, log in logs.items()}

    def configure(self, topic: str, config: TopicConfig) -> None:
        """Apply new settings of a topic to its replicas."""
        for replica in self.of_topic(topic).values():
            if replica.config != config:
                replica.configure(config)

    # -- transitions -----------------------------------------------------------------------------------------

    async def transition(self, topic: str, numbers: Iterable[int]) -> None:
        """Begin new roles of replicas as the metadata requires. Requests see the new roles when all have begun."""
        replicas = dict(self.of_topic(topic))
        for number in dict.fromkeys(numbers):
            if number in replicas:
                info = self._metadata.image.topics[topic].partitions[number]
                replica = replicas[number] = await self._roles.transition(replicas[number], info)
                if replica.log.is_newer_than_tree:
                    self._events.publish(LifeCountersDue())
            self._transition_count += 1
            if self._transition_count % TRANSITIONS_PER_PAUSE == 0:
                await asyncio.sleep(0)
        self._replicas[topic] = replicas

    def restart_followers_of(self, broker_ids: Iterable[int]) -> None:
        """Restart the followers of brokers that have registered again, because the leader's address may have
        changed.
        """
        registered = frozenset(broker_ids)
        for replica in self.all():
            if replica.leader in registered:
                self._events.publish(RoleBegan(replica))

    def remove(self, topic: str, numbers: Iterable[int]) -> list[Replica]:
        """Remove replicas of a topic, so that requests no longer find them.

        Return the replicas. The caller must call `resign`.
        """
        replicas = dict(self.of_topic(topic))
        taken = [replicas.pop(number) for number in numbers]
        self._replicas[topic] = replicas
        return taken

    def remove_topic_replicas(self, topic: str) -> list[Replica]:
        """Remove all replicas of a topic, as `remove` does. The caller must call `resign` or `delete`."""
        return list(self._replicas.pop(topic, NO_REPLICAS).values())

    async def resign(self, replica: Replica, why: str) -> None:
        """End the role of a removed replica, and wait until none of its work is in progress."""
        await self._roles.resign(replica, why)

    async def delete(self, replicas: Sequence[Replica]) -> StorageError | None:
        """Delete removed replicas: end their roles, and rename their partition directories.

        :returns: the error of the first directory that could not be renamed, or None.
        """
        for replica in replicas:
            self._events.publish(RoleEnded(replica))
            replica.mark_deleted()
        # Use another thread, because the deletion waits for flushes in progress.
        partitions = [each.topic_partition for each in replicas]
        refused: StorageError | None = await self._work.for_all(self._replica_logs.delete, partitions)
        return refused

    # -- retention -------------------------------------------------------------------------------------------

    async def store_log_starts(self) -> None:
        """Store the log start offsets durably, and delete the segment files below these offsets.

        :raises StorageError: a write fails.
        """
        await self._work.for_all(self._replica_logs.remove_deleted_records)

    async def delete_old_records(self) -> None:
        """Delete the segments of all replicas that exceed the retention settings."""
        for replica in self.all():
            await replica.delete_old_records()
            await asyncio.sleep(0)
        await self.store_log_starts()
