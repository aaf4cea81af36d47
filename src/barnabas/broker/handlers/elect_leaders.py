"""ElectLeaders, versions 0 to 2: the one broker leads every partition already, so no election is needed."""

from __future__ import annotations

from barnabas.broker.api import Context, serves
from barnabas.broker.topics import Topics
from barnabas.errors import ErrorCode
from barnabas.model import TopicPartition
from barnabas.protocol.messages.elect_leaders import (
    PREFERRED_ELECTION,
    UNCLEAN_ELECTION,
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)


@serves(ElectLeadersRequest)
def elect_leaders(topics: Topics, request: ElectLeadersRequest, context: Context) -> ElectLeadersResponse:
    """Tell for each partition why no leader is elected. A request for all partitions gets an empty list, as in
    Kafka."""
    if request.election_type not in {PREFERRED_ELECTION, UNCLEAN_ELECTION}:
        return ElectLeadersResponse(error_code=ErrorCode.INVALID_REQUEST, replica_election_results=[])
    return ElectLeadersResponse(
        replica_election_results=[
            ReplicaElectionResult(
                topic=each.topic,
                partition_result=[_result(topics, TopicPartition(each.topic, n)) for n in each.partitions],
            )
            for each in request.topic_partitions or []
        ]
    )


def _result(topics: Topics, where: TopicPartition) -> PartitionResult:
    code, message = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {where}"
    if topics.has_partition(where):
        code, message = ErrorCode.ELECTION_NOT_NEEDED, f"{where} is led by its preferred replica"
    return PartitionResult(partition_id=where.partition, error_code=code, error_message=message)
