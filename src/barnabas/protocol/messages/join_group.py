"""JoinGroup (key 11): join the next generation of a group.

Version 1 adds a rebalance timeout. Since version 4, a new member must repeat the request with the member id that it
received (KIP-394). Version 5 adds static members (KIP-345), version 6 is the first flexible version, version 7 returns
the protocol type (KIP-559), version 8 adds a reason (KIP-800). In version 9, the response to a rejoining leader can
skip the assignment (KIP-814).
"""

from __future__ import annotations

from barnabas.protocol.declare import BOOLEAN, BYTES, INT16, INT32, STRING, array, field, message, nullable, struct


@struct
class JoinGroupRequestProtocol:
    name: str = field(STRING)
    metadata: bytes = field(BYTES)


@message(api_key=11, versions="0-9", flexible="6+")
class JoinGroupRequest:
    group_id: str = field(STRING)
    session_timeout_ms: int = field(INT32)
    rebalance_timeout_ms: int = field(INT32, since=1, default=-1, ignorable=True)
    member_id: str = field(STRING)
    group_instance_id: str | None = field(nullable(STRING, since=5), since=5, default=None)
    protocol_type: str = field(STRING)
    protocols: list[JoinGroupRequestProtocol] = field(array(JoinGroupRequestProtocol))
    reason: str | None = field(nullable(STRING, since=8), since=8, default=None, ignorable=True)


@struct
class JoinGroupResponseMember:
    member_id: str = field(STRING)
    group_instance_id: str | None = field(nullable(STRING, since=5), since=5, default=None, ignorable=True)
    metadata: bytes = field(BYTES)


@message(api_key=11, versions="0-9", flexible="6+")
class JoinGroupResponse:
    throttle_time_ms: int = field(INT32, since=2, default=0, ignorable=True)
    error_code: int = field(INT16)
    generation_id: int = field(INT32, default=-1)
    protocol_type: str | None = field(nullable(STRING, since=7), since=7, default=None, ignorable=True)
    protocol_name: str | None = field(nullable(STRING, since=7))
    leader: str = field(STRING)
    skip_assignment: bool = field(BOOLEAN, since=9, default=False)
    member_id: str = field(STRING)
    members: list[JoinGroupResponseMember] = field(array(JoinGroupResponseMember))
