"""Consumer groups as Kafka's brokers coordinate them, pure: calls and time in, replies out.

`GroupCoordinator` is the way in; `Group` is one group's state machine; `assignors` is the clients' part.
"""

from barnabas.groups.assignors import (
    ASSIGNORS,
    Assignor,
    Claim,
    cooperative_sticky_assign,
    owners,
    range_assign,
    round_robin_assign,
    sticky_assign,
)
from barnabas.groups.coordinator import GroupCoordinator
from barnabas.groups.group import Group, GroupConfig
from barnabas.groups.requests import JoinRequest, LeavingMember, SyncRequest
from barnabas.groups.results import (
    GroupDescription,
    GroupState,
    JoinedMember,
    JoinResult,
    LeaveResult,
    LeftMember,
    MemberDescription,
    Reply,
    SyncResult,
)

__all__ = [
    "ASSIGNORS",
    "Assignor",
    "Claim",
    "Group",
    "GroupConfig",
    "GroupCoordinator",
    "GroupDescription",
    "GroupState",
    "JoinRequest",
    "JoinResult",
    "JoinedMember",
    "LeaveResult",
    "LeavingMember",
    "LeftMember",
    "MemberDescription",
    "Reply",
    "SyncRequest",
    "SyncResult",
    "cooperative_sticky_assign",
    "owners",
    "range_assign",
    "round_robin_assign",
    "sticky_assign",
]
