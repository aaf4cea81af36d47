"""OffsetFetch (key 9): return the committed offsets of a group.

A null list of topics requests all topics (version 2 and later). Version 3 adds a throttle time, version 5 leader
epochs, version 6 is the first flexible version. Version 7 can request stable offsets only (KIP-447), version 8 accepts
several groups (KIP-709), version 9 adds the member (KIP-848), version 10 names topics by id.
"""

from __future__ import annotations

from barnabas.protocol.declare import (
    BOOLEAN,
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
class OffsetFetchRequestTopic:
    name: str = field(STRING, until=7, default="")
    partition_indexes: list[int] = field(array(INT32), until=7, default_factory=list)


@struct
class OffsetFetchRequestTopics:
    name: str = field(STRING, since=8, until=9, default="", ignorable=True)
    topic_id: bytes = field(UUID, since=10, default=ZERO_UUID, ignorable=True)
    partition_indexes: list[int] = field(array(INT32), since=8, default_factory=list)


@struct
class OffsetFetchRequestGroup:
    group_id: str = field(STRING, since=8, default="")
    member_id: str | None = field(nullable(STRING, since=9), since=9, default=None, ignorable=True)
    member_epoch: int = field(INT32, since=9, default=-1, ignorable=True)
    topics: list[OffsetFetchRequestTopics] | None = field(
        nullable(array(OffsetFetchRequestTopics), since=8), since=8, default_factory=list
    )


@message(api_key=9, versions="1-10", flexible="6+")
class OffsetFetchRequest:
    group_id: str = field(STRING, until=7, default="")
    topics: list[OffsetFetchRequestTopic] | None = field(
        nullable(array(OffsetFetchRequestTopic), since=2), until=7, default_factory=list
    )
    groups: list[OffsetFetchRequestGroup] = field(array(OffsetFetchRequestGroup), since=8, default_factory=list)
    require_stable: bool = field(BOOLEAN, since=7, default=False)


@struct
class OffsetFetchResponsePartition:
    partition_index: int = field(INT32, until=7, default=0)
    committed_offset: int = field(INT64, until=7, default=0)
    committed_leader_epoch: int = field(INT32, since=5, until=7, default=-1, ignorable=True)
    metadata: str | None = field(nullable(STRING), until=7, default="")
    error_code: int = field(INT16, until=7, default=0)


@struct
class OffsetFetchResponseTopic:
    name: str = field(STRING, until=7, default="")
    partitions: list[OffsetFetchResponsePartition] = field(
        array(OffsetFetchResponsePartition), until=7, default_factory=list
    )


@struct
class OffsetFetchResponsePartitions:
    partition_index: int = field(INT32, since=8, default=0)
    committed_offset: int = field(INT64, since=8, default=0)
    committed_leader_epoch: int = field(INT32, since=8, default=-1, ignorable=True)
    metadata: str | None = field(nullable(STRING, since=8), since=8, default="")
    error_code: int = field(INT16, since=8, default=0)


@struct
class OffsetFetchResponseTopics:
    name: str = field(STRING, since=8, until=9, default="", ignorable=True)
    topic_id: bytes = field(UUID, since=10, default=ZERO_UUID, ignorable=True)
    partitions: list[OffsetFetchResponsePartitions] = field(
        array(OffsetFetchResponsePartitions), since=8, default_factory=list
    )


@struct
class OffsetFetchResponseGroup:
    group_id: str = field(STRING, since=8, default="")
    topics: list[OffsetFetchResponseTopics] = field(array(OffsetFetchResponseTopics), since=8, default_factory=list)
    error_code: int = field(INT16, since=8, default=0)


@message(api_key=9, versions="1-10", flexible="6+")
class OffsetFetchResponse:
    throttle_time_ms: int = field(INT32, since=3, default=0, ignorable=True)
    topics: list[OffsetFetchResponseTopic] = field(array(OffsetFetchResponseTopic), until=7, default_factory=list)
    error_code: int = field(INT16, since=2, until=7, default=0, ignorable=True)
    groups: list[OffsetFetchResponseGroup] = field(array(OffsetFetchResponseGroup), since=8, default_factory=list)
