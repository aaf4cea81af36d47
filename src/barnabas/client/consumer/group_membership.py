"""The two interfaces that every kind of group implements for a consumer.

`GroupMembership` is the state of a member, without I/O; its users hold the guard. `GroupSession` exchanges requests
with the coordinator (or ZooKeeper). `classic_membership` and `classic_group_session` implement Kafka's classic
protocol, `zookeeper_assignment` and `zookeeper_group_session` the paper's Algorithm 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from barnabas.errors import Failure
from barnabas.model import OffsetAndMetadata, TopicPartition


class GroupMembership(Protocol):
    """The state of a consumer in its group. Not thread-safe: the consumer guards it."""

    group: str
    joining: bool
    """True if an attempt to get partitions is under way."""
    rejoin_needed: bool
    """True if the next poll has to begin an attempt."""
    reason: str
    """The reason of `rejoin_needed`."""
    lost: bool
    """Other members may own the consumer's partitions already."""
    fenced: Failure | None
    """Another consumer has taken the place of this one, for good."""
    is_leader: bool
    """True if this consumer assigns partitions to the others, and so has to watch their topics."""
    is_cooperative: bool
    """True if the consumer keeps partitions while it joins; else it gives up all before."""

    @property
    def valid_until_s(self) -> float:
        """The monotonic time until which no other consumer can own the partitions unnoticed; may be infinite."""
        ...

    def on_expired(self) -> None:
        """`valid_until_s` has passed."""
        ...

    def rejoin(self, reason: str) -> None:
        """Get partitions again with the next poll, or after the current attempt."""
        ...

    def on_lost_given_up(self) -> None:
        """The application has given up its lost partitions."""
        ...


class GroupSession(Protocol):
    """The exchange of a consumer with the coordinator of its group. Runs on the event loop."""

    async def join(self) -> list[TopicPartition] | None:
        """Return the partitions of this consumer. Tries until it succeeds.

        :return: None where the consumer has lost its partitions, and calls the listener before it joins again.
        :raises BarnabasError: an error that is not retriable.
        """
        ...

    async def maintain(self) -> None:
        """Keep the membership, or notice its loss; never returns."""
        ...

    async def leave(self, reason: str) -> None:
        """Leave the group at once. A failure does no harm."""
        ...

    async def close(self) -> None:
        """Close everything but the connections to the brokers."""
        ...

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], timeout_s: float | None = None) -> None:
        """Commit offsets for the group, as the owner of the partitions; for partitions that were assigned by hand,
        without a membership.

        :raises BarnabasError: the commit failed, or its outcome is unknown.
        """
        ...

    async def committed(
        self, partitions: Iterable[TopicPartition], timeout_s: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the committed offsets of the group; partitions without one are missing."""
        ...
