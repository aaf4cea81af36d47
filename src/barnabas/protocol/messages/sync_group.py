"""SyncGroup (key 14): the leader sends the assignment of the group, and each member receives its partitions.

Version 3 adds static members (KIP-345), version 4 is the first flexible version, version 5 adds the protocol name
(KIP-559).
"""

from __future__ import annotations

from barnabas.protocol.declare import BYTES, INT16, INT32, STRING, array, field, message, nullable, struct


@struct
class SyncGroupRequestAssignment:
    member_id: str = field(STRING)
    assignment: bytes = field(BYTES)


@message(api_key=14, versions="0-5", flexible="4+")
class SyncGroupRequest:
    group_id: str = field(STRING)
    generation_id: int = field(INT32)
    member_id: str = field(STRING)
    group_instance_id: str | None = field(nullable(STRING, since=3), since=3, default=None)
    protocol_type: str | None = field(nullable(STRING, since=5), since=5, default=None, ignorable=True)
    protocol_name: str | None = field(nullable(STRING, since=5), since=5, default=None, ignorable=True)
    assignments: list[SyncGroupRequestAssignment] = field(array(SyncGroupRequestAssignment))


@message(api_key=14, versions="0-5", flexible="4+")
class SyncGroupResponse:
    throttle_time_ms: int = field(INT32, since=1, default=0, ignorable=True)
    error_code: int = field(INT16)
    protocol_type: str | None = field(nullable(STRING, since=5), since=5, default=None, ignorable=True)
    protocol_name: str | None = field(nullable(STRING, since=5), since=5, default=None, ignorable=True)
    assignment: bytes = field(BYTES)
