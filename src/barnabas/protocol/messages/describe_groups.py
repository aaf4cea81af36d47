"""DescribeGroups (key 15): return groups with their members and assignments.

Version 3 can return authorized operations (KIP-430), version 4 adds instance ids of static members (KIP-345), version 5
is the first flexible version. Version 6 returns an error for a group that does not exist (KIP-1043).
"""

from __future__ import annotations

from barnabas.protocol.declare import BOOLEAN, BYTES, INT16, INT32, STRING, array, field, message, nullable, struct
from barnabas.protocol.messages.metadata import OPERATIONS_UNKNOWN


@message(api_key=15, versions="0-6", flexible="5+")
class DescribeGroupsRequest:
    groups: list[str] = field(array(STRING))
    include_authorized_operations: bool = field(BOOLEAN, since=3, default=False)


@struct
class DescribedGroupMember:
    member_id: str = field(STRING)
    group_instance_id: str | None = field(nullable(STRING, since=4), since=4, default=None, ignorable=True)
    client_id: str = field(STRING)
    client_host: str = field(STRING)
    member_metadata: bytes = field(BYTES)
    member_assignment: bytes = field(BYTES)


@struct
class DescribedGroup:
    error_code: int = field(INT16)
    error_message: str | None = field(nullable(STRING, since=6), since=6, default=None)
    group_id: str = field(STRING)
    group_state: str = field(STRING)
    protocol_type: str = field(STRING)
    protocol_data: str = field(STRING)
    members: list[DescribedGroupMember] = field(array(DescribedGroupMember))
    authorized_operations: int = field(INT32, since=3, default=OPERATIONS_UNKNOWN)


@message(api_key=15, versions="0-6", flexible="5+")
class DescribeGroupsResponse:
    throttle_time_ms: int = field(INT32, since=1, default=0, ignorable=True)
    groups: list[DescribedGroup] = field(array(DescribedGroup))
