"""Heartbeat, versions 0 to 4: extend a member's session, and return whether its generation is current."""

from __future__ import annotations

from barnabas.broker.group_service import GroupService
from barnabas.broker.pipeline.call import Call, serves
from barnabas.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


@serves(HeartbeatRequest, ends_with_client=True)
def heartbeat(groups: GroupService, request: HeartbeatRequest, call: Call) -> HeartbeatResponse:
    """Extend the session of a member."""
    error = groups.heartbeat(request.group_id, request.member_id, request.group_instance_id, request.generation_id)
    return HeartbeatResponse(error_code=error)
