"""ListGroups, versions 0 to 5: list the groups, including groups that only have committed offsets.

All groups have the type "classic": consumer groups (KIP-848) and share groups are not supported.
"""

from __future__ import annotations

from barnabas.broker.group_service import GroupService
from barnabas.broker.offset_store import OffsetStore
from barnabas.broker.pipeline.call import Call, serves
from barnabas.broker.pipeline.scheduler import CooperativeScheduler
from barnabas.errors import ApiError, ErrorCode
from barnabas.groups.results import GroupKind, GroupState
from barnabas.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse

CLASSIC = GroupKind.CLASSIC.value
"""The protocol type of a group that only has committed offsets."""


@serves(ListGroupsRequest, ends_with_client=True)
async def list_groups(
    groups: GroupService, offsets: OffsetStore, scheduler: CooperativeScheduler, request: ListGroupsRequest, call: Call
) -> ListGroupsResponse:
    """List the groups that have one of the requested states and types, or all groups."""
    wanted = {state.lower() for state in request.states_filter}
    types = {kind.lower() for kind in request.types_filter}
    if types and CLASSIC not in types:
        return ListGroupsResponse(error_code=ErrorCode.NONE, groups=[])
    try:
        with_offsets = offsets.group_ids()
    except ApiError as error:
        return ListGroupsResponse(error_code=error.code, groups=[])
    names = sorted({*groups.group_ids(), *with_offsets})
    listed = []
    for name in names:
        listed.append(_listed(groups, name))
        await scheduler.pause()
    return ListGroupsResponse(
        error_code=ErrorCode.NONE,
        groups=[group for group in listed if not wanted or group.group_state.lower() in wanted],
    )


def _listed(groups: GroupService, name: str) -> ListedGroup:
    group = groups.describe(name)
    if group is None:
        return ListedGroup(group_id=name, protocol_type="", group_state=GroupState.EMPTY.value, group_type=CLASSIC)
    protocol_type, state = group.protocol_type, group.state.value
    return ListedGroup(group_id=name, protocol_type=protocol_type, group_state=state, group_type=group.kind.value)
