"""Heartbeat, versions 0 to 4: a member is alive, and hears whether its generation still is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.api import Context, serves
from barnabas.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

if TYPE_CHECKING:
    from barnabas.broker.broker import Broker


@serves(HeartbeatRequest, ends_with_client=True)
def heartbeat(broker: Broker, request: HeartbeatRequest, context: Context) -> HeartbeatResponse:
    """Note that a member is alive."""
    error = broker.groups.heartbeat(
        request.group_id, request.member_id, request.group_instance_id, request.generation_id
    )
    return HeartbeatResponse(error_code=error)
