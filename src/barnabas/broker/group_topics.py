"""The metadata of topics, for groups: one immutable snapshot of each topic, until the topic changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.groups.topic_metadata import TopicSnapshot
from barnabas.model import TopicPartition

if TYPE_CHECKING:
    from barnabas.broker.topics import Topic, Topics


class GroupTopics:
    """The topics that this broker knows (`barnabas.groups.topic_metadata.TopicMetadata`)."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        self._snapshots: dict[str, tuple[Topic, TopicSnapshot]] = {}

    def topic(self, name: str) -> TopicSnapshot | None:
        topic = self._topics.get(name)
        known = self._snapshots.get(name)
        if known is not None:
            if known[0] is topic:
                return known[1]
            del self._snapshots[name]
        if topic is None:
            return None
        snapshot = self._snapshot(topic)
        self._snapshots[name] = topic, snapshot
        return snapshot

    def has_topic_id(self, topic_id: bytes) -> bool:
        return self._topics.by_id(topic_id) is not None

    def _snapshot(self, topic: Topic) -> TopicSnapshot:
        partitions = tuple(
            self._topics.replicas.shared_name(TopicPartition(topic.name, number))
            for number in range(len(topic.partitions))
        )
        racks = {number: broker.registration.rack for number, broker in self._topics.image.brokers.items()}
        if not any(racks.values()):
            return TopicSnapshot(topic.name, topic.id, partitions)
        return TopicSnapshot(
            topic.name,
            topic.id,
            partitions,
            tuple(frozenset(rack for each in info.replicas if (rack := racks.get(each))) for info in topic.partitions),
        )
