"""One member of a group: its last join, its assignment, and its waiting requests."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

from barnabas.groups.requests import JoinRequest, Protocols, effective_rebalance_timeout_ms, held_bytes
from barnabas.groups.results import JoinedMember, MemberDescription
from barnabas.groups.stored import StoredMember


class Member:
    """A member of a group. Only the roster and the state machine of the group change it.

    `join_waiter` and `sync_waiter` are the caller's tokens, None when nobody waits. `session_deadline` is on
    the caller's monotonic scale, in seconds. `is_new` holds until the member's first generation is made: until
    then it cannot send heartbeats, so its waiting does not count as a sign of life.
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
        """The memory of its last join."""
        self.session_timeout_ms = request.session_timeout_ms
        self.rebalance_timeout_ms = request.effective_rebalance_timeout_ms

    @classmethod
    def restore(cls, stored: StoredMember, protocol_name: str) -> Member:
        """Make a member of a complete generation from its record, without a request: loading makes many."""
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
        """Update the member from a later join."""
        self.protocols = request.protocols
        self.request_bytes = request.size_bytes
        self.session_timeout_ms = request.session_timeout_ms
        self.rebalance_timeout_ms = request.effective_rebalance_timeout_ms

    @property
    def size_bytes(self) -> int:
        """The memory of the member."""
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
        """Whether the member need not send heartbeats, because it waits for this coordinator."""
        return not self.is_new and (self.join_waiter is not None or self.sync_waiter is not None)

    def metadata(self, protocol_name: str | None) -> bytes:
        """Return the metadata of the member for a protocol; empty if it does not support the protocol."""
        return next((metadata for name, metadata in self.protocols if name == protocol_name), b"")

    def vote(self, candidates: Container[str]) -> str:
        """Return the candidate that the member prefers; it supports every candidate."""
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
