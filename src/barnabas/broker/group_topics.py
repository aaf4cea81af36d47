"""The metadata of topics for groups."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from barnabas.groups.topic_metadata import TopicSnapshot
from barnabas.model import TopicPartition

if TYPE_CHECKING:
    from barnabas.broker.metadata_image import MetadataImage
    from barnabas.broker.topics import Topic, Topics


class GroupTopics:
    """The topics that this broker knows (`barnabas.groups.topic_metadata.TopicMetadata`)."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        self._shared: dict[str, dict[int, TopicPartition]] = {}
        """The names of partitions that groups use, by topic and number."""

    def topic(self, name: str) -> TopicSnapshot | None:
        topic = self._topics.get(name)
        if topic is None:
            return None
        shared = self._shared.get(name)
        if shared is None:
            shared = self._shared[name] = {}
        return _Snapshot(topic, self._topics, shared)

    def topic_id(self, name: str) -> bytes | None:
        topic = self._topics.get(name)
        return None if topic is None else topic.id

    def has_topic_id(self, topic_id: bytes) -> bool:
        return self._topics.by_id(topic_id) is not None

    def forget(self, names: Collection[str]) -> None:
        """Free what is kept for topics that were deleted."""
        for name in names:
            self._shared.pop(name, None)


class _Snapshot:
    """A topic as it was when the snapshot was made."""

    __slots__ = ("_image", "_shared", "_topic", "_topics")

    def __init__(self, topic: Topic, topics: Topics, shared: dict[int, TopicPartition]) -> None:
        self._topic = topic
        self._image: MetadataImage = topics.image
        self._topics = topics
        self._shared = shared

    @property
    def name(self) -> str:
        return self._topic.name

    @property
    def id(self) -> bytes:
        return self._topic.id

    @property
    def partition_count(self) -> int:
        return len(self._topic.partitions)

    def partition(self, number: int) -> TopicPartition:
        found = self._shared.get(number)
        if found is None:
            found = self._topics.replicas.shared_name(TopicPartition(self._topic.name, number))
            self._shared[number] = found
        return found

    def racks_of(self, number: int) -> frozenset[str]:
        brokers = self._image.brokers
        replicas = self._topic.partitions[number].replicas
        return frozenset(rack for each in replicas if each in brokers and (rack := brokers[each].registration.rack))
