"""What a group answers: plain values that the broker turns into the response of the version asked for."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import NamedTuple

from barnabas.errors import ErrorCode

NO_GENERATION = -1
"""The generation of a member that is in none, as the protocol writes it."""


class GroupKind(enum.Enum):
    """Kafka's kinds of groups (`barnabas.groups.group`). The values are the types that ListGroups shows."""

    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"


class GroupState(enum.Enum):
    """Where a group stands. The values are the names that DescribeGroups and ListGroups show."""

    EMPTY = "Empty"
    """No members; it may still have committed offsets."""
    PREPARING_REBALANCE = "PreparingRebalance"
    """Members are joining the next generation."""
    COMPLETING_REBALANCE = "CompletingRebalance"
    """The generation is made; its leader has yet to hand in the assignment."""
    STABLE = "Stable"
    """Every member has its assignment, or may ask for it."""
    DEAD = "Dead"
    """Deleted, or given up by this coordinator."""


@dataclass(frozen=True, slots=True)
class JoinedMember:
    """A member as the leader is told of it: what it needs to assign partitions to it."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True)
class JoinResult:
    """The answer to a join. `members` is filled for the leader alone."""

    error: ErrorCode
    member_id: str
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    members: tuple[JoinedMember, ...] = ()
    skip_assignment: bool = False


@dataclass(frozen=True, slots=True)
class SyncResult:
    """The answer to a sync: this member's assignment, in the terms of the chosen protocol."""

    error: ErrorCode
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


@dataclass(frozen=True, slots=True)
class LeftMember:
    """The outcome of one member's leaving; the member is named as in the request."""

    member_id: str
    group_instance_id: str | None
    error: ErrorCode


@dataclass(frozen=True, slots=True)
class LeaveResult:
    """The answer to a leave: an error of the whole request, or one result a member."""

    error: ErrorCode
    members: tuple[LeftMember, ...] = ()


@dataclass(frozen=True, slots=True)
class MemberDescription:
    """A member as DescribeGroups shows it; `metadata` is empty unless the group is stable."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group as ListGroups and DescribeGroups show it; `protocol_name` is empty unless it is stable."""

    group_id: str
    kind: GroupKind
    state: GroupState
    generation: int
    protocol_type: str
    protocol_name: str
    members: tuple[MemberDescription, ...]


class GroupSummary(NamedTuple):
    """A group as the metrics show it."""

    group_id: str
    state: GroupState
    member_count: int
