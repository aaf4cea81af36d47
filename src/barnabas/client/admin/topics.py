"""What an administrator sees of topics."""

from __future__ import annotations

from dataclasses import dataclass

from barnabas.client.metadata import TopicView
from barnabas.errors import ErrorCode, KafkaError


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    """One partition: who leads it (-1: nobody), who keeps it, who is in sync, and whose brokers are away."""

    partition: int
    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline_replicas: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic, its id in hexadecimal (empty where brokers have none) and its partitions."""

    name: str
    id: str
    partitions: tuple[PartitionDescription, ...]


def describe(topic: TopicView) -> TopicDescription:
    """Return what users see of a topic.

    :raises KafkaError: the brokers answered with an error for it.
    """
    if topic.error is not ErrorCode.NONE:
        advice = " does not exist" if topic.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION else ""
        raise KafkaError.about(topic.error, f"topic {topic.name!r}", advice)
    return TopicDescription(
        name=topic.name,
        id=topic.topic_id.hex() if any(topic.topic_id) else "",
        partitions=tuple(
            PartitionDescription(each.partition, each.leader, each.replicas, each.isr, each.offline_replicas)
            for each in topic.partitions
        ),
    )
