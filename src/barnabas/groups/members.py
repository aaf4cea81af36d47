"""The members of a classic group: members by id, static members by instance id, the leader, and the supported
protocols.

This module only stores the members. `barnabas.groups.classic_group` contains the states and deadlines. Invariants: the
leader is a member, or the group is empty. Each instance id belongs to exactly one member. At least one protocol is
supported by all members, because joins that would violate this are rejected (`supports`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Container, Iterator, Mapping
from typing import Any

from barnabas.errors import ErrorCode
from barnabas.groups.records import StoredMember
from barnabas.groups.requests import JoinRequest, Protocols, effective_rebalance_timeout_ms, held_bytes
from barnabas.groups.results import JoinedMember, MemberDescription


class Member:
    """A member of a group. Only `GroupMembers` and the state machine of the group change it.

    `join_waiter` and `sync_waiter` are tokens of the caller, or None if no request waits. `session_deadline` is a
    monotonic time in seconds. `is_new` is True until the member's first generation is complete. Until then, the
    member's waiting request does not extend its session.
    """

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "group_instance_id",
        "is_new",
        "join_waiter",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "request_bytes",
        "session_deadline",
        "session_timeout_ms",
        "sync_waiter",
    )

    def __init__(self, member_id: str, request: JoinRequest) -> None:
        self.member_id = member_id
        self.group_instance_id = request.group_instance_id
        self.client_id = request.client_id
        self.client_host = request.client_host
        self.assignment = b""
        self.is_new = True
        self.join_waiter: Any = None
        self.sync_waiter: Any = None
        self.session_deadline = float("inf")
        self.protocols: Protocols = request.protocols
        self.request_bytes = request.size_bytes
        """The memory in bytes for the data of the member's last join."""
        self.session_timeout_ms = request.session_timeout_ms
        self.rebalance_timeout_ms = request.effective_rebalance_timeout_ms

    @classmethod
    def restore(cls, stored: StoredMember, protocol_name: str) -> Member:
        """Create a member of a complete generation from its record.

        No `JoinRequest` object is created, because loading creates many members.
        """
        member = cls.__new__(cls)
        member.member_id = stored.member_id
        member.group_instance_id = stored.group_instance_id
        member.client_id = stored.client_id
        member.client_host = stored.client_host
        member.assignment = stored.assignment
        member.is_new = False
        member.join_waiter = member.sync_waiter = None
        member.session_deadline = float("inf")
        member.protocols = ((protocol_name, stored.subscription),)
        member.request_bytes = held_bytes(
            stored.client_id, stored.client_host, stored.group_instance_id, member.protocols
        )
        member.session_timeout_ms = stored.session_timeout_ms
        member.rebalance_timeout_ms = effective_rebalance_timeout_ms(
            stored.rebalance_timeout_ms, stored.session_timeout_ms
        )
        return member

    def update(self, request: JoinRequest) -> None:
        """Update the member with the data of a later join."""
        self.protocols = request.protocols
        self.request_bytes = request.size_bytes
        self.session_timeout_ms = request.session_timeout_ms
        self.rebalance_timeout_ms = request.effective_rebalance_timeout_ms

    @property
    def size_bytes(self) -> int:
        """The memory in bytes for the member's data and its assignment."""
        return self.request_bytes + len(self.assignment)

    @property
    def protocol_names(self) -> set[str]:
        return {name for name, _ in self.protocols}

    @property
    def is_static(self) -> bool:
        return self.group_instance_id is not None

    @property
    def is_awaiting_join(self) -> bool:
        return self.join_waiter is not None

    @property
    def shows_life(self) -> bool:
        """True if the member need not send heartbeats, because it is waiting for a response."""
        return not self.is_new and (self.join_waiter is not None or self.sync_waiter is not None)

    def metadata(self, protocol_name: str | None) -> bytes:
        """Return the member's metadata for a protocol, or empty bytes if the member does not support the protocol."""
        return next((metadata for name, metadata in self.protocols if name == protocol_name), b"")

    def vote(self, candidates: Container[str]) -> str:
        """Return the candidate protocol that the member prefers. The member supports all candidates."""
        return next(name for name, _ in self.protocols if name in candidates)

    def joined(self, protocol_name: str | None) -> JoinedMember:
        return JoinedMember(self.member_id, self.group_instance_id, self.metadata(protocol_name))

    def stored(self, protocol_name: str | None) -> StoredMember:
        return StoredMember(
            self.member_id,
            self.group_instance_id,
            self.client_id,
            self.client_host,
            self.rebalance_timeout_ms,
            self.session_timeout_ms,
            self.metadata(protocol_name),
            self.assignment,
        )

    def description(self, protocol_name: str | None) -> MemberDescription:
        return MemberDescription(
            self.member_id,
            self.group_instance_id,
            self.client_id,
            self.client_host,
            self.metadata(protocol_name),
            self.assignment,
        )


