"""Creation, growth and deletion of topics, as coroutines of the admin clients."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from barnabas.client.admin.controller import controller_id, refusal
from barnabas.client.cluster import UNKNOWN_TOPIC_PATIENCE_S, Cluster
from barnabas.client.permissions import Need
from barnabas.errors import ApiError, ErrorCode
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

USE_DEFAULT = -1
"""The partition count or replication factor that selects the brokers' default (KIP-464)."""

DELETE_TOPICS_VERSION_MAX = 5
"""The last version of DeleteTopics that identifies topics by name only. Later versions can use topic ids."""


async def create_topic(
    cluster: Cluster,
    name: str,
    *,
    partitions: int,
    replication_factor: int | None,
    config: Mapping[str, str],
    timeout_ms: int,
) -> None:
    """Create a topic; the request goes to the controller.

    :raises ApiError: TOPIC_ALREADY_EXISTS, INVALID_TOPIC_EXCEPTION, INVALID_CONFIG and other errors.
    """
    request = CreateTopicsRequest(
        topics=[
            CreatableTopic(
                name=name,
                num_partitions=partitions,
                replication_factor=USE_DEFAULT if replication_factor is None else replication_factor,
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
                raise refusal(topic.error_code, f"topic {name!r}", name, topic.error_message)

    await cluster.retrying(attempt, what=f"cannot create topic {name!r}", needs=(Need("create", "topic", name),))


async def delete_topics(cluster: Cluster, names: Iterable[str], *, timeout_ms: int) -> None:
    """Delete topics; the request goes to the controller.

    :raises ApiError: UNKNOWN_TOPIC_OR_PARTITION and other errors.
    """
    names = list(names)
    request = DeleteTopicsRequest(topic_names=names, timeout_ms=timeout_ms)

    async def attempt() -> ApiError | None:
        response: DeleteTopicsResponse = await cluster.send(
            await controller_id(cluster), request, version_max=DELETE_TOPICS_VERSION_MAX
        )
        for topic in response.responses:
            code = ErrorCode.of(topic.error_code)
            if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                # UNKNOWN_TOPIC_OR_PARTITION is retriable while a client waits for a new topic, but not for a deletion.
                return ApiError(code, f"topic {topic.name!r} does not exist")
            if code is not ErrorCode.NONE:
                error = refusal(code, f"topic {topic.name!r}", topic.name or "", topic.error_message)
                raise cluster.refused(error, Need("delete", "topic", topic.name or ""))
        return None

    failure = await cluster.retrying(attempt, what=f"cannot delete topics {', '.join(names)}")
    if failure is not None:
        raise failure


async def add_partitions(cluster: Cluster, name: str, total: int, *, timeout_ms: int) -> None:
    """Increase the number of partitions of a topic to `total`; the request goes to the controller.

    :raises ApiError: UNKNOWN_TOPIC_OR_PARTITION; INVALID_PARTITIONS: the topic already has `total` partitions or more.
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
                raise refusal(topic.error_code, f"topic {name!r}", name, topic.error_message)

    await cluster.retrying(
        attempt,
        what=f"cannot add partitions to topic {name!r}",
        unknown_topic_s=UNKNOWN_TOPIC_PATIENCE_S,
        needs=(Need("alter", "topic", name),),
    )
