"""Fetch (key 1): read record batches from partitions, with long poll.

Version 4 is the first version with record batches of format 2, version 5 adds the log start offset, version 7 fetch
sessions (KIP-227). Version 9 adds the reader's current leader epoch (KIP-320), version 11 the reader's rack (KIP-392).
Version 12 is the first flexible version and adds the epoch of the last fetched record (KIP-595). Version 13 names
topics by id (KIP-516), version 15 moves the replica id into a tagged field (KIP-903), version 16 can return new leaders
(KIP-951). Versions 17 and 18 are for followers: they add the follower's log directory (KIP-853) and its high watermark
(KIP-1166).
"""

from __future__ import annotations

from typing import Any

from barnabas.protocol.declare import (
    INT8,
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

INT32_MAX = 0x7FFFFFFF
INT64_MAX = 0x7FFFFFFFFFFFFFFF


@struct
class FetchPartition:
    partition: int = field(INT32)
    current_leader_epoch: int = field(INT32, since=9, default=-1, ignorable=True)
    fetch_offset: int = field(INT64)
    last_fetched_epoch: int = field(INT32, since=12, default=-1)
    log_start_offset: int = field(INT64, since=5, default=-1, ignorable=True)
    partition_max_bytes: int = field(INT32)
    replica_directory_id: bytes = field(UUID, since=17, default=ZERO_UUID, ignorable=True, tag=0)
    high_watermark: int = field(INT64, since=18, default=INT64_MAX, ignorable=True, tag=1)


@struct
class FetchTopic:
    topic: str = field(STRING, until=12, default="", ignorable=True)
    topic_id: bytes = field(UUID, since=13, default=ZERO_UUID, ignorable=True)
    partitions: list[FetchPartition] = field(array(FetchPartition))


@struct
class ForgottenTopic:
    topic: str = field(STRING, since=7, until=12, default="", ignorable=True)
    topic_id: bytes = field(UUID, since=13, default=ZERO_UUID, ignorable=True)
    partitions: list[int] = field(array(INT32), since=7, default_factory=list)


@struct
class ReplicaState:
    replica_id: int = field(INT32, since=15, default=-1)
    replica_epoch: int = field(INT64, since=15, default=-1)


@message(api_key=1, versions="4-18", flexible="12+")
class FetchRequest:
    cluster_id: str | None = field(nullable(STRING, since=12), since=12, default=None, ignorable=True, tag=0)
    replica_id: int = field(INT32, until=14, default=-1)
    replica_state: ReplicaState = field(nested(ReplicaState), since=15, default_factory=ReplicaState, tag=1)
    max_wait_ms: int = field(INT32)
    min_bytes: int = field(INT32)
    max_bytes: int = field(INT32, since=3, default=INT32_MAX, ignorable=True)
    isolation_level: int = field(INT8, since=4, default=0, ignorable=True)
    session_id: int = field(INT32, since=7, default=0, ignorable=True)
    session_epoch: int = field(INT32, since=7, default=-1, ignorable=True)
    topics: list[FetchTopic] = field(array(FetchTopic))
    forgotten_topics_data: list[ForgottenTopic] = field(array(ForgottenTopic), since=7, default_factory=list)
    rack_id: str = field(STRING, since=11, default="", ignorable=True)


@struct
class EpochEndOffset:
    epoch: int = field(INT32, since=12, default=-1)
    end_offset: int = field(INT64, since=12, default=-1)


@struct
class LeaderIdAndEpoch:
    leader_id: int = field(INT32, since=12, default=-1)
    leader_epoch: int = field(INT32, since=12, default=-1)


@struct
class SnapshotId:
    end_offset: int = field(INT64, default=-1)
    epoch: int = field(INT32, default=-1)


@struct
class AbortedTransaction:
    producer_id: int = field(INT64, since=4, default=0)
    first_offset: int = field(INT64, since=4, default=0)


@struct
class PartitionData:
    partition_index: int = field(INT32)
    error_code: int = field(INT16)
    high_watermark: int = field(INT64)
    last_stable_offset: int = field(INT64, since=4, default=-1, ignorable=True)
    log_start_offset: int = field(INT64, since=5, default=-1, ignorable=True)
    diverging_epoch: EpochEndOffset = field(nested(EpochEndOffset), since=12, default_factory=EpochEndOffset, tag=0)
    current_leader: LeaderIdAndEpoch = field(
        nested(LeaderIdAndEpoch), since=12, default_factory=LeaderIdAndEpoch, tag=1
    )
    snapshot_id: SnapshotId = field(nested(SnapshotId), since=12, default_factory=SnapshotId, tag=2)
    aborted_transactions: list[AbortedTransaction] | None = field(
        nullable(array(AbortedTransaction), since=4), since=4, default_factory=list, ignorable=True
    )
    preferred_read_replica: int = field(INT32, since=11, default=-1)
    records: Any = field(nullable(RECORDS))


@struct
class FetchableTopicResponse:
    topic: str = field(STRING, until=12, default="", ignorable=True)
    topic_id: bytes = field(UUID, since=13, default=ZERO_UUID, ignorable=True)
    partitions: list[PartitionData] = field(array(PartitionData))


@struct
class NodeEndpoint:
    node_id: int = field(INT32, since=16, default=0)
    host: str = field(STRING, since=16, default="")
    port: int = field(INT32, since=16, default=0)
    rack: str | None = field(nullable(STRING, since=16), since=16, default=None)


@message(api_key=1, versions="4-18", flexible="12+")
class FetchResponse:
    throttle_time_ms: int = field(INT32, since=1, default=0, ignorable=True)
    error_code: int = field(INT16, since=7, default=0, ignorable=True)
    session_id: int = field(INT32, since=7, default=0)
    responses: list[FetchableTopicResponse] = field(array(FetchableTopicResponse))
    node_endpoints: list[NodeEndpoint] = field(array(NodeEndpoint), since=16, default_factory=list, tag=0)
