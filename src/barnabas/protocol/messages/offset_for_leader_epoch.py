"""OffsetForLeaderEpoch (key 23): return the end offset of a leader epoch, to find the offset at which two logs diverge
(KIP-101).

Version 2 checks the current leader epoch of the requester (KIP-320), version 3 adds the replica id of the requester,
version 4 is the first flexible version.
"""

from __future__ import annotations

from barnabas.protocol.declare import INT16, INT32, INT64, STRING, array, field, message, struct

CONSUMER_REPLICA_ID = -2
"""The replica id of a requester that is not a follower, or that does not send its id."""


@struct
class OffsetForLeaderPartition:
    partition: int = field(INT32)
    current_leader_epoch: int = field(INT32, since=2, default=-1, ignorable=True)
    leader_epoch: int = field(INT32)


@struct
class OffsetForLeaderTopic:
    topic: str = field(STRING)
    partitions: list[OffsetForLeaderPartition] = field(array(OffsetForLeaderPartition))


@message(api_key=23, versions="2-4", flexible="4+")
class OffsetForLeaderEpochRequest:
    replica_id: int = field(INT32, since=3, default=CONSUMER_REPLICA_ID, ignorable=True)
    topics: list[OffsetForLeaderTopic] = field(array(OffsetForLeaderTopic))


@struct
class LeaderEpochEndOffset:
    error_code: int = field(INT16)
    partition: int = field(INT32)
    leader_epoch: int = field(INT32, since=1, default=-1, ignorable=True)
    end_offset: int = field(INT64, default=-1)


@struct
class OffsetForLeaderTopicResult:
    topic: str = field(STRING)
    partitions: list[LeaderEpochEndOffset] = field(array(LeaderEpochEndOffset))


@message(api_key=23, versions="2-4", flexible="4+")
class OffsetForLeaderEpochResponse:
    throttle_time_ms: int = field(INT32, since=2, default=0, ignorable=True)
    topics: list[OffsetForLeaderTopicResult] = field(array(OffsetForLeaderTopicResult))
