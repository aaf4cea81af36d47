"""OffsetForLeaderEpoch, versions 2 to 4: return the end offset of a leader epoch in the leader's log (KIP-101,
KIP-320).
"""

from __future__ import annotations

from barnabas.broker.error_codes import error_code
from barnabas.broker.pipeline.call import Call, Steps, is_pause_due, serves
from barnabas.broker.replica_manager import ReplicaManager
from barnabas.errors import BarnabasError, ErrorCode
from barnabas.protocol.messages.offset_for_leader_epoch import (
    LeaderEpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)


@serves(OffsetForLeaderEpochRequest, ends_with_client=True)
def offset_for_leader_epoch(
    replicas: ReplicaManager, request: OffsetForLeaderEpochRequest, call: Call
) -> Steps[OffsetForLeaderEpochResponse]:
    """Return the end offset of the requested leader epoch for each partition."""
    results = []
    for topic in request.topics:
        partitions = []
        for number, each in enumerate(topic.partitions):
            if is_pause_due(number):
                yield
            partitions.append(_look_up(replicas, topic.topic, each))
        results.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=partitions))
        if is_pause_due(len(results)):
            yield
    return OffsetForLeaderEpochResponse(topics=results)


def _look_up(replicas: ReplicaManager, topic: str, wanted: OffsetForLeaderPartition) -> LeaderEpochEndOffset:
    try:
        partition = replicas.leader(topic, wanted.partition)
        partition.check_epoch(wanted.current_leader_epoch)
        epoch, end_offset = partition.log.leader_epochs.end_offset_for(
            wanted.leader_epoch, partition.log.log_end_offset
        )
    except BarnabasError as error:
        return LeaderEpochEndOffset(error_code=error_code(error), partition=wanted.partition)
    return LeaderEpochEndOffset(
        error_code=ErrorCode.NONE, partition=wanted.partition, leader_epoch=epoch, end_offset=end_offset
    )
