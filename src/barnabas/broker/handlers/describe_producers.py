"""DescribeProducers, version 0: the idempotent producers of a partition (KIP-664).

The last timestamp of a producer is the time at which the broker received its last batch, computed from the current wall
clock. After a restart, the times of all producers of a partition are shifted, so that the latest time equals the start
of the broker. The transaction fields are always empty, because transactions are not supported.
"""

from __future__ import annotations

from barnabas.broker.error_codes import error_code, error_message
from barnabas.broker.pipeline.call import Call, serves
from barnabas.broker.replica_manager import ReplicaManager
from barnabas.clock import Clock
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
    replicas: ReplicaManager, clock: Clock, request: DescribeProducersRequest, call: Call
) -> DescribeProducersResponse:
    """Describe the producers of each partition."""
    described = []
    for topic in request.topics:
        partitions = [_describe(replicas, clock, topic.name, number) for number in topic.partition_indexes]
        described.append(TopicResponse(name=topic.name, partitions=partitions))
    return DescribeProducersResponse(topics=described)


def _describe(replicas: ReplicaManager, clock: Clock, topic: str, number: int) -> PartitionResponse:
    try:
        producers = replicas.leader(topic, number).log.producers
    except BarnabasError as error:
        return PartitionResponse(
            partition_index=number,
            error_code=error_code(error),
            error_message=error_message(error),
            active_producers=[],
        )
    now_ms, now_s = clock.time_ms(), clock.monotonic()
    return PartitionResponse(
        partition_index=number,
        error_code=ErrorCode.NONE,
        active_producers=[
            ProducerState(
                producer_id=producer_id,
                producer_epoch=entry.epoch,
                last_sequence=entry.batches[-1].last_sequence,
                last_timestamp=now_ms - round((now_s - entry.batches[-1].appended_s) * 1000),
                coordinator_epoch=NO_COORDINATOR_EPOCH,
            )
            for producer_id, entry in producers.items()
        ],
    )
