"""JoinGroup, versions 0 to 9: add a member to a group (`barnabas.groups.group`).

The join reason (version 8) is ignored. While a join waits, the group keeps the member's metadata and counts its size
(`barnabas.groups.memory`). The request itself is freed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TYPE_CHECKING

from barnabas.broker.group_service import GroupService
from barnabas.broker.pipeline.call import Call, LaterReply, Reply, serves
from barnabas.groups.requests import JoinRequest
from barnabas.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember

if TYPE_CHECKING:
    from barnabas.groups.results import JoinResult

FIRST_VERSION_WITH_REQUIRED_MEMBER_ID = 4
FIRST_VERSION_WITH_NULLABLE_PROTOCOL = 7
FIRST_VERSION_WITH_SKIP_ASSIGNMENT = 9


PROTOCOLS_MAX = 1_000
"""The maximum number of protocols of a member. Clients usually send one or a few protocols."""
GROUP_DATA_BYTES_MAX = 16 * 1024 * 1024
"""The maximum size of a request in bytes. It limits the opaque data: member metadata and assignments."""


@serves(
    JoinGroupRequest,
    ends_with_client=True,
    burst_prone=True,
    entries_max=PROTOCOLS_MAX,
    bytes_max=GROUP_DATA_BYTES_MAX,
)
def join_group(groups: GroupService, request: JoinGroupRequest, call: Call) -> Reply:
    """Add a member to a group. The response is sent when the next generation of the group is complete."""
    join = JoinRequest(
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        protocol_type=request.protocol_type,
        protocols=tuple((protocol.name, protocol.metadata) for protocol in request.protocols),
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        client_id=call.client_id or "",
        client_host=f"/{call.connection.host}",
        require_member_id=call.version >= FIRST_VERSION_WITH_REQUIRED_MEMBER_ID,
        supports_skip_assignment=call.version >= FIRST_VERSION_WITH_SKIP_ASSIGNMENT,
    )
    joining = groups.join(request.group_id, join)
    # The join may be waiting for the creation of `__consumer_offsets`, without a group.
    kept_bytes = 0 if isinstance(joining, asyncio.Future) else join.size_bytes
    return LaterReply(_respond_later(joining, call.version), kept_bytes=kept_bytes)


async def _respond_later(joining: Awaitable[JoinResult], version: int) -> JoinGroupResponse:
    return _response(await joining, version)


def _response(result: JoinResult, version: int) -> JoinGroupResponse:
    name = result.protocol_name
    if name is None and version < FIRST_VERSION_WITH_NULLABLE_PROTOCOL:
        name = ""
    return JoinGroupResponse(
        error_code=result.error,
        generation_id=result.generation,
        protocol_type=result.protocol_type,
        protocol_name=name,
        leader=result.leader,
        skip_assignment=result.skip_assignment,
        member_id=result.member_id,
        members=[
            JoinGroupResponseMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                metadata=member.metadata,
            )
            for member in result.members
        ],
    )
