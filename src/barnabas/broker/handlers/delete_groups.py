"""DeleteGroups, versions 0 to 2: delete groups without members, together with their offsets."""

from __future__ import annotations

from barnabas.broker.group_service import GroupService
from barnabas.broker.offset_store import OffsetStore
from barnabas.broker.pipeline.call import Call, serves
from barnabas.broker.pipeline.scheduler import CooperativeScheduler
from barnabas.errors import ApiError, ErrorCode
from barnabas.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse


@serves(DeleteGroupsRequest)
async def delete_groups(
    groups: GroupService,
    offsets: OffsetStore,
    scheduler: CooperativeScheduler,
    request: DeleteGroupsRequest,
    call: Call,
) -> DeleteGroupsResponse:
    """Delete each group that has no members."""
    results = []
    for name in dict.fromkeys(request.groups_names):
        results.append(DeletableGroupResult(group_id=name, error_code=await _delete(groups, offsets, name)))
        await scheduler.pause()
    return DeleteGroupsResponse(results=results)


async def _delete(groups: GroupService, offsets: OffsetStore, name: str) -> ErrorCode:
    deleted = groups.delete(name)
    is_unknown = deleted is ErrorCode.GROUP_ID_NOT_FOUND
    if isinstance(deleted, ErrorCode) and not is_unknown:
        return deleted
    try:
        had_offsets = await offsets.delete_group(name, None if isinstance(deleted, ErrorCode) else deleted)
    except ApiError as refused:
        return refused.code
    return ErrorCode.GROUP_ID_NOT_FOUND if is_unknown and not had_offsets else ErrorCode.NONE
