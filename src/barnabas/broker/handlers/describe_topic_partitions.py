"""DescribeTopicPartitions, version 0: topics and partitions in pages; a cursor selects the next page (KIP-966).

Topics are sorted by name. A response contains at most as many partitions as the client requests, and never more than
`PARTITIONS_MAX`. The cursor contains the partition at which the next response begins.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.authorized_operations import ON_TOPICS
from barnabas.broker.identity import Identity
from barnabas.broker.internal_topics import INTERNAL_TOPICS
from barnabas.broker.pipeline.call import Call, serves
from barnabas.broker.topic_names import check_topic_name
from barnabas.broker.topics import Topics
from barnabas.coordination.values import NO_LEADER
from barnabas.errors import ApiError, ErrorCode
from barnabas.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)

if TYPE_CHECKING:
    from barnabas.broker.metadata_image import MetadataImage
    from barnabas.coordination.topic_metadata_store import PartitionInfo

PARTITIONS_MAX = 2000
"""The maximum number of partitions in a response (Kafka's max.request.partition.size.limit)."""


@serves(DescribeTopicPartitionsRequest)
def describe_topic_partitions(
    topics: Topics, identity: Identity, request: DescribeTopicPartitionsRequest, call: Call
) -> DescribeTopicPartitionsResponse:
    """Describe the requested topics, or all topics, beginning at the cursor."""
    asked_for = {topic.name for topic in request.topics}
    names = sorted(asked_for or {topic.name for topic in topics.all()})
    cursor = request.cursor
    if cursor is not None and cursor.partition_index < 0:
        return DescribeTopicPartitionsResponse(topics=[_failed(name, ErrorCode.INVALID_REQUEST) for name in names])
    if cursor is not None:
        names = [name for name in names if name >= cursor.topic_name]
    left = max(1, min(request.response_partition_limit, PARTITIONS_MAX))
    described: list[DescribeTopicPartitionsResponseTopic] = []
    for name in names:
        if not left:
            return DescribeTopicPartitionsResponse(
                topics=described, next_cursor=Cursor(topic_name=name, partition_index=0)
            )
        first = cursor.partition_index if cursor is not None and cursor.topic_name == name else 0
        topic = _describe(topics, name, first, left)
        described.append(topic)
        left -= len(topic.partitions)
        following = first + len(topic.partitions)
        if _has_partition(topics, name, following):
            return DescribeTopicPartitionsResponse(
                topics=described, next_cursor=Cursor(topic_name=name, partition_index=following)
            )
    return DescribeTopicPartitionsResponse(topics=described)


def _describe(topics: Topics, name: str, first: int, count: int) -> DescribeTopicPartitionsResponseTopic:
    topic = topics.get(name)
    if topic is None:
        return _failed(name, _why_unknown(name))
    return DescribeTopicPartitionsResponseTopic(
        error_code=ErrorCode.NONE,
        name=name,
        topic_id=topic.id,
        is_internal=name in INTERNAL_TOPICS,
        partitions=[
            _partition(topics.image, number, each)
            for number, each in enumerate(topic.partitions[first : first + count], start=first)
        ],
        topic_authorized_operations=ON_TOPICS,
    )


def _partition(image: MetadataImage, number: int, info: PartitionInfo) -> DescribeTopicPartitionsResponsePartition:
    leader = image.leader_of(info)
    return DescribeTopicPartitionsResponsePartition(
        error_code=ErrorCode.LEADER_NOT_AVAILABLE if leader == NO_LEADER else ErrorCode.NONE,
        partition_index=number,
        leader_id=leader,
        leader_epoch=info.state.leader_epoch,
        replica_nodes=list(info.replicas),
        isr_nodes=list(info.state.isr),
        eligible_leader_replicas=[],
        last_known_elr=[],
        offline_replicas=image.offline_replicas(info),
    )


def _has_partition(topics: Topics, name: str, number: int) -> bool:
    topic = topics.get(name)
    return topic is not None and number < len(topic.partitions)


def _why_unknown(name: str) -> ErrorCode:
    try:
        check_topic_name(name)
    except ApiError as error:
        return error.code
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _failed(name: str, code: ErrorCode) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(error_code=code, name=name, partitions=[])
