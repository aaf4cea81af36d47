"""The metadata of topics that groups use: immutable snapshots."""

from __future__ import annotations

from typing import Protocol

from barnabas.model import TopicPartition


class TopicSnapshot(Protocol):
    """A topic at one moment. A snapshot costs the same for a topic of any size."""

    @property
    def name(self) -> str: ...

    @property
    def id(self) -> bytes: ...

    @property
    def partition_count(self) -> int: ...

    def partition(self, number: int) -> TopicPartition:
        """Return the name of a partition: the same object for every snapshot, since many groups keep it."""

    def racks_of(self, number: int) -> frozenset[str]:
        """Return the racks of the live brokers that have a replica of a partition."""


class TopicMetadata(Protocol):
    """The topics as they are now."""

    def topic(self, name: str) -> TopicSnapshot | None:
        """Return a topic, or None."""

    def topic_id(self, name: str) -> bytes | None:
        """Return the id of a topic, or None."""

    def has_topic_id(self, topic_id: bytes) -> bool:
        """Whether there is a topic with this id."""
