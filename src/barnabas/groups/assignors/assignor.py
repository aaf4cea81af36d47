"""The assignors by the names that Kafka's clients use in JoinGroup, with what their members tell each other."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from barnabas.groups.assignors.range_round_robin import range_assign, round_robin_assign
from barnabas.groups.assignors.sharing import NOTHING, Assignment, Claim, Claims, PartitionCounts, Subscriptions
from barnabas.groups.assignors.sticky import cooperative_sticky_assign, sticky_assign
from barnabas.groups.assignors.user_data import decode_generation, decode_sticky, encode_generation, encode_sticky
from barnabas.model import TopicPartition
from barnabas.protocol.messages.consumer_protocol import ConsumerProtocolSubscription, OwnedPartitions


class Assign(Protocol):
    """Shares partitions out among members."""

    def __call__(
        self, subscriptions: Subscriptions, partition_counts: PartitionCounts, claims: Claims | None = None
    ) -> Assignment: ...


@dataclass(frozen=True, slots=True)
class Assignor:
    """A way to share, and how its members say what they have."""

    name: str
    assign: Assign
    is_cooperative: bool
    """Whether members may keep their partitions while they join (KIP-429); in the others they give all up first."""
    subscription_version: int
    """The version of the subscription that members of this library write."""
    subscribe: Callable[[Collection[str], Claim, Claim], ConsumerProtocolSubscription]
    """Makes a member's subscription out of the topics, what it has, and what it was assigned last."""
    claim: Callable[[ConsumerProtocolSubscription], Claim]
    """Reads what a member claims out of its subscription, which any client may have written."""


def _subscribe(topics: Collection[str], has: Claim, had: Claim) -> ConsumerProtocolSubscription:
    return ConsumerProtocolSubscription(topics=sorted(topics))


def _subscribe_sticky(topics: Collection[str], has: Claim, had: Claim) -> ConsumerProtocolSubscription:
    return ConsumerProtocolSubscription(topics=sorted(topics), user_data=encode_sticky(had))


def _subscribe_cooperative(topics: Collection[str], has: Claim, had: Claim) -> ConsumerProtocolSubscription:
    owned: dict[str, list[int]] = {}
    for tp in sorted(has.partitions):
        owned.setdefault(tp.topic, []).append(tp.partition)
    return ConsumerProtocolSubscription(
        topics=sorted(topics),
        user_data=encode_generation(has.generation),
        owned_partitions=[OwnedPartitions(topic=topic, partitions=numbers) for topic, numbers in owned.items()],
        generation_id=has.generation,
    )


def _claims_nothing(subscription: ConsumerProtocolSubscription) -> Claim:
    return NOTHING


def _sticky_claim(subscription: ConsumerProtocolSubscription) -> Claim:
    return decode_sticky(subscription.user_data)


def _cooperative_claim(subscription: ConsumerProtocolSubscription) -> Claim:
    owned = [TopicPartition(each.topic, number) for each in subscription.owned_partitions for number in each.partitions]
    generation = subscription.generation_id
    if generation < 0:
        generation = decode_generation(subscription.user_data)
    return Claim(tuple(owned), generation)


ASSIGNORS: Mapping[str, Assignor] = {
    assignor.name: assignor
    for assignor in (
        Assignor("range", range_assign, False, 0, _subscribe, _claims_nothing),
        Assignor("roundrobin", round_robin_assign, False, 0, _subscribe, _claims_nothing),
        Assignor("sticky", sticky_assign, False, 0, _subscribe_sticky, _sticky_claim),
        Assignor("cooperative-sticky", cooperative_sticky_assign, True, 2, _subscribe_cooperative, _cooperative_claim),
    )
}
"""By name, so that members of other clients can share a group."""
