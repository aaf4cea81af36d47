"""OffsetCommit (key 8): commit offsets of a group.

Version 3 returns a throttle time, version 5 drops the retention time, version 6 adds leader epochs, version 7 static
members (KIP-345), version 8 is the first flexible version. Version 9 is the first version for the consumer group
protocol of KIP-848, version 10 names topics by id.
"""

from __future__ import annotations

from barnabas.protocol.declare import (
    INT16,
    INT32,
    INT64,
    STRING,
    UUID,
    ZERO_UUID,
    array,
    field,
    message,
    nullable,
    struct,
)


@struct
class OffsetCommitRequestPartition:
    partition_index: int = field(INT32)
    committed_offset: int = field(INT64)
    committed_leader_epoch: int = field(INT32, since=6, default=-1, ignorable=True)
    committed_metadata: str | None = field(nullable(STRING))


@struct
class OffsetCommitRequestTopic:
    name: str = field(STRING, until=9, default="", ignorable=True)
    topic_id: bytes = field(UUID, since=10, default=ZERO_UUID, ignorable=True)
    partitions: list[OffsetCommitRequestPartition] = field(array(OffsetCommitRequestPartition))


@message(api_key=8, versions="2-10", flexible="8+")
class OffsetCommitRequest:
    group_id: str = field(STRING)
    generation_id_or_member_epoch: int = field(INT32, since=1, default=-1, ignorable=True)
    member_id: str = field(STRING, since=1, default="", ignorable=True)
    group_instance_id: str | None = field(nullable(STRING, since=7), since=7, default=None)
    retention_time_ms: int = field(INT64, since=2, until=4, default=-1, ignorable=True)
    topics: list[OffsetCommitRequestTopic] = field(array(OffsetCommitRequestTopic))


@struct
class OffsetCommitResponsePartition:
    partition_index: int = field(INT32)
    error_code: int = field(INT16)


@struct
class OffsetCommitResponseTopic:
    name: str = field(STRING, until=9, default="", ignorable=True)
    topic_id: bytes = field(UUID, since=10, default=ZERO_UUID, ignorable=True)
    partitions: list[OffsetCommitResponsePartition] = field(array(OffsetCommitResponsePartition))


@message(api_key=8, versions="2-10", flexible="8+")
class OffsetCommitResponse:
    throttle_time_ms: int = field(INT32, since=3, default=0, ignorable=True)
    topics: list[OffsetCommitResponseTopic] = field(array(OffsetCommitResponseTopic))
