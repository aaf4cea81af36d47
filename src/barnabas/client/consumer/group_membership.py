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
    """How a consumer stands with its group. Not thread-safe: the consumer guards it."""

    group: str
    joining: bool
    """Whether an attempt to get partitions is under way."""
    rejoin_needed: bool
    """Whether the next poll has to begin one."""
    reason: str
    """Why."""
    lost: bool
    """The partitions that this consumer still has may be others' already."""
    fenced: Failure | None
    """Another consumer has taken this one's place, for good."""
    is_leader: bool
    """Whether this consumer shares out for the others, and so has to look after the topics."""
    is_cooperative: bool
    """Whether partitions are kept while others are joined for; else all are given up before."""

    @property
    def until_s(self) -> float:
        """Until when, by the monotonic clock, its partitions cannot be others' without its knowing; inf: for ever."""
        ...

    def on_silence(self) -> None:
        """`until_s` has passed."""
        ...

    def rejoin(self, reason: str) -> None:
        """Get partitions anew with the next poll, or when the attempt that is under way has ended."""
        ...

    def on_given_up(self) -> None:
        """Of the partitions that were lost the application has none any more."""
        ...


class GroupSession(Protocol):
    """One consumer's dealings with whoever coordinates its group. Runs on the event loop."""

    async def join(self) -> list[TopicPartition] | None:
        """Return the partitions that fall to this consumer. Tries until it succeeds.

        :return: None where it has lost what it still has, and must know that before it joins again.
        :raises BarnabasError: trying again would not help.
        """
        ...

    async def keep(self) -> None:
        """Keep what this consumer has, or find out that it is lost; for ever."""
        ...

    async def leave(self, reason: str) -> None:
        """Leave what the others may have at once. Failure does no harm."""
        ...

    async def close(self) -> None:
        """End what this has of its own beside the connections to the brokers."""
        ...

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], timeout_s: float | None = None) -> None:
        """Commit offsets for the group, with what proves that the partitions are this consumer's; where they were
        assigned by hand, as nobody.

        :raises BarnabasError: they were not committed, or nobody knows.
        """
        ...

    async def committed(
        self, partitions: Iterable[TopicPartition], timeout_s: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return what the group has committed; partitions for which it has not are left out."""
        ...
