"""The events that the components of a broker publish, and their delivery.

A publisher does not know its subscribers. `Broker` registers the subscribers during startup. In addition to the events
in this module, `MetadataCache` publishes a `barnabas.broker.metadata_image.MetadataDelta` after each change of the
metadata image.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import Any, TypeVar

from barnabas.broker.leader_replica import LeaderReplica
from barnabas.broker.replica import Replica

E = TypeVar("E")


@dataclass(frozen=True, slots=True)
class RoleBegan:
    """A replica has become leader or follower in a new leader epoch, or its leader's broker has registered again."""

    replica: Replica


@dataclass(frozen=True, slots=True)
class RoleEnded:
    """A replica stops being leader or follower in its leader epoch. Its next role has not begun."""

    replica: Replica


@dataclass(frozen=True, slots=True)
class LeadershipChanged:
    """The set of partitions that this broker leads may have changed."""


@dataclass(frozen=True, slots=True)
class IsrChangeDue:
    """The ISR of a partition may need to change."""

    replica: LeaderReplica


@dataclass(frozen=True, slots=True)
class IsrSettled:
    """A round of ISR changes has finished, successfully or not."""


@dataclass(frozen=True, slots=True)
class ElectionPostponed:
    """An election is postponed: this broker may have to become the leader of a partition later."""


@dataclass(frozen=True, slots=True)
class LifeCountersDue:
    """The life counters must rise soon, so that older copies of the metadata store or of a disk can be detected."""


@dataclass(frozen=True, slots=True)
class TopicsDeleted:
    """Topics were deleted. Consumer groups must delete their committed offsets for these topics.

    :ivar topic_ids: the ids of the deleted topics.
    :ivar names: the names of the deleted topics, without names that new topics have now.
    """

    topic_ids: Collection[bytes]
    names: Collection[str]


class Events:
    """Delivers events to their subscribers, in the order of subscription. Used from the event loop's thread only."""

    def __init__(self) -> None:
        self._subscribers: dict[type, list[Callable[[Any], Awaitable[None] | None]]] = {}

    def subscribe(self, kind: type[E], receive: Callable[[E], Awaitable[None] | None]) -> None:
        """Register a function that is called with each subsequent event of the given class.

        :param receive: may be a coroutine function only if its events are published with `deliver`.
        """
        self._subscribers.setdefault(kind, []).append(receive)

    def publish(self, event: object) -> None:
        """Call the subscribers of an event. Subscribers must not raise exceptions and must not block."""
        for receive in self._subscribers.get(type(event), ()):
            receive(event)

    async def deliver(self, event: object) -> None:
        """Await the subscribers of an event one by one.

        :raises BarnabasError: a subscriber raised this error. Later subscribers were not called.
        """
        for receive in self._subscribers.get(type(event), ()):
            outcome = receive(event)
            if outcome is not None:
                await outcome
