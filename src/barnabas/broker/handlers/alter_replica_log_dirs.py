"""AlterReplicaLogDirs, versions 1 and 2: move logs to other data folders of this broker (KIP-113).

The answer comes before the logs are moved; DescribeLogDirs tells how far that is. For a replica that is not here yet
the choice is remembered until it is made, and the answer is REPLICA_NOT_AVAILABLE, as Kafka's.
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
    """Have each log moved to its folder."""
    results: dict[str, AlterReplicaLogDirTopicResult] = {}
    count = 0
    for wanted in request.dirs:
        for topic in wanted.topics:
            told = results.setdefault(topic.name, AlterReplicaLogDirTopicResult(topic_name=topic.name, partitions=[]))
            for number in topic.partitions:
                if is_pause_due(count):
                    yield
                count += 1
                code = moves.request(TopicPartition(topic.name, number), wanted.path)
                told.partitions.append(AlterReplicaLogDirPartitionResult(partition_index=number, error_code=code))
    return AlterReplicaLogDirsResponse(results=list(results.values()))
