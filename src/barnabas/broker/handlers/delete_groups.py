"""DeleteGroups, versions 0 to 2: a group without members is forgotten, and its offsets with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.api import Context, serves
from barnabas.errors import CoordinationError, ErrorCode
from barnabas.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse

if TYPE_CHECKING:
    from barnabas.broker.broker import Broker


@serves(DeleteGroupsRequest)
async def delete_groups(broker: Broker, request: DeleteGroupsRequest, context: Context) -> DeleteGroupsResponse:
    """Forget each group that may be forgotten."""
    results = []
    for name in dict.fromkeys(request.groups_names):
        results.append(DeletableGroupResult(group_id=name, error_code=await _delete(broker, name)))
        await broker.turns.pause()
    return DeleteGroupsResponse(results=results)


async def _delete(broker: Broker, name: str) -> ErrorCode:
    error = broker.groups.delete(name)
    if error not in {ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND}:
        return error
    try:
        had_offsets = await broker.offsets.delete_group(name)
    except CoordinationError:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return ErrorCode.NONE if had_offsets else error
