"""ElectLeaders, versions 0 to 2: the one broker leads every partition already, so no election is needed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.api import Context, serves
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

if TYPE_CHECKING:
    from barnabas.broker.broker import Broker


@serves(ElectLeadersRequest)
def elect_leaders(broker: Broker, request: ElectLeadersRequest, context: Context) -> ElectLeadersResponse:
    """Tell for each partition why no leader is elected; who asks for all is told of none, as in Kafka."""
    if request.election_type not in {PREFERRED_ELECTION, UNCLEAN_ELECTION}:
        return ElectLeadersResponse(error_code=ErrorCode.INVALID_REQUEST, replica_election_results=[])
    return ElectLeadersResponse(
        replica_election_results=[
            ReplicaElectionResult(
                topic=each.topic,
                partition_result=[_result(broker, TopicPartition(each.topic, n)) for n in each.partitions],
            )
            for each in request.topic_partitions or []
        ]
    )


def _result(broker: Broker, where: TopicPartition) -> PartitionResult:
    code, message = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {where}"
    if broker.topics.has_partition(where):
        code, message = ErrorCode.ELECTION_NOT_NEEDED, f"{where} is led by its preferred replica"
    return PartitionResult(partition_id=where.partition, error_code=code, error_message=message)
