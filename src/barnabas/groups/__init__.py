"""Group coordination as in Kafka's brokers, as pure state machines: requests and the time in, replies and records out.

`GroupCoordinator` is the entry point. `Group` is the interface of a group of any kind, and `ClassicGroup` the supported
kind. `GroupOffsets` contains the committed offsets, `records` encodes the records of `__consumer_offsets`, and
`assignors` is the clients' part.
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
