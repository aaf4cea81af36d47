"""SyncGroup, versions 0 to 5: the leader's assignment for everybody, each member's own for itself."""

from __future__ import annotations

from barnabas.broker.api import Context, serves
from barnabas.broker.group_shell import GroupShell
from barnabas.broker.handlers.join_group import GROUP_DATA_BYTES_MAX
from barnabas.groups.requests import SyncRequest
from barnabas.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse


@serves(SyncGroupRequest, ends_with_client=True, comes_in_crowds=True, bytes_max=GROUP_DATA_BYTES_MAX)
async def sync_group(groups: GroupShell, request: SyncGroupRequest, context: Context) -> SyncGroupResponse:
    """Wait for this member's assignment."""
    sync = SyncRequest(
        member_id=request.member_id,
        generation=request.generation_id,
        group_instance_id=request.group_instance_id,
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
        assignments={each.member_id: each.assignment for each in request.assignments},
    )
    result = await groups.sync(request.group_id, sync)
    return SyncGroupResponse(
        error_code=result.error,
        protocol_type=result.protocol_type,
        protocol_name=result.protocol_name,
        assignment=result.assignment,
    )
