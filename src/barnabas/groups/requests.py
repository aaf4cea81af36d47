"""The requests of members to their group, independent of the versions of the protocol.

The broker creates them from JoinGroup, SyncGroup and LeaveGroup requests. Byte strings must be independent `bytes`
objects and not views of a frame, because a group keeps them as long as the member exists.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

UNKNOWN_MEMBER = ""
"""The member id of a member without one, as in the protocol."""

Protocols = tuple[tuple[str, bytes], ...]
"""The supported assignors of a member in its order of preference, with the metadata for each."""


MEMBER_BYTES = 1_024
"""The memory for a member in addition to its client's data."""
PROTOCOL_BYTES = 128
"""The memory for a protocol of a member in addition to its name and metadata."""


def held_bytes(client_id: str, client_host: str, group_instance_id: str | None, protocols: Protocols) -> int:
    """Return the memory for a member; the member id begins with the client id or the instance id."""
    size = MEMBER_BYTES + 2 * len(client_id) + len(client_host) + 2 * len(group_instance_id or "")
    for name, metadata in protocols:
        size += len(name) + len(metadata) + PROTOCOL_BYTES
    return size


def effective_rebalance_timeout_ms(rebalance_timeout_ms: int, session_timeout_ms: int) -> int:
    """Return the rebalance timeout. JoinGroup 0 has none; there the session timeout is used."""
    return session_timeout_ms if rebalance_timeout_ms < 0 else rebalance_timeout_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinRequest:
    """The request to join the group's next generation.

    `member_id` is empty for a member without an id. `group_instance_id` makes it a static member (KIP-345). A negative
    `rebalance_timeout_ms` (JoinGroup 0) means the session timeout. If `require_member_id` is true (JoinGroup 4 and
    later, KIP-394), a new dynamic member gets an id and must join again with it. `supports_skip_assignment` (JoinGroup
    9, KIP-814) permits the reply that a restarted static leader still leads and must not assign.
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
        """The memory for a member that joins with this request."""
        return held_bytes(self.client_id, self.client_host, self.group_instance_id, self.protocols)

    @property
    def effective_rebalance_timeout_ms(self) -> int:
        return effective_rebalance_timeout_ms(self.rebalance_timeout_ms, self.session_timeout_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncRequest:
    """The request for the assignment of a member. The leader's request contains all assignments, by member id.

    `protocol_type` and `protocol_name` (SyncGroup 5) must be those of the group if they are given.
    """

    member_id: str
    generation: int
    group_instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LeavingMember:
    """A member that leaves, with its member id; or only with its instance id (removal by an administrator)."""

    member_id: str
    group_instance_id: str | None = None
