"""AlterPartitionReassignments, versions 0 and 1: with one broker, a partition can be assigned to it alone."""

from __future__ import annotations

from barnabas.broker.api import Context, serves
from barnabas.broker.error_codes import error_code, error_message
from barnabas.broker.identity import Identity
from barnabas.broker.topics import Topics
from barnabas.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)


@serves(AlterPartitionReassignmentsRequest)
def alter_partition_reassignments(
    topics: Topics, identity: Identity, request: AlterPartitionReassignmentsRequest, context: Context
) -> AlterPartitionReassignmentsResponse:
    """Tell for each partition whether it is where it is wanted."""
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_code=ErrorCode.NONE,
        error_message=None,
        responses=[
            ReassignableTopicResponse(
                name=topic.name, partitions=[_answer(topics, identity, topic.name, each) for each in topic.partitions]
            )
            for topic in request.topics
        ],
    )


def _answer(
    topics: Topics, identity: Identity, topic: str, wanted: ReassignablePartition
) -> ReassignablePartitionResponse:
    error: KafkaError | None = None
    try:
        _check(topics, identity, topic, wanted)
    except KafkaError as caught:
        error = caught
    return ReassignablePartitionResponse(
        partition_index=wanted.partition_index, error_code=error_code(error), error_message=error_message(error)
    )


def _check(topics: Topics, identity: Identity, topic: str, wanted: ReassignablePartition) -> None:
    where = topics.partition(topic, wanted.partition_index).topic_partition
    if wanted.replicas is None:
        message = f"{where} is not on its way to another broker"
        raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, message)
    if wanted.replicas != [identity.node_id]:
        message = f"the only broker is {identity.node_id}; every partition must be assigned to it alone"
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
