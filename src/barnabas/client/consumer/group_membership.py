"""The two interfaces between a consumer and its group, which each group protocol implements.

`GroupMembership` is the state of a member, without I/O; its users hold the guard. `GroupSession` exchanges requests
with the coordinator, or with ZooKeeper. `classic_membership` and `classic_group_session` implement Kafka's classic
group protocol; `zookeeper_assignment` and `zookeeper_group_session` implement the paper's Algorithm 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from barnabas.errors import Failure
from barnabas.model import OffsetAndMetadata, TopicPartition


class GroupMembership(Protocol):
    """The state of a consumer in its group. Not thread-safe: callers must hold the consumer's guard."""

    group: str
    joining: bool
    """True if a join is in progress."""
    rejoin_needed: bool
    """True if the next poll must start a join."""
    reason: str
    """The reason of `rejoin_needed`."""
    lost: bool
    """True if the membership was lost, so that other members may already own this consumer's partitions."""
    fenced: Failure | None
    """The error if another consumer with the same instance id has fenced this one; None otherwise."""
    is_leader: bool
    """True if this consumer assigns the partitions of all members. It then refreshes the metadata of all members'
    topics.
    """
    is_cooperative: bool
    """True if the consumer keeps its partitions during a join; False if it gives up all of them first."""

    @property
    def valid_until_s(self) -> float:
        """The monotonic time until which the assignment is valid. It is infinite if the coordinator rejects outdated
        members.
        """
        ...

    def on_expired(self) -> None:
        """Treat the assignment as lost, because the time `valid_until_s` has passed."""
        ...

    def rejoin(self, reason: str) -> None:
        """Join again in the next poll, or after the current join."""
        ...

    def on_lost_given_up(self) -> None:
        """Record that the application has given up its lost partitions."""
        ...


class GroupSession(Protocol):
    """Exchanges the requests of a consumer with the coordinator of its group. Runs on the event loop."""

    async def join(self) -> list[TopicPartition] | None:
        """Join the group, and return the partitions of this consumer. Retries until the join succeeds.

        :return: the partitions, or None if the consumer has lost its partitions. The consumer then calls the listener,
            and joins again.
        :raises BarnabasError: an error that is not retriable.
        """
        ...

    async def maintain(self) -> None:
        """Keep the membership alive, or detect its loss; never returns."""
        ...

    async def leave(self, reason: str) -> None:
        """Leave the group immediately. A failure only delays the reassignment of the partitions."""
        ...

    async def close(self) -> None:
        """Close all connections except those to the brokers."""
        ...

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], timeout_s: float | None = None) -> None:
        """Commit offsets for the group as the owner of the partitions.

        If the application has assigned partitions with `assign`, commit without a membership.

        :raises BarnabasError: the commit has failed, or its outcome is unknown.
        """
        ...

    async def committed(
        self, partitions: Iterable[TopicPartition], timeout_s: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the committed offsets of the group, without partitions that have none."""
        ...
