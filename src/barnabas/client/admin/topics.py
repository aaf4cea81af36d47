"""What an administrator sees of topics."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from barnabas.client.cluster import TopicView
from barnabas.errors import ApiError, ErrorCode


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
    """A topic, its id in hexadecimal (empty where brokers have none) and its partitions.

    Where the brokers cannot describe it now, `error` says why, and there are no partitions.
    """

    name: str
    id: str
    partitions: tuple[PartitionDescription, ...]
    error: ErrorCode = ErrorCode.NONE


def require(topics: Iterable[TopicDescription]) -> list[TopicDescription]:
    """Return topics that all have been described.

    :raises ApiError: one or more have not; it has the error of the first, and names all.
    """
    found = list(topics)
    failed = [topic for topic in found if topic.error]
    if not failed:
        return found
    first, *others = failed
    advice = " does not exist" if first.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION else ""
    if others:
        advice += f"; nor are there {', '.join(f'{topic.name!r} ({topic.error.name})' for topic in others)}"
    raise ApiError.about(first.error, f"topic {first.name!r}", advice)


def describe(topic: TopicView) -> TopicDescription:
    """Return what users see of a topic."""
    return TopicDescription(
        name=topic.name,
        id=topic.topic_id.hex() if any(topic.topic_id) else "",
        partitions=tuple(
            PartitionDescription(each.partition, each.leader, each.replicas, each.isr, each.offline_replicas)
            for each in topic.partitions
        ),
        error=topic.error,
    )
