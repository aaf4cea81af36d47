"""Metadata (key 3): return the brokers, and the topics with their partitions and leaders.

In version 0, an empty list of topics requests all topics. In later versions, null requests all topics, and an empty
list requests no topic. Version 4 can forbid auto-creation, version 7 adds leader epochs, version 8 authorized
operations (KIP-430), version 9 is the first flexible version. Version 10 adds topic ids (KIP-516), version 11 drops the
authorized operations of the cluster, version 12 can name topics by id, version 13 adds an error code for the whole
response (KIP-1102).
"""

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
    nullable,
    struct,
)

OPERATIONS_UNKNOWN = -(2**31)
"""The value for authorized operations that were not requested, or that the broker does not support."""


@struct
class MetadataRequestTopic:
    topic_id: bytes = field(UUID, since=10, default=ZERO_UUID, ignorable=True)
    name: str | None = field(nullable(STRING, since=10))


@message(api_key=3, versions="0-13", flexible="9+")
class MetadataRequest:
    topics: list[MetadataRequestTopic] | None = field(nullable(array(MetadataRequestTopic), since=1))
    allow_auto_topic_creation: bool = field(BOOLEAN, since=4, default=True)
    include_cluster_authorized_operations: bool = field(BOOLEAN, since=8, until=10, default=False)
    include_topic_authorized_operations: bool = field(BOOLEAN, since=8, default=False)


@struct
class MetadataResponseBroker:
    node_id: int = field(INT32)
    host: str = field(STRING)
    port: int = field(INT32)
    rack: str | None = field(nullable(STRING, since=1), since=1, default=None, ignorable=True)


@struct
class MetadataResponsePartition:
    error_code: int = field(INT16)
    partition_index: int = field(INT32)
    leader_id: int = field(INT32)
    leader_epoch: int = field(INT32, since=7, default=-1, ignorable=True)
    replica_nodes: list[int] = field(array(INT32))
    isr_nodes: list[int] = field(array(INT32))
    offline_replicas: list[int] = field(array(INT32), since=5, default_factory=list, ignorable=True)


@struct
class MetadataResponseTopic:
    error_code: int = field(INT16)
    name: str | None = field(nullable(STRING, since=12))
    topic_id: bytes = field(UUID, since=10, default=ZERO_UUID, ignorable=True)
    is_internal: bool = field(BOOLEAN, since=1, default=False, ignorable=True)
    partitions: list[MetadataResponsePartition] = field(array(MetadataResponsePartition))
    topic_authorized_operations: int = field(INT32, since=8, default=OPERATIONS_UNKNOWN)


@message(api_key=3, versions="0-13", flexible="9+")
class MetadataResponse:
    throttle_time_ms: int = field(INT32, since=3, default=0, ignorable=True)
    brokers: list[MetadataResponseBroker] = field(array(MetadataResponseBroker))
    cluster_id: str | None = field(nullable(STRING, since=2), since=2, default=None, ignorable=True)
    controller_id: int = field(INT32, since=1, default=-1, ignorable=True)
    topics: list[MetadataResponseTopic] = field(array(MetadataResponseTopic))
    cluster_authorized_operations: int = field(INT32, since=8, until=10, default=OPERATIONS_UNKNOWN)
    error_code: int = field(INT16, since=13, default=0, ignorable=True)
