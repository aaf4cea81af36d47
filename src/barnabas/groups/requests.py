"""What members ask of their group: plain values, cut loose from the versions of the wire protocol.

The broker builds them from JoinGroup, SyncGroup and LeaveGroup requests. Byte strings must be `bytes` of their
own, never views of a frame: a group keeps them for as long as the member lives.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

UNKNOWN_MEMBER = ""
"""The member id of a member that has none yet, as the protocol writes it."""

Protocols = tuple[tuple[str, bytes], ...]
"""The assignors that a member supports, best liked first, each with the member's metadata for it."""


MEMBER_BYTES = 1_024
"""What a member takes besides the bytes that its client hands in."""
PROTOCOL_BYTES = 128
"""The same of a protocol."""


def held_bytes(client_id: str, client_host: str, group_instance_id: str | None, protocols: Protocols) -> int:
    """Return what a group holds for a member; its id begins with its client id or its instance id."""
    size = MEMBER_BYTES + 2 * len(client_id) + len(client_host) + 2 * len(group_instance_id or "")
    for name, metadata in protocols:
        size += len(name) + len(metadata) + PROTOCOL_BYTES
    return size


def effective_rebalance_timeout_ms(rebalance_timeout_ms: int, session_timeout_ms: int) -> int:
    """Return the rebalance timeout; JoinGroup 0 has none, and the session timeout counts."""
    return session_timeout_ms if rebalance_timeout_ms < 0 else rebalance_timeout_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinRequest:
    """Ask to be a member of the group's next generation.

    `member_id` is empty for a member that has none. `group_instance_id` makes it a static member (KIP-345).
    A `rebalance_timeout_ms` below 0 means the session timeout, as JoinGroup 0 has it. `require_member_id`
    (JoinGroup 4 and later, KIP-394) makes a new dynamic member come back with the id that it is given.
    `supports_skip_assignment` (JoinGroup 9, KIP-814) lets a restarted static leader know that it still leads.
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
        """What a group holds for a member that joins so."""
        return held_bytes(self.client_id, self.client_host, self.group_instance_id, self.protocols)

    @property
    def effective_rebalance_timeout_ms(self) -> int:
        return effective_rebalance_timeout_ms(self.rebalance_timeout_ms, self.session_timeout_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncRequest:
    """Ask for this member's assignment; the leader hands in everybody's, by member id.

    `protocol_type` and `protocol_name` (SyncGroup 5) are compared with the group's where they are given.
    """

    member_id: str
    generation: int
    group_instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LeavingMember:
    """One who leaves, named by its member id, or by its instance id alone (an administrator's removal)."""

    member_id: str
    group_instance_id: str | None = None
