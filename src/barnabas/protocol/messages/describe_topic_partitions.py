"""DescribeTopicPartitions (key 75): return topics and partitions in pages; a cursor selects the next page (KIP-966)."""

from __future__ import annotations

from barnabas.protocol.declare import (
    BOOLEAN,
    INT16,
    INT32,
    STRING,
    UUID,
    ZERO_UUID,
    array,
    field,
    message,
    nested,
    nullable,
    struct,
)
from barnabas.protocol.messages.metadata import OPERATIONS_UNKNOWN


@struct
class TopicRequest:
    name: str = field(STRING)


@struct
class Cursor:
    topic_name: str = field(STRING)
    partition_index: int = field(INT32)


@message(api_key=75, versions="0", flexible="0+")
class DescribeTopicPartitionsRequest:
    topics: list[TopicRequest] = field(array(TopicRequest))
    response_partition_limit: int = field(INT32, default=2000)
    cursor: Cursor | None = field(nullable(nested(Cursor)), default=None)


@struct
class DescribeTopicPartitionsResponsePartition:
    error_code: int = field(INT16)
    partition_index: int = field(INT32)
    leader_id: int = field(INT32)
    leader_epoch: int = field(INT32, default=-1, ignorable=True)
    replica_nodes: list[int] = field(array(INT32))
    isr_nodes: list[int] = field(array(INT32))
    eligible_leader_replicas: list[int] | None = field(nullable(array(INT32)), default=None)
    last_known_elr: list[int] | None = field(nullable(array(INT32)), default=None)
    offline_replicas: list[int] = field(array(INT32), default_factory=list, ignorable=True)


@struct
class DescribeTopicPartitionsResponseTopic:
    error_code: int = field(INT16)
    name: str | None = field(nullable(STRING))
    topic_id: bytes = field(UUID, default=ZERO_UUID, ignorable=True)
    is_internal: bool = field(BOOLEAN, default=False, ignorable=True)
    partitions: list[DescribeTopicPartitionsResponsePartition] = field(array(DescribeTopicPartitionsResponsePartition))
    topic_authorized_operations: int = field(INT32, default=OPERATIONS_UNKNOWN)


@message(api_key=75, versions="0", flexible="0+")
class DescribeTopicPartitionsResponse:
    throttle_time_ms: int = field(INT32, default=0, ignorable=True)
    topics: list[DescribeTopicPartitionsResponseTopic] = field(array(DescribeTopicPartitionsResponseTopic))
    next_cursor: Cursor | None = field(nullable(nested(Cursor)), default=None)