class GroupMembers:
    """The members of one group, in the order in which they first joined."""

    __slots__ = ("_members", "_static_ids", "_support", "leader_id", "protocol_type", "size_bytes")

    def __init__(self) -> None:
        self._members: dict[str, Member] = {}
        self._static_ids: dict[str, str] = {}
        self._support: dict[str, int] = {}  # The number of members that support each protocol.
        self.leader_id: str | None = None
        self.protocol_type = ""
        self.size_bytes = 0
        """The memory in bytes for the data and assignments of all members."""

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[Member]:
        return iter(self._members.values())

    def __contains__(self, member_id: str) -> bool:
        return member_id in self._members

    def __getitem__(self, member_id: str) -> Member:
        return self._members[member_id]

    def get(self, member_id: str) -> Member | None:
        return self._members.get(member_id)

    def static_member_id(self, group_instance_id: str) -> str | None:
        """Return the id of the member with this instance id, or None."""
        return self._static_ids.get(group_instance_id)

    def add(self, member: Member, protocol_type: str) -> None:
        """Add a member. The first member becomes the leader and determines the group's protocol type."""
        assert member.member_id not in self._members
        if member.group_instance_id is not None:
            assert member.group_instance_id not in self._static_ids
            self._static_ids[member.group_instance_id] = member.member_id
        if not self._members:
            self.protocol_type = protocol_type
        if self.leader_id is None:
            self.leader_id = member.member_id
        self._members[member.member_id] = member
        self._count_support(member, 1)
        self.size_bytes += member.size_bytes

    def remove(self, member_id: str) -> Member:
        """Remove a member. If it was the leader, the member that joined first becomes the new leader."""
        member = self._members.pop(member_id)
        self._count_support(member, -1)
        self.size_bytes -= member.size_bytes
        if member.group_instance_id is not None:
            del self._static_ids[member.group_instance_id]
        if self.leader_id == member_id:
            self.leader_id = next(iter(self._members), None)
        return member

    def update(self, member: Member, request: JoinRequest) -> None:
        """Update a member with the data of a later join."""
        self._count_support(member, -1)
        self.size_bytes -= member.size_bytes
        member.update(request)
        self.size_bytes += member.size_bytes
        self._count_support(member, 1)

    def _count_support(self, member: Member, change: int) -> None:
        support = self._support
        for name in member.protocol_names:
            support[name] = support.get(name, 0) + change

    def assign(self, assignments: Mapping[str, bytes]) -> None:
        """Set the assignment of each member. Members that are not in `assignments` get an empty assignment."""
        for member in self:
            self.size_bytes -= len(member.assignment)
            member.assignment = assignments.get(member.member_id, b"")
            self.size_bytes += len(member.assignment)

    def rename_static(self, old_member_id: str, new_member_id: str) -> Member:
        """Replace the member id of a restarted static member. The member keeps its assignment and its leadership.

        The caller must first reply to the member's waiters, because they belong to the old process.
        """
        member = self._members.pop(old_member_id)
        assert member.group_instance_id is not None
        assert member.join_waiter is None
        assert member.sync_waiter is None
        member.member_id = new_member_id
        member.is_new = False
        self._members[new_member_id] = member
        self._static_ids[member.group_instance_id] = new_member_id
        if self.leader_id == old_member_id:
            self.leader_id = new_member_id
        return member

    def check(self, member_id: str, group_instance_id: str | None) -> ErrorCode:
        """Return NONE for a current member, FENCED_INSTANCE_ID for a replaced static member, and UNKNOWN_MEMBER_ID
        otherwise.
        """
        if group_instance_id is not None:
            current = self._static_ids.get(group_instance_id)
            if current is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if current != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self._members else ErrorCode.UNKNOWN_MEMBER_ID

    def supports(self, protocol_type: str, names: Collection[str]) -> bool:
        """Return whether a member with these protocols may join.

        All other members must have one of these protocols in common.
        """
        if not self._members:
            return bool(protocol_type) and bool(names)
        size = len(self._members)
        return protocol_type == self.protocol_type and any(self._support.get(name) == size for name in names)

    def select_protocol(self) -> str:
        """Return the protocol with the most votes among the protocols that all members support."""
        size = len(self._members)
        candidates = {name for name, count in self._support.items() if count == size}
        assert candidates, "each join was checked: all members support a common protocol"
        votes = Counter(member.vote(candidates) for member in self)
        return max(votes, key=votes.__getitem__)

    def elect_joined_leader(self) -> bool:
        """Keep the leader if it has rejoined.

        Otherwise, elect a member that has rejoined. Return False if there is none.
        """
        if self.leader_id is None:
            return False
        if self._members[self.leader_id].is_awaiting_join:
            return True
        joined = next((member.member_id for member in self if member.is_awaiting_join), None)
        self.leader_id = joined or self.leader_id
        return joined is not None

    def count_awaiting_join(self) -> int:
        return sum(member.is_awaiting_join for member in self)

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest rebalance timeout of all members."""
        return max((member.rebalance_timeout_ms for member in self), default=0)
