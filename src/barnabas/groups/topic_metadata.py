"""What groups know of the topics of the cluster: a snapshot, replaced as a whole when the topics change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from barnabas.model import TopicPartition


@dataclass(frozen=True, slots=True)
class TopicSnapshot:
    """A topic at one moment.

    :param partitions: by number. Many groups keep these objects, so that each exists once.
    :param racks: of each partition, the racks of its replicas; empty where no broker has one.
    """

    name: str
    id: bytes
    partitions: tuple[TopicPartition, ...]
    racks: tuple[frozenset[str], ...] = ()


class TopicMetadata(Protocol):
    """The topics at one moment."""

    def topic(self, name: str) -> TopicSnapshot | None:
        """Return a topic, or None."""

    def has_topic_id(self, topic_id: bytes) -> bool:
        """Whether there is a topic with this id."""
