"""Heartbeat (key 12): keep a member alive, and notify it of rebalances.

Version 3 adds static members, version 4 is the first flexible version.
"""

from __future__ import annotations

from barnabas.protocol.declare import INT16, INT32, STRING, field, message, nullable


@message(api_key=12, versions="0-4", flexible="4+")
class HeartbeatRequest:
    group_id: str = field(STRING)
    generation_id: int = field(INT32)
    member_id: str = field(STRING)
    group_instance_id: str | None = field(nullable(STRING, since=3), since=3, default=None)


@message(api_key=12, versions="0-4", flexible="4+")
class HeartbeatResponse:
    throttle_time_ms: int = field(INT32, since=1, default=0, ignorable=True)
    error_code: int = field(INT16)
