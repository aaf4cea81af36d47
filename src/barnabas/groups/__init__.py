"""Group coordination as in Kafka's brokers, implemented as pure state machines.

Their input is requests and the time; their output is replies and records.

`GroupCoordinator` is the entry point. `Group` is the interface of all kinds of groups, and `ClassicGroup` is the
supported kind. `GroupOffsets` contains the committed offsets, and `records` encodes the records of
`__consumer_offsets`. `assignors` is used by clients only.
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
from barnabas.groups.classic_group import ClassicGroup, GroupConfig
from barnabas.groups.coordinator import GroupCoordinator, OffsetWrite
from barnabas.groups.group import Group, GroupWrite
from barnabas.groups.hashing import partition_of
from barnabas.groups.offsets import GroupOffsets
from barnabas.groups.records import Committed, StoredGroup, StoredMember
from barnabas.groups.requests import JoinRequest, LeavingMember, SyncRequest
from barnabas.groups.results import (
    GroupDescription,
    GroupKind,
    GroupState,
    JoinedMember,
    JoinResult,
    LeaveResult,
    LeftMember,
    MemberDescription,
    SyncResult,
)

__all__ = [
    "ASSIGNORS",
    "Assignor",
    "Claim",
    "ClassicGroup",
    "Committed",
    "Group",
    "GroupConfig",
    "GroupCoordinator",
    "GroupDescription",
    "GroupKind",
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
    "OffsetWrite",
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
