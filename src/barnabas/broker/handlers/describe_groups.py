"""DescribeGroups, versions 0 to 6.

An unknown group has the state "Dead", and from version 6 on also the error GROUP_ID_NOT_FOUND. A group that only has
committed offsets has the state "Empty".
"""

from __future__ import annotations

from barnabas.broker.authorized_operations import ON_GROUPS
from barnabas.broker.group_service import GroupService
from barnabas.broker.offset_store import OffsetStore
from barnabas.broker.pipeline.call import Call, serves
from barnabas.broker.pipeline.scheduler import CooperativeScheduler
from barnabas.errors import ErrorCode
from barnabas.groups.results import GroupState
from barnabas.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from barnabas.protocol.messages.metadata import OPERATIONS_UNKNOWN

FIRST_VERSION_WITH_NOT_FOUND = 6


@serves(DescribeGroupsRequest, ends_with_client=True)
async def describe_groups(
    groups: GroupService,
    offsets: OffsetStore,
    scheduler: CooperativeScheduler,
    request: DescribeGroupsRequest,
    call: Call,
) -> DescribeGroupsResponse:
    """Describe each requested group."""
    described = []
    for name in dict.fromkeys(request.groups):
        if error := groups.error_of(name):
            described.append(_without_members(name, "", error))
        else:
            described.append(_describe(groups, name, offsets.has_offsets(name), call.version))
        await scheduler.pause()
    if request.include_authorized_operations:
        for each in described:
            each.authorized_operations = ON_GROUPS if each.error_code == ErrorCode.NONE else OPERATIONS_UNKNOWN
    return DescribeGroupsResponse(groups=described)


def _describe(groups: GroupService, name: str, has_offsets: bool, version: int) -> DescribedGroup:
    group = groups.describe(name)
    if group is None and has_offsets:
        return _without_members(name, GroupState.EMPTY.value, ErrorCode.NONE)
    if group is None:
        unknown = _without_members(name, GroupState.DEAD.value, ErrorCode.NONE)
        if version >= FIRST_VERSION_WITH_NOT_FOUND:
            unknown.error_code, unknown.error_message = ErrorCode.GROUP_ID_NOT_FOUND, f"group {name!r} does not exist"
        return unknown
    return DescribedGroup(
        error_code=ErrorCode.NONE,
        group_id=name,
        group_state=group.state.value,
        protocol_type=group.protocol_type,
        protocol_data=group.protocol_name,
        members=[
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata,
                member_assignment=member.assignment,
            )
            for member in group.members
        ],
    )


def _without_members(name: str, state: str, error: ErrorCode) -> DescribedGroup:
    return DescribedGroup(
        error_code=error, group_id=name, group_state=state, protocol_type="", protocol_data="", members=[]
    )
