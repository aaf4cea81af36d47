"""The records of `__consumer_offsets`: committed offsets, and groups with their members.

Key and value begin with an int16. In a value, it is the version. In a key, it is the record type: 0 and 1 for an
offset, 2 for a group. Other types are for group protocols that Barnabas does not support. The declarations are Kafka's
(`group-coordinator/src/main/resources/common/message`). KIP-915 made version 4 of the values flexible, so older brokers
skip new fields, such as the topic id of an offset.
"""

from __future__ import annotations

from barnabas.protocol.declare import (
    BYTES,
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


@message(versions="0-1")
class OffsetCommitKey:
    group: str = field(STRING)
    topic: str = field(STRING)
    partition: int = field(INT32)


@message(versions="0-4", flexible="4+")
class OffsetCommitValue:
    offset: int = field(INT64)
    leader_epoch: int = field(INT32, since=3, default=-1, ignorable=True)
    metadata: str = field(STRING)
    commit_timestamp: int = field(INT64)
    expire_timestamp: int = field(INT64, since=1, until=1, default=-1, ignorable=True)
    topic_id: bytes = field(UUID, since=4, default=ZERO_UUID, ignorable=True, tag=0)


@message(versions="2")
class GroupMetadataKey:
    group: str = field(STRING)


@struct
class MemberMetadata:
    member_id: str = field(STRING)
    group_instance_id: str | None = field(nullable(STRING, since=3), since=3, default=None, ignorable=True)
    client_id: str = field(STRING)
    client_host: str = field(STRING)
    rebalance_timeout: int = field(INT32, since=1, default=0, ignorable=True)
    session_timeout: int = field(INT32)
    subscription: bytes = field(BYTES)
    assignment: bytes = field(BYTES)


@message(versions="0-4", flexible="4+")
class GroupMetadataValue:
    protocol_type: str = field(STRING)
    generation: int = field(INT32)
    protocol: str | None = field(nullable(STRING))
    leader: str | None = field(nullable(STRING))
    current_state_timestamp: int = field(INT64, since=2, default=-1, ignorable=True)
    members: list[MemberMetadata] = field(array(MemberMetadata))
