"""ListOffsets (key 2): return the offset for a timestamp, or the first or last offset of a partition.

Version 1 is the first version that returns a single offset. Version 2 adds isolation levels, version 4 leader epochs
(KIP-320), version 6 is the first flexible version, version 7 supports the timestamp -3 (KIP-734). The later versions
are for tiered storage: 8 supports -4 (KIP-405), 9 supports -5 (KIP-1005), 10 adds a timeout (KIP-1075), 11 supports -6
(KIP-1023).
"""

from __future__ import annotations

from barnabas.protocol.declare import INT8, INT16, INT32, INT64, STRING, array, field, message, struct

LATEST_TIMESTAMP = -1
"""The timestamp that requests the high watermark; with read_committed, the last stable offset."""

EARLIEST_TIMESTAMP = -2
"""The timestamp that requests the log start offset."""

MAX_TIMESTAMP = -3
"""The timestamp that requests the offset of the record with the greatest timestamp (version 7)."""

EARLIEST_LOCAL_TIMESTAMP = -4
"""The timestamp that requests the first offset on the broker's own disk (version 8)."""

LATEST_TIERED_TIMESTAMP = -5
"""The timestamp that requests the last offset in tiered storage (version 9)."""

EARLIEST_PENDING_UPLOAD_TIMESTAMP = -6
"""The timestamp that requests the first offset that is not yet in tiered storage (version 11)."""


@struct
class ListOffsetsPartition:
    partition_index: int = field(INT32)
    current_leader_epoch: int = field(INT32, since=4, default=-1, ignorable=True)
    timestamp: int = field(INT64)


@struct
class ListOffsetsTopic:
    name: str = field(STRING)
    partitions: list[ListOffsetsPartition] = field(array(ListOffsetsPartition))


@message(api_key=2, versions="1-11", flexible="6+")
class ListOffsetsRequest:
    replica_id: int = field(INT32)
    isolation_level: int = field(INT8, since=2, default=0)
    topics: list[ListOffsetsTopic] = field(array(ListOffsetsTopic))
    timeout_ms: int = field(INT32, since=10, default=0, ignorable=True)


@struct
class ListOffsetsPartitionResponse:
    partition_index: int = field(INT32)
    error_code: int = field(INT16)
    timestamp: int = field(INT64, since=1, default=-1)
    offset: int = field(INT64, since=1, default=-1)
    leader_epoch: int = field(INT32, since=4, default=-1)


@struct
class ListOffsetsTopicResponse:
    name: str = field(STRING)
    partitions: list[ListOffsetsPartitionResponse] = field(array(ListOffsetsPartitionResponse))


@message(api_key=2, versions="1-11", flexible="6+")
class ListOffsetsResponse:
    throttle_time_ms: int = field(INT32, since=2, default=0, ignorable=True)
    topics: list[ListOffsetsTopicResponse] = field(array(ListOffsetsTopicResponse))
