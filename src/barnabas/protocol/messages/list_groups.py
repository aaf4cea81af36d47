"""ListGroups (key 16): return the groups that a broker coordinates.

Version 3 is the first flexible version, version 4 filters by state (KIP-518), version 5 by type (KIP-848).
"""

from __future__ import annotations

from barnabas.protocol.declare import INT16, INT32, STRING, array, field, message, struct


@message(api_key=16, versions="0-5", flexible="3+")
class ListGroupsRequest:
    states_filter: list[str] = field(array(STRING), since=4, default_factory=list)
    types_filter: list[str] = field(array(STRING), since=5, default_factory=list)


@struct
class ListedGroup:
    group_id: str = field(STRING)
    protocol_type: str = field(STRING)
    group_state: str = field(STRING, since=4, default="", ignorable=True)
    group_type: str = field(STRING, since=5, default="", ignorable=True)


@message(api_key=16, versions="0-5", flexible="3+")
class ListGroupsResponse:
    throttle_time_ms: int = field(INT32, since=1, default=0, ignorable=True)
    error_code: int = field(INT16)
    groups: list[ListedGroup] = field(array(ListedGroup))
