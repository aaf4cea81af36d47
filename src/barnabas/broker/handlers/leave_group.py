"""LeaveGroup, versions 0 to 5: remove members from a group.

Up to version 2, a request contains one member. The broker logs the reason (version 5, KIP-800) in one line per request.
"""

from __future__ import annotations

import logging

from barnabas.broker.group_service import GroupService
from barnabas.broker.pipeline.call import Call, serves
from barnabas.groups.requests import LeavingMember
from barnabas.groups.results import LeaveResult
from barnabas.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse

FIRST_VERSION_WITH_SEVERAL_MEMBERS = 3

MEMBERS_MAX = 2_000
"""The maximum number of members in a request."""

REASON_CHARACTERS_MAX = 255
"""The maximum number of characters of a reason or a name in the log. KIP-800 limits reasons to this length."""

log = logging.getLogger(__name__)


@serves(LeaveGroupRequest, entries_max=MEMBERS_MAX)
def leave_group(groups: GroupService, request: LeaveGroupRequest, call: Call) -> LeaveGroupResponse:
    """Remove members from their group."""
    if call.version < FIRST_VERSION_WITH_SEVERAL_MEMBERS:
        result = groups.leave(request.group_id, [LeavingMember(request.member_id)])
        error = result.members[0].error if result.members and not result.error else result.error
        return LeaveGroupResponse(error_code=error)
    leaving = [LeavingMember(member.member_id, member.group_instance_id) for member in request.members]
    result = groups.leave(request.group_id, leaving)
    _log_reason(request, result)
    return LeaveGroupResponse(
        error_code=result.error,
        members=[
            MemberResponse(
                member_id=member.member_id, group_instance_id=member.group_instance_id, error_code=member.error
            )
            for member in result.members
        ],
    )


def _log_reason(request: LeaveGroupRequest, result: LeaveResult) -> None:
    """Log the first reason in the request as the reason of all members that left."""
    left = [asked for asked, member in zip(request.members, result.members, strict=False) if not member.error]
    reason = next((member.reason for member in left if member.reason), None)
    if reason is not None:
        log.info(
            "%d member(s) left group %s, including %s; reason: %s",
            len(left),
            _bounded(request.group_id),
            _bounded(left[0].group_instance_id or left[0].member_id),
            _bounded(reason),
        )


def _bounded(text: str) -> str:
    """Return untrusted text quoted and shortened for a log line."""
    return repr(text[:REASON_CHARACTERS_MAX])
