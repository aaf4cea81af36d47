"""ShareGroupDescribe (key 77): return share groups with their members and assignments (KIP-932).

Version 1 is the first stable version.
"""

from __future__ import annotations

from barnabas.protocol.declare import (
    BOOLEAN,
    INT16,
    INT32,
    STRING,
    UUID,
    array,
    field,
    message,
    nested,
    nullable,
    struct,
)
from barnabas.protocol.messages.metadata import OPERATIONS_UNKNOWN


@message(api_key=77, versions="1", flexible="0+")
class ShareGroupDescribeRequest:
    group_ids: list[str] = field(array(STRING))
    include_authorized_operations: bool = field(BOOLEAN, default=False)


@struct
class ShareGroupTopic:
    topic_id: bytes = field(UUID)
    topic_name: str = field(STRING)
    partitions: list[int] = field(array(INT32))


@struct
class ShareGroupAssignment:
    topic_partitions: list[ShareGroupTopic] = field(array(ShareGroupTopic), default_factory=list)


@struct
class DescribedShareGroupMember:
    member_id: str = field(STRING)
    rack_id: str | None = field(nullable(STRING), default=None)
    member_epoch: int = field(INT32)
    client_id: str = field(STRING)
    client_host: str = field(STRING)
    subscribed_topic_names: list[str] = field(array(STRING))
    assignment: ShareGroupAssignment = field(nested(ShareGroupAssignment), default_factory=ShareGroupAssignment)


@struct
class DescribedShareGroup:
    error_code: int = field(INT16)
    error_message: str | None = field(nullable(STRING), default=None)
    group_id: str = field(STRING)
    group_state: str = field(STRING)
    group_epoch: int = field(INT32)
    assignment_epoch: int = field(INT32)
    assignor_name: str = field(STRING)
    members: list[DescribedShareGroupMember] = field(array(DescribedShareGroupMember))
    authorized_operations: int = field(INT32, default=OPERATIONS_UNKNOWN)


@message(api_key=77, versions="1", flexible="0+")
class ShareGroupDescribeResponse:
    throttle_time_ms: int = field(INT32, default=0)
    groups: list[DescribedShareGroup] = field(array(DescribedShareGroup))
