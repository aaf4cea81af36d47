"""DescribeQuorum (key 55): return the replicas of the KRaft metadata log (KIP-595).

Version 1 adds two timestamps for each replica (KIP-836), version 2 adds error messages, the nodes, and the directory of
each replica (KIP-853).
"""

from __future__ import annotations

from barnabas.protocol.declare import (
    INT16,
    INT32,
    INT64,
    STRING,
    UINT16,
    UUID,
    ZERO_UUID,
    array,
    field,
    message,
    nullable,
    struct,
)


@struct
class DescribeQuorumPartition:
    partition_index: int = field(INT32)


@struct
class DescribeQuorumTopic:
    topic_name: str = field(STRING)
    partitions: list[DescribeQuorumPartition] = field(array(DescribeQuorumPartition))


@message(api_key=55, versions="0-2", flexible="0+")
class DescribeQuorumRequest:
    topics: list[DescribeQuorumTopic] = field(array(DescribeQuorumTopic))


@struct
class QuorumReplica:
    replica_id: int = field(INT32)
    replica_directory_id: bytes = field(UUID, since=2, default=ZERO_UUID)
    log_end_offset: int = field(INT64)
    last_fetch_timestamp: int = field(INT64, since=1, default=-1, ignorable=True)
    last_caught_up_timestamp: int = field(INT64, since=1, default=-1, ignorable=True)


@struct
class QuorumPartition:
    partition_index: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(nullable(STRING, since=2), since=2, default="", ignorable=True)
    leader_id: int = field(INT32)
    leader_epoch: int = field(INT32)
    high_watermark: int = field(INT64)
    current_voters: list[QuorumReplica] = field(array(QuorumReplica))
    observers: list[QuorumReplica] = field(array(QuorumReplica))


@struct
class QuorumTopic:
    topic_name: str = field(STRING)
    partitions: list[QuorumPartition] = field(array(QuorumPartition))


@struct
class QuorumListener:
    name: str = field(STRING, since=2, default="")
    host: str = field(STRING, since=2, default="")
    port: int = field(UINT16, since=2, default=0)


@struct
class QuorumNode:
    node_id: int = field(INT32, since=2, default=0)
    listeners: list[QuorumListener] = field(array(QuorumListener), since=2, default_factory=list)


@message(api_key=55, versions="0-2", flexible="0+")
class DescribeQuorumResponse:
    error_code: int = field(INT16)
    error_message: str | None = field(nullable(STRING, since=2), since=2, default="", ignorable=True)
    topics: list[QuorumTopic] = field(array(QuorumTopic))
    nodes: list[QuorumNode] = field(array(QuorumNode), since=2, default_factory=list)
