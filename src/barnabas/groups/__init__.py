"""Consumer groups as Kafka's brokers coordinate them, pure: calls and time in, replies and what is to be stored out.

`GroupCoordinator` is the way in; `Group` is one group's state machine; `GroupOffsets` holds what groups committed;
`records` is how both are stored; `assignors` is the clients' part.
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
from barnabas.groups.group import Group, GroupConfig, GroupWrite
from barnabas.groups.hashing import partition_of
from barnabas.groups.offsets import GroupOffsets
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
from barnabas.groups.stored import Committed, StoredGroup, StoredMember

__all__ = [
    "ASSIGNORS",
    "Assignor",
    "Claim",
    "Committed",
    "Group",
    "GroupConfig",
    "GroupCoordinator",
    "GroupDescription",
    "GroupOffsets",
    "GroupState",
    "GroupWrite",
    "JoinRequest",
    "JoinResult",
    "JoinedMember",
    "LeaveResult",
    "LeavingMember",
    "LeftMember",
    "MemberDescription",
    "Reply",
    "StoredGroup",
    "StoredMember",
    "SyncRequest",
    "SyncResult",
    "cooperative_sticky_assign",
    "owners",
    "partition_of",
    "range_assign",
    "round_robin_assign",
    "sticky_assign",
]
