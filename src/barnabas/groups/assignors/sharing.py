"""The types that assignors use (subscriptions, claims and assignments), and the current owners of partitions."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from barnabas.model import TopicPartition

NO_GENERATION = -1

Subscriptions = Mapping[str, Collection[str]]
"""The subscribed topics of each member, by member id."""

PartitionCounts = Mapping[str, int]
"""The number of partitions of each topic. Topics that do not exist yet are missing, and are ignored."""

Assignment = dict[str, list[TopicPartition]]
"""The assigned partitions of each member, by member id. The list of a member without partitions is empty."""


@dataclass(frozen=True, slots=True)
class Claim:
    """The partitions that a member claims to own, and the group generation in which they were assigned."""

    partitions: tuple[TopicPartition, ...] = ()
    generation: int = NO_GENERATION


NOTHING = Claim()

Claims = Mapping[str, Claim]
"""The claim of each member, by member id. A member that is not in the mapping claims nothing."""


def owners(
    subscriptions: Subscriptions, partition_counts: PartitionCounts, claims: Claims
) -> dict[TopicPartition, str]:
    """Return the current owner of each partition, according to the members' claims.

    A claim is valid if the partition exists and the member still subscribes to the topic. If two members claim a
    partition, the member with the later generation owns it, because the other member has missed a generation (KIP-792).
    If the generations are equal, no member owns the partition, because the valid claim is unknown.

    >>> tp = TopicPartition("clicks", 0)
    >>> owners({"a": ["clicks"], "b": ["clicks"]}, {"clicks": 1}, {"a": Claim((tp,), 3), "b": Claim((tp,), 4)})
    {TopicPartition(topic='clicks', partition=0): 'b'}
    """
    best: dict[TopicPartition, tuple[int, str | None]] = {}
    for member_id, topics in subscriptions.items():
        claim = claims.get(member_id, NOTHING)
        for tp in set(claim.partitions):
            if tp.topic not in topics or not 0 <= tp.partition < partition_counts.get(tp.topic, 0):
                continue
            generation, _ = best.get(tp, (claim.generation - 1, None))
            if claim.generation > generation:
                best[tp] = (claim.generation, member_id)
            elif claim.generation == generation:
                best[tp] = (generation, None)
    return {tp: member_id for tp, (_, member_id) in best.items() if member_id is not None}
