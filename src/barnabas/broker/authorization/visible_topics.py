"""The topics of the cluster, as far as the rules of authorization need them."""

from __future__ import annotations

from collections.abc import Iterable

from barnabas.broker.settings.dynamic import DynamicSettings
from barnabas.broker.topics import Topics


class VisibleTopics:
    """Implements `KnownTopics` with the topics of a broker."""

    def __init__(self, topics: Topics, settings: DynamicSettings) -> None:
        self._topics = topics
        self._settings = settings

    def name_of_id(self, topic_id: bytes) -> str | None:
        topic = self._topics.by_id(topic_id)
        return None if topic is None else topic.name

    def has_topic(self, name: str) -> bool:
        return self._topics.get(name) is not None

    def names(self) -> Iterable[str]:
        return self._topics.names()

    @property
    def creates_topics(self) -> bool:
        return self._settings.config.auto_create_topics_enable
