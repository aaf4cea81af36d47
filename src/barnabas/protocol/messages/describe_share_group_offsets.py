"""DescribeShareGroupOffsets (key 90): return the start offsets of share groups in partitions (KIP-932).

Version 1 adds the lag (KIP-1226).
"""

from __future__ import annotations

from barnabas.protocol.declare import INT16, INT32, INT64, STRING, UUID, array, field, message, nullable, struct


@struct
class ShareGroupOffsetsRequestTopic:
    topic_name: str = field(STRING)
    partitions: list[int] = field(array(INT32))


@struct
class ShareGroupOffsetsRequestGroup:
    group_id: str = field(STRING)
    topics: list[ShareGroupOffsetsRequestTopic] | None = field(nullable(array(ShareGroupOffsetsRequestTopic)))


@message(api_key=90, versions="0-1", flexible="0+")
class DescribeShareGroupOffsetsRequest:
    groups: list[ShareGroupOffsetsRequestGroup] = field(array(ShareGroupOffsetsRequestGroup))


@struct
class ShareGroupOffsetsPartition:
    partition_index: int = field(INT32)
    start_offset: int = field(INT64)
    leader_epoch: int = field(INT32)
    lag: int = field(INT64, since=1, default=-1, ignorable=True)
    error_code: int = field(INT16)
    error_message: str | None = field(nullable(STRING), default=None)


@struct
class ShareGroupOffsetsTopic:
    topic_name: str = field(STRING)
    topic_id: bytes = field(UUID)
    partitions: list[ShareGroupOffsetsPartition] = field(array(ShareGroupOffsetsPartition))


@struct
class ShareGroupOffsetsGroup:
    group_id: str = field(STRING)
    topics: list[ShareGroupOffsetsTopic] = field(array(ShareGroupOffsetsTopic))
    error_code: int = field(INT16)
    error_message: str | None = field(nullable(STRING), default=None)


@message(api_key=90, versions="0-1", flexible="0+")
class DescribeShareGroupOffsetsResponse:
    throttle_time_ms: int = field(INT32, default=0)
    groups: list[ShareGroupOffsetsGroup] = field(array(ShareGroupOffsetsGroup))
