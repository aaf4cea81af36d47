"""DeleteGroups (key 42): delete groups without members, and their committed offsets.

Version 2 is the first flexible version.
"""

from __future__ import annotations

from barnabas.protocol.declare import INT16, INT32, STRING, array, field, message, struct


@message(api_key=42, versions="0-2", flexible="2+")
class DeleteGroupsRequest:
    groups_names: list[str] = field(array(STRING))


@struct
class DeletableGroupResult:
    group_id: str = field(STRING)
    error_code: int = field(INT16)


@message(api_key=42, versions="0-2", flexible="2+")
class DeleteGroupsResponse:
    throttle_time_ms: int = field(INT32, default=0)
    results: list[DeletableGroupResult] = field(array(DeletableGroupResult))
