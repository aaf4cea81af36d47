"""Descriptions of topics, as returned by the admin clients."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from barnabas.client.cluster import Cluster, TopicView
from barnabas.client.permissions import Need, with_permission
from barnabas.errors import ApiError, ErrorCode
from barnabas.model import NO_LEADER_EPOCH, TopicPartition


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    """A partition: the ids of its leader (-1 if there is none), replicas, in-sync replicas and offline replicas.

    `leader_epoch` increases with each leader election; -1 for old brokers.
    """

    partition: int
    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline_replicas: tuple[int, ...] = ()
    leader_epoch: int = NO_LEADER_EPOCH


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic: its name, its id in hexadecimal (empty for old brokers), and its partitions.

    If the brokers cannot describe the topic, `error` is the reason and `partitions` is empty.
    """

    name: str
    id: str
    partitions: tuple[PartitionDescription, ...]
    error: ErrorCode = ErrorCode.NONE


def require(topics: Iterable[TopicDescription], principal: str | None = None) -> list[TopicDescription]:
    """Return `topics` unchanged if none of them has an error.

    :param principal: the principal of the client, for the error of a missing permission.
    :raises ApiError: some topics have an error. The error has the code of the first of them, and its message lists all
        of them.
    """
    found = list(topics)
    failed = [topic for topic in found if topic.error]
    if not failed:
        return found
    first, *others = failed
    advice = " does not exist" if first.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION else ""
    if others:
        advice += f"; nor are there {', '.join(f'{topic.name!r} ({topic.error.name})' for topic in others)}"
    error = ApiError.about(first.error, f"topic {first.name!r}", advice)
    raise with_permission(error, principal, Need("describe", "topic", first.name))


class TopicLookup(Protocol):
    """Describes topics; `Admin` implements it."""

    def describe_topics(self, names: Iterable[str], /) -> list[TopicDescription]: ...


def check_visible(admin: TopicLookup, names: Iterable[str]) -> None:
    """Check topics that a list of topics does not contain: lists leave out what the client may not describe.

    :raises ApiError: TOPIC_AUTHORIZATION_FAILED: the client may not describe a topic, which may not exist either.
    """
    for name in names:
        try:
            admin.describe_topics([name])
        except ApiError as error:
            if error.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                raise


def describe(topic: TopicView) -> TopicDescription:
    return TopicDescription(
        name=topic.name,
        id=topic.topic_id.hex() if any(topic.topic_id) else "",
        partitions=tuple(
            PartitionDescription(
                each.partition, each.leader, each.replicas, each.isr, each.offline_replicas, each.leader_epoch
            )
            for each in topic.partitions
        ),
        error=topic.error,
    )


async def eligible_leader_replicas(cluster: Cluster, topics: Sequence[str]) -> dict[TopicPartition, tuple[int, ...]]:
    """Return the eligible leader replicas of the partitions that have some (KIP-966).

    :raises UnsupportedVersionError: the broker is older than Kafka 3.8.
    """
    # Import the messages here: most calls of admin clients do not need them, and the import takes time.
    from barnabas.protocol.messages.describe_topic_partitions import (  # noqa: PLC0415
        Cursor,
        DescribeTopicPartitionsRequest,
        DescribeTopicPartitionsResponse,
        TopicRequest,
    )

    async def attempt() -> dict[TopicPartition, tuple[int, ...]]:
        found: dict[TopicPartition, tuple[int, ...]] = {}
        wanted = [TopicRequest(name=name) for name in sorted(set(topics))]
        cursor: Cursor | None = None
        place: tuple[str, int] = ("", -1)
        while wanted:
            channel = await cluster.any_channel()
            response: DescribeTopicPartitionsResponse = await cluster.ask(
                channel, DescribeTopicPartitionsRequest(topics=wanted, cursor=cursor)
            )
            for topic in response.topics:
                for each in topic.partitions:
                    if topic.name is not None and each.eligible_leader_replicas:
                        found[TopicPartition(topic.name, each.partition_index)] = tuple(each.eligible_leader_replicas)
            cursor, before = response.next_cursor, place
            if cursor is None or (place := (cursor.topic_name, cursor.partition_index)) <= before:
                break  # there is no next page, or the broker repeats a page
            wanted = [each for each in wanted if each.name >= cursor.topic_name]
        return found

    return await cluster.retrying(attempt, what="cannot describe the partitions of topics")
