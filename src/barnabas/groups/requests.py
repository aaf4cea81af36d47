"""The requests of members to their group, independent of protocol versions.

The broker creates them from JoinGroup, SyncGroup and LeaveGroup requests. Byte strings must be `bytes` objects and not
views of a frame, because a group keeps them as long as the member exists.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

UNKNOWN_MEMBER = ""
"""The empty member id of a member that does not have an id yet, as in the protocol."""

Protocols = tuple[tuple[str, bytes], ...]
"""The assignors that a member supports, in its order of preference, with metadata for each assignor."""


MEMBER_BYTES = 1_024
"""The memory in bytes for a member, in addition to the data that the client sent."""
PROTOCOL_BYTES = 128
"""The memory in bytes for a protocol of a member, in addition to its name and metadata."""


def held_bytes(client_id: str, client_host: str, group_instance_id: str | None, protocols: Protocols) -> int:
    """Return the memory in bytes for a member. The member id begins with the client id or the instance id."""
    size = MEMBER_BYTES + 2 * len(client_id) + len(client_host) + 2 * len(group_instance_id or "")
    for name, metadata in protocols:
        size += len(name) + len(metadata) + PROTOCOL_BYTES
    return size


def effective_rebalance_timeout_ms(rebalance_timeout_ms: int, session_timeout_ms: int) -> int:
    """Return the rebalance timeout in ms.

    JoinGroup version 0 has no rebalance timeout, so the session timeout is used.
    """
    return session_timeout_ms if rebalance_timeout_ms < 0 else rebalance_timeout_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinRequest:
    """A request to join the group's next generation.

    `member_id` is empty for a member without an id. A member with a `group_instance_id` is a static member (KIP-345). A
    negative `rebalance_timeout_ms` (JoinGroup version 0) means the session timeout. If `require_member_id` is True
    (JoinGroup version 4 and later, KIP-394), a new dynamic member gets a member id and must join again with this id. If
    `supports_skip_assignment` is True (JoinGroup version 9, KIP-814), a restarted static leader may get a reply that it
    still leads but must not assign partitions.
    """

    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    member_id: str = UNKNOWN_MEMBER
    group_instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    require_member_id: bool = False
    supports_skip_assignment: bool = False

    @property
    def size_bytes(self) -> int:
        """The memory in bytes for a member that joins with this request."""
        return held_bytes(self.client_id, self.client_host, self.group_instance_id, self.protocols)

    @property
    def effective_rebalance_timeout_ms(self) -> int:
        return effective_rebalance_timeout_ms(self.rebalance_timeout_ms, self.session_timeout_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncRequest:
    """A request for the assignment of a member. The group leader's request contains all assignments, by member id.

    If `protocol_type` and `protocol_name` are set (SyncGroup version 5), they must match the group.
    """

    member_id: str
    generation: int
    group_instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LeavingMember:
    """A member that leaves. Administrators may identify a static member by its instance id only."""

    member_id: str
    group_instance_id: str | None = None
