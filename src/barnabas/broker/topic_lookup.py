"""Which topics there are, and the replicas of theirs on this broker: looked up by name, by id, by number."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from barnabas.broker.leader_replica import LeaderReplica
from barnabas.broker.replica import Replica
from barnabas.coordination.registry import PartitionInfo
from barnabas.errors import ApiError, ErrorCode
from barnabas.model import TopicPartition


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic, what is known of its partitions, each at the position of its number, and its own settings.

    `hosted` has the replicas on this broker, by the number of their partition.
    """

    name: str
    id: bytes
    partitions: tuple[PartitionInfo, ...]
    settings: Mapping[str, str]
    hosted: Mapping[int, Replica]

    def where(self, number: int) -> TopicPartition:
        """Return the name of a partition: the same object each time where that is here, since many may keep it."""
        replica = self.hosted.get(number)
        return TopicPartition(self.name, number) if replica is None else replica.topic_partition

    @property
    def led(self) -> dict[int, LeaderReplica]:
        """The partitions that this broker leads, by number."""
        return {number: replica for number, replica in self.hosted.items() if isinstance(replica, LeaderReplica)}


class TopicLookup:
    """All topics, by name and by id. Used from the event loop's thread only."""

    def __init__(self) -> None:
        self._by_name: dict[str, Topic] = {}
        self._by_id: dict[bytes, Topic] = {}

    def get(self, name: str) -> Topic | None:
        """Return the topic, or None."""
        return self._by_name.get(name)

    def by_id(self, topic_id: bytes) -> Topic | None:
        """Return the topic with this id, or None."""
        return self._by_id.get(topic_id)

    def name_of(self, topic_id: bytes) -> str:
        """Return the name of the topic with this id.

        :raises ApiError: UNKNOWN_TOPIC_ID.
        """
        topic = self._by_id.get(topic_id)
        if topic is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID, "there is no topic with this id")
        return topic.name

    def all(self) -> Iterable[Topic]:
        """Return every topic."""
        return self._by_name.values()

    def names(self) -> set[str]:
        """Return the names of all topics."""
        return set(self._by_name)

    def has_partition(self, where: TopicPartition) -> bool:
        """Whether there is such a partition."""
        topic = self._by_name.get(where.topic)
        return topic is not None and 0 <= where.partition < len(topic.partitions)

    def replica(self, name: str, number: int) -> Replica:
        """Return this broker's replica of a partition.

        :raises ApiError: UNKNOWN_TOPIC_OR_PARTITION; NOT_LEADER_OR_FOLLOWER where others hold it.
        """
        topic = self._by_name.get(name)
        if topic is None or not 0 <= number < len(topic.partitions):
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {name}-{number}")
        replica = topic.hosted.get(number)
        if replica is None:
            message = f"{name}-{number} is on brokers {list(topic.partitions[number].replicas)}, not on this one"
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, message)
        return replica

    def partition(self, name: str, number: int) -> LeaderReplica:
        """Return a partition that this broker leads.

        :raises ApiError: UNKNOWN_TOPIC_OR_PARTITION; NOT_LEADER_OR_FOLLOWER where another broker leads, or none.
        """
        replica = self.replica(name, number)
        if not isinstance(replica, LeaderReplica):
            message = f"{name}-{number} is led by broker {replica.leader}"
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, message)
        return replica

    def hosted(self) -> list[Replica]:
        """Return all replicas on this broker."""
        return [replica for topic in self._by_name.values() for replica in topic.hosted.values()]

    def led(self) -> list[LeaderReplica]:
        """Return all partitions that this broker leads."""
        return [partition for topic in self._by_name.values() for partition in topic.led.values()]

    def _keep(self, topic: Topic) -> None:
        self._by_name[topic.name] = topic
        self._by_id[topic.id] = topic
