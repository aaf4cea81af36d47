"""Which topics a client asks metadata for, and which of them asking may create. Pure: the caller brings the time.

Invariants:

- Each interest ends: a topic that was used leaves `metadata_max_idle_ms` after its last use, a held topic leaves with
  the subscription or assignment that holds it.
- A topic is created only while a call or a record waits for it, or where a consumer that may create topics has
  subscribed to it and it was not there yet. So a topic that is deleted stays deleted until somebody sends to it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from typing import NamedTuple, Protocol

from barnabas.client.metadata import ClusterView


class ProducerTopics(Protocol):
    """What a producer has to send."""

    def topics_to_create(self) -> set[str]:
        """Return the topics with records that no request carries, where the producer may create topics."""
        ...

    def topics_in_use(self, since_s: float) -> set[str]:
        """Return the topics with records that are not acknowledged, or whose last batch was opened after `since_s`."""
        ...


class TopicsToRefresh(NamedTuple):
    """The topics of one refresh."""

    known: set[str] | None
    """Topics that asking must not create; None: all topics."""
    creatable: set[str]
    """Topics that are not there, as far as is known, and that asking may create."""


class TopicInterest:
    """The topics that one client is interested in.

    :param idle_s: how long a topic stays after its last use.
    :param sending: None: the client sends no records.
    """

    def __init__(self, idle_s: float, sending: ProducerTopics | None = None) -> None:
        self._idle_s = idle_s
        self._sending = sending
        self._used_at_s: dict[str, float] = {}
        self._awaited: Counter[str] = Counter()
        """How many calls wait for a topic that they may create."""
        self._held: frozenset[str] | None = frozenset()
        """None: all topics."""
        self._not_yet_there: set[str] = set()
        """Held topics that may be created, and that no metadata has shown since they are held."""

    def use(self, topics: Iterable[str], now_s: float) -> None:
        """Ask for these topics until they have not been used for `idle_s`."""
        for topic in topics:
            self._used_at_s[topic] = now_s

    def hold(self, topics: Collection[str] | None, *, auto_creates: bool) -> None:
        """Ask for these topics until others are held; None: for all topics."""
        before = self._held
        self._held = None if topics is None else frozenset(topics)
        if self._held is None or not auto_creates:
            self._not_yet_there.clear()
            return
        self._not_yet_there &= self._held
        self._not_yet_there |= self._held - (before or frozenset())

    def wait_for(self, topic: str) -> None:
        """A call waits for a topic, and may create it; `stop_waiting_for` ends that."""
        self._awaited[topic] += 1

    def stop_waiting_for(self, topic: str) -> None:
        """A call that has waited for a topic ends."""
        self._awaited[topic] -= 1
        if not self._awaited[topic]:
            del self._awaited[topic]

    def wanted(self, view: ClusterView, now_s: float) -> TopicsToRefresh:
        """Return what the next refresh asks for."""
        self._not_yet_there = {topic for topic in self._not_yet_there if view.partition_count(topic) is None}
        may_create = {*self._awaited, *self._not_yet_there}
        if self._sending is not None:
            may_create |= self._sending.topics_to_create()
        creatable = {topic for topic in may_create if view.partition_count(topic) is None}
        names = self.names(now_s)
        return TopicsToRefresh(None if names is None else names - creatable, creatable)

    def names(self, now_s: float) -> set[str] | None:
        """Return the topics that are of interest; None: all of them."""
        since_s = now_s - self._idle_s
        self._used_at_s = {topic: at_s for topic, at_s in self._used_at_s.items() if at_s > since_s}
        if self._held is None:
            return None
        names = {*self._used_at_s, *self._held, *self._awaited}
        return names if self._sending is None else names | self._sending.topics_in_use(since_s)
