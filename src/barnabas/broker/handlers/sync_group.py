"""SyncGroup, versions 0 to 5: the group leader sends all assignments, and each member gets its assignment.

While a request waits, its group keeps the assignments and counts their size. The request itself is freed.
"""

from __future__ import annotations

from collections.abc import Awaitable

from barnabas.broker.group_service import GroupService
from barnabas.broker.handlers.join_group import GROUP_DATA_BYTES_MAX
from barnabas.broker.pipeline.call import Call, LaterReply, Reply, serves
from barnabas.groups.requests import SyncRequest
from barnabas.groups.results import SyncResult
from barnabas.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse


@serves(SyncGroupRequest, ends_with_client=True, burst_prone=True, bytes_max=GROUP_DATA_BYTES_MAX)
def sync_group(groups: GroupService, request: SyncGroupRequest, call: Call) -> Reply:
    """Return this member's assignment when it is available."""
    sync = SyncRequest(
        member_id=request.member_id,
        generation=request.generation_id,
        group_instance_id=request.group_instance_id,
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
        assignments={each.member_id: each.assignment for each in request.assignments},
    )
    return LaterReply(_respond_later(groups.sync(request.group_id, sync)), kept_bytes=0)


async def _respond_later(syncing: Awaitable[SyncResult]) -> SyncGroupResponse:
    result = await syncing
    return SyncGroupResponse(
        error_code=result.error,
        protocol_type=result.protocol_type,
        protocol_name=result.protocol_name,
        assignment=result.assignment,
    )
