"""LeaveGroup (key 13): remove members from a group.

Version 3 accepts several members (KIP-345), version 4 is the first flexible version, version 5 adds a reason (KIP-800).
"""

from __future__ import annotations

from barnabas.protocol.declare import INT16, INT32, STRING, array, field, message, nullable, struct


@struct
class MemberIdentity:
    member_id: str = field(STRING, since=3, default="")
    group_instance_id: str | None = field(nullable(STRING, since=3), since=3, default=None)
    reason: str | None = field(nullable(STRING, since=5), since=5, default=None, ignorable=True)


@message(api_key=13, versions="0-5", flexible="4+")
class LeaveGroupRequest:
    group_id: str = field(STRING)
    member_id: str = field(STRING, until=2, default="")
    members: list[MemberIdentity] = field(array(MemberIdentity), since=3, default_factory=list)


@struct
class MemberResponse:
    member_id: str = field(STRING, since=3, default="")
    group_instance_id: str | None = field(nullable(STRING, since=3), since=3, default="")
    error_code: int = field(INT16, since=3, default=0)


@message(api_key=13, versions="0-5", flexible="4+")
class LeaveGroupResponse:
    throttle_time_ms: int = field(INT32, since=1, default=0, ignorable=True)
    error_code: int = field(INT16)
    members: list[MemberResponse] = field(array(MemberResponse), since=3, default_factory=list)
