"""AlterPartitionReassignments, versions 0 and 1: replicas stay where they are."""

from __future__ import annotations

from barnabas.broker.api import Context, serves
from barnabas.broker.error_codes import error_code, error_message
from barnabas.broker.topics import Topics
from barnabas.errors import ErrorCode, KafkaError
from barnabas.model import TopicPartition
from barnabas.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)


@serves(AlterPartitionReassignmentsRequest)
def alter_partition_reassignments(
    topics: Topics, request: AlterPartitionReassignmentsRequest, context: Context
) -> AlterPartitionReassignmentsResponse:
    """Tell for each partition whether it is where it is wanted."""
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_code=ErrorCode.NONE,
        error_message=None,
        responses=[
            ReassignableTopicResponse(
                name=topic.name, partitions=[_answer(topics, topic.name, each) for each in topic.partitions]
            )
            for topic in request.topics
        ],
    )


def _answer(topics: Topics, topic: str, wanted: ReassignablePartition) -> ReassignablePartitionResponse:
    error: KafkaError | None = None
    try:
        _check(topics, topic, wanted)
    except KafkaError as caught:
        error = caught
    return ReassignablePartitionResponse(
        partition_index=wanted.partition_index, error_code=error_code(error), error_message=error_message(error)
    )


def _check(topics: Topics, topic: str, wanted: ReassignablePartition) -> None:
    where = TopicPartition(topic, wanted.partition_index)
    info = topics.picture.partition(where)
    if info is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {where}")
    if wanted.replicas is None:
        message = f"{where} is not on its way to another broker"
        raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, message)
    if sorted(wanted.replicas) != sorted(info.replicas):
        message = f"{where} is on brokers {list(info.replicas)}; replicas cannot be moved to others yet"
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
