"""The events of a broker's parts, and their delivery.

A part publishes an event and knows none of its subscribers. `Broker` subscribes the parts while it starts. Besides the
events here, `barnabas.broker.metadata_image.MetadataDelta` is published whenever the image of the cluster changes.
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
    """A replica has a new role, or the broker of its leader has begun another life."""

    replica: Replica


@dataclass(frozen=True, slots=True)
class RoleEnded:
    """The role of a replica ends now; the next role has not begun."""

    replica: Replica


@dataclass(frozen=True, slots=True)
class LeadershipChanged:
    """This broker may lead other partitions than before."""


@dataclass(frozen=True, slots=True)
class IsrChangeDue:
    """The in-sync replicas of a partition may have to change."""

    replica: LeaderReplica


@dataclass(frozen=True, slots=True)
class IsrSettled:
    """Changes of in-sync replicas are no longer under way, whatever became of them."""


@dataclass(frozen=True, slots=True)
class ElectionPostponed:
    """This broker may have to claim the leadership of a partition later."""


@dataclass(frozen=True, slots=True)
class LifeCountersDue:
    """The life counters must show soon that another copy of the metadata tree is older, or that this copy is."""


@dataclass(frozen=True, slots=True)
class TopicsDeleted:
    """Topics have left the metadata tree, and groups must forget their offsets in these topics.

    :ivar topic_ids: of the deleted topics.
    :ivar names: of those deleted topics that have not been created again.
    """

    topic_ids: Collection[bytes]
    names: Collection[str]


class Events:
    """Delivers events to their subscribers, in the order of subscription. Used from the event loop's thread only."""

    def __init__(self) -> None:
        self._subscribers: dict[type, list[Callable[[Any], Awaitable[None] | None]]] = {}

    def subscribe(self, kind: type[E], receive: Callable[[E], Awaitable[None] | None]) -> None:
        """Call a function with each event of a class from now on.

        :param receive: may be a coroutine function only for events that are published with `deliver`.
        """
        self._subscribers.setdefault(kind, []).append(receive)

    def publish(self, event: object) -> None:
        """Call the subscribers of an event. They must not raise, nor block."""
        for receive in self._subscribers.get(type(event), ()):
            receive(event)

    async def deliver(self, event: object) -> None:
        """Call the subscribers of an event one after the other, and wait for each.

        :raises BarnabasError: a subscriber raised it; later subscribers were not called.
        """
        for receive in self._subscribers.get(type(event), ()):
            outcome = receive(event)
            if outcome is not None:
                await outcome
