"""The topic metadata that groups need, as immutable snapshots."""

from __future__ import annotations

from typing import Protocol

from barnabas.model import TopicPartition


class TopicSnapshot(Protocol):
    """The metadata of a topic at one point in time.

    The cost of a snapshot does not depend on the number of partitions.
    """

    @property
    def name(self) -> str: ...

    @property
    def id(self) -> bytes: ...

    @property
    def partition_count(self) -> int: ...

    def partition(self, number: int) -> TopicPartition:
        """Return the `TopicPartition` object of a partition.

        All snapshots return the same object, because many groups keep it.
        """

    def racks_of(self, number: int) -> frozenset[str]:
        """Return the racks of the live brokers that have a replica of a partition."""


class TopicMetadata(Protocol):
    """The current metadata of topics."""

    def topic(self, name: str) -> TopicSnapshot | None:
        """Return the snapshot of a topic, or None if it does not exist."""

    def topic_id(self, name: str) -> bytes | None:
        """Return the id of a topic, or None if it does not exist."""

    def has_topic_id(self, topic_id: bytes) -> bool:
        """Return whether a topic with this id exists."""
