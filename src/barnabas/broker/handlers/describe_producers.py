"""DescribeProducers, version 0: the idempotent producers that a partition remembers (KIP-664).

Their last timestamp is when the broker took their last batch. There are no transactions, so none is open.
"""

from __future__ import annotations

from barnabas.broker.error_codes import error_code, error_message
from barnabas.broker.pipeline.call import Call
from barnabas.broker.pipeline.served_api import serves
from barnabas.broker.replica_manager import ReplicaManager
from barnabas.errors import BarnabasError, ErrorCode
from barnabas.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)

NO_COORDINATOR_EPOCH = -1


@serves(DescribeProducersRequest)
def describe_producers(
    replicas: ReplicaManager, request: DescribeProducersRequest, call: Call
) -> DescribeProducersResponse:
    """Tell the producers of each partition."""
    described = []
    for topic in request.topics:
        partitions = [_describe(replicas, topic.name, number) for number in topic.partition_indexes]
        described.append(TopicResponse(name=topic.name, partitions=partitions))
    return DescribeProducersResponse(topics=described)


def _describe(replicas: ReplicaManager, topic: str, number: int) -> PartitionResponse:
    try:
        producers = replicas.leader(topic, number).log.producers
    except BarnabasError as error:
        return PartitionResponse(
            partition_index=number,
            error_code=error_code(error),
            error_message=error_message(error),
            active_producers=[],
        )
    return PartitionResponse(
        partition_index=number,
        error_code=ErrorCode.NONE,
        active_producers=[
            ProducerState(
                producer_id=producer_id,
                producer_epoch=entry.epoch,
                last_sequence=entry.batches[-1].last_sequence,
                last_timestamp=entry.batches[-1].append_time_ms,
                coordinator_epoch=NO_COORDINATOR_EPOCH,
            )
            for producer_id, entry in producers.items()
        ],
    )
