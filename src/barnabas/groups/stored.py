"""What lasts of a group: plain values, as they stand in the records of `__consumer_offsets`.

Whoever coordinates a group next makes it anew out of these, with the same members, generation and assignment.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from barnabas.model import NO_LEADER_EPOCH, NO_TIMESTAMP
from barnabas.protocol.declare import ZERO_UUID


class Committed(NamedTuple):
    """A committed offset as it is kept: a tuple, because there may be millions."""

    offset: int
    metadata: str = ""
    leader_epoch: int = NO_LEADER_EPOCH
    committed_ms: int = NO_TIMESTAMP
    topic_id: bytes = ZERO_UUID
    """Of the topic that it was committed for; zero where that was not written down (Kafka before 4.1)."""
    expires_ms: int = NO_TIMESTAMP
    """When it is to be forgotten, where its committer said so (OffsetCommit 2 to 4, with brokers before Kafka 2.1)."""


@dataclass(frozen=True, slots=True)
class StoredMember:
    """A member of a generation; `subscription` is what it said under the protocol that was chosen."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True)
class StoredGroup:
    """A group whose generation is complete, or that has no members."""

    protocol_type: str
    generation: int
    protocol_name: str | None = None
    leader_id: str | None = None
    members: tuple[StoredMember, ...] = ()
    since_ms: int = NO_TIMESTAMP
    """Since when it is in this state, by the clock on the wall."""
