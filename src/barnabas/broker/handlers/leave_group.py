"""LeaveGroup, versions 0 to 5: up to version 2 one member leaves, later several. Reasons are ignored."""

from __future__ import annotations

from barnabas.broker.api import Context, serves
from barnabas.broker.group_shell import GroupShell
from barnabas.groups.requests import LeavingMember
from barnabas.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse

FIRST_VERSION_WITH_SEVERAL_MEMBERS = 3


MEMBERS_MAX = 2_000
"""How many members may leave with one request."""


@serves(LeaveGroupRequest, entries_max=MEMBERS_MAX)
def leave_group(groups: GroupShell, request: LeaveGroupRequest, context: Context) -> LeaveGroupResponse:
    """Take members out of their group."""
    if context.version < FIRST_VERSION_WITH_SEVERAL_MEMBERS:
        result = groups.leave(request.group_id, [LeavingMember(request.member_id)])
        error = result.members[0].error if result.members and not result.error else result.error
        return LeaveGroupResponse(error_code=error)
    leaving = [LeavingMember(member.member_id, member.group_instance_id) for member in request.members]
    result = groups.leave(request.group_id, leaving)
    return LeaveGroupResponse(
        error_code=result.error,
        members=[
            MemberResponse(
                member_id=member.member_id, group_instance_id=member.group_instance_id, error_code=member.error
            )
            for member in result.members
        ],
    )
