"""All assignors by their names in JoinGroup requests, with the encoding of subscriptions for each assignor."""

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
    """A function that assigns partitions to members."""

    def __call__(
        self, subscriptions: Subscriptions, partition_counts: PartitionCounts, claims: Claims | None = None
    ) -> Assignment: ...


@dataclass(frozen=True, slots=True)
class Assignor:
    """An assignor, and the encoding of subscriptions for this assignor."""

    name: str
    assign: Assign
    is_cooperative: bool
    """True if members keep their partitions during a rebalance (KIP-429).

    Otherwise, members revoke all partitions first.
    """
    subscription_version: int
    """The version of the subscriptions that clients of this library encode."""
    subscribe: Callable[[Collection[str], Claim, Claim], ConsumerProtocolSubscription]
    """Returns the encoded subscription of a member with these topics, this claim, and this last assignment."""
    claim: Callable[[ConsumerProtocolSubscription], Claim]
    """Returns the claim from a member's subscription. Any client may have encoded the subscription."""


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
"""The assignors by name. The names are those of Kafka's clients, so that different clients can be in the same group."""
