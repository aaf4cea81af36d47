"""The results of group requests. The broker converts them to responses of the requested version."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import NamedTuple

from barnabas.errors import ErrorCode

NO_GENERATION = -1
"""The generation of a member that has none, as in the protocol."""


class GroupKind(enum.Enum):
    """Kafka's kinds of groups (`barnabas.groups.group`). The values are the group types in ListGroups."""

    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"


class GroupState(enum.Enum):
    """The state of a group. The values are the names in DescribeGroups and ListGroups."""

    EMPTY = "Empty"
    """The group has no members, but may have committed offsets."""
    PREPARING_REBALANCE = "PreparingRebalance"
    """Members are joining the next generation."""
    COMPLETING_REBALANCE = "CompletingRebalance"
    """The members of the generation have joined, and wait for the assignment from the leader."""
    STABLE = "Stable"
    """The assignment is complete. Each member has it, or may request it with SyncGroup."""
    DEAD = "Dead"
    """The group was deleted, or this broker no longer coordinates it."""


@dataclass(frozen=True, slots=True)
class JoinedMember:
    """A member in the leader's JoinGroup response, with the data that the leader needs for the assignment."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True)
class JoinResult:
    """The result of a join. Only the leader's result contains `members`."""

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
    """The result of a sync: the member's assignment, encoded for the selected protocol."""

    error: ErrorCode
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


@dataclass(frozen=True, slots=True)
class LeftMember:
    """The result for one leaving member, which is identified in the same way as in the request."""

    member_id: str
    group_instance_id: str | None
    error: ErrorCode


@dataclass(frozen=True, slots=True)
class LeaveResult:
    """The result of a LeaveGroup request: an error for the whole request, or one result for each member."""

    error: ErrorCode
    members: tuple[LeftMember, ...] = ()


@dataclass(frozen=True, slots=True)
class MemberDescription:
    """The description of a member in DescribeGroups. `metadata` is empty unless the group is stable."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """The description of a group in ListGroups and DescribeGroups.

    `protocol_name` is empty unless the group is stable.
    """

    group_id: str
    kind: GroupKind
    state: GroupState
    generation: int
    protocol_type: str
    protocol_name: str
    members: tuple[MemberDescription, ...]


class GroupSummary(NamedTuple):
    """The state of a group in the metrics."""

    group_id: str
    state: GroupState
    member_count: int
