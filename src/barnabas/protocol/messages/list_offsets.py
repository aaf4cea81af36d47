"""ListOffsets (key 2): the offset of a timestamp, or of an end of a partition.

Version 1 is the first that answers with one offset, 2 adds isolation levels, 4 leader epochs (KIP-320), 6 is
flexible, 7 knows the timestamp -3 (KIP-734). The later ones belong to tiered storage: 8 knows -4 (KIP-405), 9 knows
-5 (KIP-1005), 10 has a time limit (KIP-1075), 11 knows -6 (KIP-1023).
"""

from __future__ import annotations

from barnabas.protocol.declare import INT8, INT16, INT32, INT64, STRING, array, field, message, struct

LATEST_TIMESTAMP = -1
"""Asks for the high watermark (the last stable offset at read_committed)."""

EARLIEST_TIMESTAMP = -2
"""Asks for the log start offset."""

MAX_TIMESTAMP = -3
"""Asks for the offset of the record with the greatest timestamp (version 7)."""

EARLIEST_LOCAL_TIMESTAMP = -4
"""Asks for the first offset that is on the broker's own disk (version 8)."""

LATEST_TIERED_TIMESTAMP = -5
"""Asks for the last offset that is in tiered storage (version 9)."""

EARLIEST_PENDING_UPLOAD_TIMESTAMP = -6
"""Asks for the first offset that tiered storage does not have yet (version 11)."""


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
