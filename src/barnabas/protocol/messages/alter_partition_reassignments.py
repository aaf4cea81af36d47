"""AlterPartitionReassignments (key 45): move partitions to other brokers (KIP-455).

Version 1 can reject a change of the replication factor (KIP-860).
"""

from __future__ import annotations

from barnabas.protocol.declare import BOOLEAN, INT16, INT32, STRING, array, field, message, nullable, struct


@struct
class ReassignablePartition:
    partition_index: int = field(INT32)
    replicas: list[int] | None = field(nullable(array(INT32)), default=None)


@struct
class ReassignableTopic:
    name: str = field(STRING)
    partitions: list[ReassignablePartition] = field(array(ReassignablePartition))


@message(api_key=45, versions="0-1", flexible="0+")
class AlterPartitionReassignmentsRequest:
    timeout_ms: int = field(INT32, default=60_000)
    allow_replication_factor_change: bool = field(BOOLEAN, since=1, default=True)
    topics: list[ReassignableTopic] = field(array(ReassignableTopic))


@struct
class ReassignablePartitionResponse:
    partition_index: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(nullable(STRING))


@struct
class ReassignableTopicResponse:
    name: str = field(STRING)
    partitions: list[ReassignablePartitionResponse] = field(array(ReassignablePartitionResponse))


@message(api_key=45, versions="0-1", flexible="0+")
class AlterPartitionReassignmentsResponse:
    throttle_time_ms: int = field(INT32, default=0)
    allow_replication_factor_change: bool = field(BOOLEAN, since=1, default=True, ignorable=True)
    error_code: int = field(INT16)
    error_message: str | None = field(nullable(STRING))
    responses: list[ReassignableTopicResponse] = field(array(ReassignableTopicResponse))
