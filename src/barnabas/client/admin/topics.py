"""Descriptions of topics for administrators."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from barnabas.client.cluster import TopicView
from barnabas.errors import ApiError, ErrorCode


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    """A partition: leader (-1: none), replicas, in-sync replicas, and replicas whose brokers are offline."""

    partition: int
    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline_replicas: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic, its id in hexadecimal (empty for old brokers) and its partitions.

    If the brokers cannot describe it now, `error` has the reason, and there are no partitions.
    """

    name: str
    id: str
    partitions: tuple[PartitionDescription, ...]
    error: ErrorCode = ErrorCode.NONE


def require(topics: Iterable[TopicDescription]) -> list[TopicDescription]:
    """Return the topics, if all are described.

    :raises ApiError: some are not; it has the error of the first, and names all.
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
    """Return the description of a topic for applications."""
    return TopicDescription(
        name=topic.name,
        id=topic.topic_id.hex() if any(topic.topic_id) else "",
        partitions=tuple(
            PartitionDescription(each.partition, each.leader, each.replicas, each.isr, each.offline_replicas)
            for each in topic.partitions
        ),
        error=topic.error,
    )
