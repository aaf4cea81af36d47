"""Produce (key 0): append record batches to partitions.

Versions 0 to 2 are for older message formats. They are declared only so that the broker can respond with an error
(KAFKA-18659). Version 3 is the first version with record batches of format 2, and adds transactional ids. Version 5
returns the log start offset, version 8 errors of individual records (KIP-467), version 9 is the first flexible version,
version 10 can return new leaders (KIP-951). Versions 11 and 12 are for transactions (KIP-890), version 13 names topics
by id (KIP-516).
"""

from __future__ import annotations

from typing import Any

from barnabas.protocol.declare import (
    INT16,
    INT32,
    INT64,
    RECORDS,
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


@struct
class PartitionProduceData:
    index: int = field(INT32)
    records: Any = field(nullable(RECORDS))


@struct
class TopicProduceData:
    name: str = field(STRING, until=12, default="", ignorable=True)
    topic_id: bytes = field(UUID, since=13, default=ZERO_UUID, ignorable=True)
    partition_data: list[PartitionProduceData] = field(array(PartitionProduceData))


@message(api_key=0, versions="0-13", flexible="9+")
class ProduceRequest:
    transactional_id: str | None = field(nullable(STRING, since=3), since=3, default=None)
    acks: int = field(INT16)
    timeout_ms: int = field(INT32)
    topic_data: list[TopicProduceData] = field(array(TopicProduceData))


@struct
class BatchIndexAndErrorMessage:
    batch_index: int = field(INT32, since=8, default=0)
    batch_index_error_message: str | None = field(nullable(STRING, since=8), since=8, default=None)


@struct
class LeaderIdAndEpoch:
    leader_id: int = field(INT32, since=10, default=-1)
    leader_epoch: int = field(INT32, since=10, default=-1)


@struct
class PartitionProduceResponse:
    index: int = field(INT32)
    error_code: int = field(INT16)
    base_offset: int = field(INT64)
    log_append_time_ms: int = field(INT64, since=2, default=-1, ignorable=True)
    log_start_offset: int = field(INT64, since=5, default=-1, ignorable=True)
    record_errors: list[BatchIndexAndErrorMessage] = field(
        array(BatchIndexAndErrorMessage), since=8, default_factory=list, ignorable=True
    )
    error_message: str | None = field(nullable(STRING, since=8), since=8, default=None, ignorable=True)
    current_leader: LeaderIdAndEpoch = field(
        nested(LeaderIdAndEpoch), since=10, default_factory=LeaderIdAndEpoch, tag=0
    )


@struct
class TopicProduceResponse:
    name: str = field(STRING, until=12, default="", ignorable=True)
    topic_id: bytes = field(UUID, since=13, default=ZERO_UUID, ignorable=True)
    partition_responses: list[PartitionProduceResponse] = field(array(PartitionProduceResponse))


@struct
class NodeEndpoint:
    node_id: int = field(INT32, since=10, default=0)
    host: str = field(STRING, since=10, default="")
    port: int = field(INT32, since=10, default=0)
    rack: str | None = field(nullable(STRING, since=10), since=10, default=None)


@message(api_key=0, versions="0-13", flexible="9+")
class ProduceResponse:
    responses: list[TopicProduceResponse] = field(array(TopicProduceResponse))
    throttle_time_ms: int = field(INT32, since=1, default=0, ignorable=True)
    node_endpoints: list[NodeEndpoint] = field(array(NodeEndpoint), since=10, default_factory=list, tag=0)
