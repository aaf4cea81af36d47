"""The replicas of this broker: their logs, their roles, and what the broker does to all of them.

A replica is known here from the moment its log is open and has a role until the role resigns for good. `Topics` decides
which replicas there are and applies the metadata; it holds its lock (`Topics.changing`) while it calls the methods that
change replicas.

Used from the event loop's thread only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence

from barnabas.broker.broker_events import Events, LifeCountersDue, RoleBegan, RoleEnded
from barnabas.broker.disk_work import DiskWork
from barnabas.broker.leader_replica import LeaderReplica
from barnabas.broker.metadata_cache import MetadataCache
from barnabas.broker.replica import Replica
from barnabas.broker.replica_logs import Hosting, MakeLog, make_all
from barnabas.broker.roles import Roles
from barnabas.broker.settings.topic_config import TopicConfig
from barnabas.clock import Clock
from barnabas.coordination.topic_metadata_store import PartitionInfo, TopicInfo
from barnabas.errors import ApiError, ErrorCode, StorageError
from barnabas.model import TopicPartition
from barnabas.storage.log import Log

TRANSITIONS_PER_PAUSE = 64
"""The replicas that have a transition between two pauses."""

NO_REPLICAS: Mapping[int, Replica] = {}

PartitionsOf = Callable[[str], Sequence[PartitionInfo] | None]
"""Returns the partitions of a topic that clients see; None where clients see no such topic."""


class ReplicaManager:
    """All replicas on this broker.

    :param partitions_of: finds the topics, so that errors name what is missing.
    """

    def __init__(
        self,
        broker_id: int,
        partitions_of: PartitionsOf,
        metadata: MetadataCache,
        hosting: Hosting,
        work: DiskWork,
        clock: Clock,
        events: Events,
    ) -> None:
        self._broker_id = broker_id
        self._partitions_of = partitions_of
        self._metadata = metadata
        self._hosting = hosting
        self._work = work
        self._events = events
        self._roles = Roles(broker_id, metadata, work, clock, events)
        self._replicas: dict[str, Mapping[int, Replica]] = {}
        """The replicas of each topic, by the number of their partition. A change replaces the mapping of a topic."""
        self._transition_count = 0

    # -- lookup ----------------------------------------------------------------------------------------------

    def replica(self, topic: str, number: int) -> Replica:
        """Return this broker's replica of a partition.

        :raises ApiError: UNKNOWN_TOPIC_OR_PARTITION; NOT_LEADER_OR_FOLLOWER where other brokers have the replicas.
        """
        partitions = self._partitions_of(topic)
        if partitions is None or not 0 <= number < len(partitions):
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {topic}-{number}")
        replica = self.of_topic(topic).get(number)
        if replica is None:
            message = f"{topic}-{number} is on brokers {list(partitions[number].replicas)}, not on this one"
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, message)
        return replica

    def leader(self, topic: str, number: int) -> LeaderReplica:
        """Return the leader of a partition, where this broker leads.

        :raises ApiError: UNKNOWN_TOPIC_OR_PARTITION; NOT_LEADER_OR_FOLLOWER where another broker leads, or none.
        """
        replica = self.replica(topic, number)
        if not isinstance(replica, LeaderReplica):
            message = f"{topic}-{number} is led by broker {replica.leader}"
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, message)
        return replica

    def get(self, where: TopicPartition) -> Replica | None:
        """Return this broker's replica of a partition, or None."""
        return self.of_topic(where.topic).get(where.partition)

    def of_topic(self, topic: str) -> Mapping[int, Replica]:
        """Return this broker's replicas of a topic, by the number of their partition."""
        return self._replicas.get(topic, NO_REPLICAS)

    def leaders_of_topic(self, topic: str) -> dict[int, LeaderReplica]:
        """Return the replicas of a topic that lead here, by the number of their partition."""
        return {n: replica for n, replica in self.of_topic(topic).items() if isinstance(replica, LeaderReplica)}

    def all(self) -> list[Replica]:
        """Return all replicas on this broker."""
        return [replica for replicas in self._replicas.values() for replica in replicas.values()]

    def leaders(self) -> list[LeaderReplica]:
        """Return all replicas that lead here."""
        return [replica for replica in self.all() if isinstance(replica, LeaderReplica)]

    def shared_name(self, where: TopicPartition) -> TopicPartition:
        """Return an equal `TopicPartition`: the same object each time for a replica here, since many may keep it."""
        replica = self.get(where)
        return where if replica is None else replica.topic_partition

    # -- opening ---------------------------------------------------------------------------------------------

    async def restore(self, info: TopicInfo, config: TopicConfig) -> None:
        """Open the logs that this broker should have of a topic, and give each its role: at the start, and for a topic
        whose node was unreadable at the start."""
        own = self._own(info)
        logs = await self._hosting.restore_all([TopicPartition(info.name, n) for n in own], config.log, info.topic_id)
        self._replicas[info.name] = self._begin(info, config, dict(zip(own, logs, strict=True)))

    async def open_new(self, info: TopicInfo, config: TopicConfig, make: MakeLog) -> None:
        """Open the logs of replicas that are new here, and give each its role.

        :raises BarnabasError: see `make`.
        """
        known = self.of_topic(info.name)
        new = [number for number in self._own(info) if number not in known]
        logs = await make_all(make, [TopicPartition(info.name, n) for n in new], config.log, info.topic_id)
        self._replicas[info.name] = {**known, **self._begin(info, config, dict(zip(new, logs, strict=True)))}

    def _own(self, info: TopicInfo) -> list[int]:
        return [number for number, each in enumerate(info.partitions) if self._broker_id in each.replicas]

    def _begin(self, info: TopicInfo, config: TopicConfig, logs: Mapping[int, Log]) -> dict[int, Replica]:
        return {n: self._roles.begin(log.partition, log, info.partitions[n], config) for n, log in logs.items()}

    def configure(self, topic: str, config: TopicConfig) -> None:
        """Use these settings of a topic from now on."""
        for replica in self.of_topic(topic).values():
            if replica.config != config:
                replica.configure(config)

    # -- transitions -----------------------------------------------------------------------------------------

    async def transition(self, topic: str, numbers: Iterable[int]) -> None:
        """Give replicas of a topic the roles of the metadata. Requests find the new roles when all have begun."""
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

    def leaders_came(self, broker_ids: Iterable[int]) -> None:
        """Begin the roles of followers again whose leader's broker has registered: its address may be another one."""
        came = frozenset(broker_ids)
        for replica in self.all():
            if replica.leader in came:
                self._events.publish(RoleBegan(replica))

    def take_out(self, topic: str, numbers: Iterable[int]) -> list[Replica]:
        """Remove replicas of a topic, so that requests find them no longer; return them. `resign` must follow."""
        replicas = dict(self.of_topic(topic))
        taken = [replicas.pop(number) for number in numbers]
        self._replicas[topic] = replicas
        return taken

    def take_out_topic(self, topic: str) -> list[Replica]:
        """Remove all replicas of a topic, as `take_out` does. `resign` or `delete` must follow."""
        return list(self._replicas.pop(topic, NO_REPLICAS).values())

    async def resign(self, replica: Replica, why: str) -> None:
        """End the role of a replica that was taken out; return when no work of it is under way."""
        await self._roles.resign(replica, why)

    async def delete(self, replicas: Sequence[Replica]) -> StorageError | None:
        """Delete replicas that were taken out: end their roles, and rename their folders.

        :returns: the error of the first folder that is left; None if none is.
        """
        for replica in replicas:
            self._events.publish(RoleEnded(replica))
            replica.mark_deleted()
        # Not on the event loop: the thread waits for flushes that are under way.
        partitions = [each.topic_partition for each in replicas]
        refused: StorageError | None = await self._work.for_all(self._hosting.delete, partitions)
        return refused

    # -- retention -------------------------------------------------------------------------------------------

    async def store_log_starts(self) -> None:
        """Store the log start offsets durably, and delete the files of the segments before them.

        :raises StorageError: the disk refused.
        """
        await self._work.for_all(self._hosting.remove_deleted_records)

    async def delete_old_records(self) -> None:
        """Delete the segments that the topics' settings do not keep."""
        for replica in self.all():
            await replica.delete_old_records()
            await asyncio.sleep(0)
        await self.store_log_starts()
