"""The members of a group: by id, static members by instance id, the leader, and the protocols that all support.

Bookkeeping without states and without time; `barnabas.groups.classic_group` decides when to use it. Invariants: the
leader is a member, or there are no members; each instance id names exactly one member; there is at least one
protocol that every member supports, because a join that would break this is refused by `supports`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping

from barnabas.errors import ErrorCode
from barnabas.groups.member import Member
from barnabas.groups.requests import JoinRequest


class Roster:
    """The members of one group, in the order in which they joined."""

    __slots__ = ("_members", "_static_ids", "_support", "leader_id", "protocol_type", "size_bytes")

    def __init__(self) -> None:
        self._members: dict[str, Member] = {}
        self._static_ids: dict[str, str] = {}
        self._support: dict[str, int] = {}  # how many members support a protocol
        self.leader_id: str | None = None
        self.protocol_type = ""
        self.size_bytes = 0
        """The memory of all members."""

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
        """Return the id of the member that holds this instance id now."""
        return self._static_ids.get(group_instance_id)

    def add(self, member: Member, protocol_type: str) -> None:
        """Admit a member. The first one leads, and its protocol type becomes the group's."""
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
        """Remove a member. The longest member leads after the leader."""
        member = self._members.pop(member_id)
        self._count_support(member, -1)
        self.size_bytes -= member.size_bytes
        if member.group_instance_id is not None:
            del self._static_ids[member.group_instance_id]
        if self.leader_id == member_id:
            self.leader_id = next(iter(self._members), None)
        return member

    def update(self, member: Member, request: JoinRequest) -> None:
        """Update a member from a later join."""
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
        """Set the assignment of each member; a member without one gets an empty assignment."""
        for member in self:
            self.size_bytes -= len(member.assignment)
            member.assignment = assignments.get(member.member_id, b"")
            self.size_bytes += len(member.assignment)

    def rename_static(self, old_member_id: str, new_member_id: str) -> Member:
        """Give a static member another id (it was restarted); it keeps its assignment and its leadership.

        Waiters are the caller's business: they belong to the old process and must be answered first.
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
        """Return NONE for a member, else UNKNOWN_MEMBER_ID, or FENCED_INSTANCE_ID if another member replaced it."""
        if group_instance_id is not None:
            current = self._static_ids.get(group_instance_id)
            if current is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if current != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self._members else ErrorCode.UNKNOWN_MEMBER_ID

    def supports(self, protocol_type: str, names: Collection[str]) -> bool:
        """Whether a member with these protocols can join: one of them must be supported by all others."""
        if not self._members:
            return bool(protocol_type) and bool(names)
        size = len(self._members)
        return protocol_type == self.protocol_type and any(self._support.get(name) == size for name in names)

    def select_protocol(self) -> str:
        """Return the protocol with the most votes among those that every member supports."""
        size = len(self._members)
        candidates = {name for name, count in self._support.items() if count == size}
        assert candidates, "every join was checked against what the others support"
        votes = Counter(member.vote(candidates) for member in self)
        return max(votes, key=votes.__getitem__)

    def elect_joined_leader(self) -> bool:
        """Keep the leader if it has rejoined, else elect a member that has; return False if none has."""
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
