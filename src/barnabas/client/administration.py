"""What an administrator does with topics, as coroutines: describe, create, let grow, delete.

The same for groups stands in `group_administration`, for settings in `config_administration`, for brokers and their
disks in `broker_administration`, for offsets in `offset_queries`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from barnabas.client.cluster import UNKNOWN_TOPIC_PATIENCE_S, Cluster
from barnabas.client.metadata import TopicView
from barnabas.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from barnabas.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse

DELETE_TOPICS_VERSION_MAX = 5
"""Later versions can name topics by id."""


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    """One partition: who leads it (-1: nobody), who keeps it, who is in sync."""

    partition: int
    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


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
        raise KafkaError(topic.error, f"topic {topic.name!r}{advice}")
    return TopicDescription(
        name=topic.name,
        id=topic.topic_id.hex() if any(topic.topic_id) else "",
        partitions=tuple(
            PartitionDescription(each.partition, each.leader, each.replicas, each.isr) for each in topic.partitions
        ),
    )


async def create_topic(
    cluster: Cluster,
    name: str,
    *,
    partitions: int,
    replication_factor: int,
    config: Mapping[str, str],
    timeout_ms: int,
) -> None:
    """Create a topic at the controller.

    :raises KafkaError: TOPIC_ALREADY_EXISTS, INVALID_TOPIC_EXCEPTION, INVALID_CONFIG ...
    """
    request = CreateTopicsRequest(
        topics=[
            CreatableTopic(
                name=name,
                num_partitions=partitions,
                replication_factor=replication_factor,
                assignments=[],
                configs=[CreatableTopicConfig(name=key, value=str(value)) for key, value in config.items()],
            )
        ],
        timeout_ms=timeout_ms,
    )

    async def attempt() -> None:
        response: CreateTopicsResponse = await cluster.send(await controller_id(cluster), request)
        for topic in response.topics:
            if topic.error_code:
                raise KafkaError(topic.error_code, f"topic {name!r}{said(topic.error_message)}")

    await cluster.retrying(attempt, what=f"topic {name!r} was not created")


async def delete_topics(cluster: Cluster, names: Iterable[str], *, timeout_ms: int) -> None:
    """Delete topics at the controller.

    :raises KafkaError: UNKNOWN_TOPIC_OR_PARTITION ...
    """
    names = list(names)
    request = DeleteTopicsRequest(topic_names=names, timeout_ms=timeout_ms)

    async def attempt() -> KafkaError | None:
        response: DeleteTopicsResponse = await cluster.send(
            await controller_id(cluster), request, version_max=DELETE_TOPICS_VERSION_MAX
        )
        for topic in response.responses:
            code = ErrorCode.of(topic.error_code)
            if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                # Retriable for who waits for a topic to appear, but not for who wants it gone.
                return KafkaError(code, f"topic {topic.name!r} does not exist")
            if code is not ErrorCode.NONE:
                raise KafkaError(code, f"topic {topic.name!r}{said(topic.error_message)}")
        return None

    failure = await cluster.retrying(attempt, what=f"topics {', '.join(names)} were not deleted")
    if failure is not None:
        raise failure


async def add_partitions(cluster: Cluster, name: str, total: int, *, timeout_ms: int) -> None:
    """Let a topic grow to `total` partitions, at the controller.

    :raises KafkaError: UNKNOWN_TOPIC_OR_PARTITION; INVALID_PARTITIONS: it has as many already, or more.
    """
    request = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name=name, count=total, assignments=None)],
        timeout_ms=timeout_ms,
        validate_only=False,
    )

    async def attempt() -> None:
        response: CreatePartitionsResponse = await cluster.send(await controller_id(cluster), request)
        for topic in response.results:
            if topic.error_code:
                raise KafkaError(topic.error_code, f"topic {name!r}{said(topic.error_message)}")

    await cluster.retrying(attempt, what=f"topic {name!r} was not enlarged", unknown_topic_s=UNKNOWN_TOPIC_PATIENCE_S)


async def controller_id(cluster: Cluster) -> int:
    """Return the id of the broker that changes what is shared.

    :raises KafkaError: BROKER_NOT_AVAILABLE.
    """
    if cluster.view.controller_id not in cluster.view.brokers:
        await cluster.refresh()
    if cluster.view.controller_id in cluster.view.brokers:
        return cluster.view.controller_id
    for node_id in cluster.view.brokers:
        return node_id  # a cluster without a controller: any broker can do it
    raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "the cluster names no broker")


def said(message: str | None) -> str:
    """Return what a broker said about an error, to be put behind what it is about."""
    return f": {message}" if message else ""
