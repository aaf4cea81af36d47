"""Heartbeat, versions 0 to 4: a member says that it is alive, and learns whether its generation is still the current
one."""

from __future__ import annotations

from barnabas.broker.api import Context, serves
from barnabas.broker.group_shell import GroupShell
from barnabas.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


@serves(HeartbeatRequest, ends_with_client=True)
def heartbeat(groups: GroupShell, request: HeartbeatRequest, context: Context) -> HeartbeatResponse:
    """Note that a member is alive."""
    error = groups.heartbeat(request.group_id, request.member_id, request.group_instance_id, request.generation_id)
    return HeartbeatResponse(error_code=error)
