"""AlterReplicaLogDirs, versions 1 and 2: move logs to other log directories of this broker (KIP-113).

The response to AlterReplicaLogDirs does not wait for the moves; DescribeLogDirs shows their progress. If the broker
does not have the replica yet, it returns REPLICA_NOT_AVAILABLE, like Kafka. It remembers the directory until the
replica is created.
"""

from __future__ import annotations

from barnabas.broker.log_moves import LogMoves
from barnabas.broker.pipeline.call import Call, Steps, is_pause_due, serves
from barnabas.model import TopicPartition
from barnabas.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)


@serves(AlterReplicaLogDirsRequest)
def alter_replica_log_dirs(
    moves: LogMoves, request: AlterReplicaLogDirsRequest, call: Call
) -> Steps[AlterReplicaLogDirsResponse]:
    """Start moving each log to the requested log directory."""
    results: dict[str, AlterReplicaLogDirTopicResult] = {}
    count = 0
    for wanted in request.dirs:
        for topic in wanted.topics:
            result = results.setdefault(topic.name, AlterReplicaLogDirTopicResult(topic_name=topic.name, partitions=[]))
            for number in topic.partitions:
                if is_pause_due(count):
                    yield
                count += 1
                code = moves.request(TopicPartition(topic.name, number), wanted.path)
                result.partitions.append(AlterReplicaLogDirPartitionResult(partition_index=number, error_code=code))
    return AlterReplicaLogDirsResponse(results=list(results.values()))
