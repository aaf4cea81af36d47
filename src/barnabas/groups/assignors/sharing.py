"""The words of sharing out: who wants what, who has what, who gets what."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from barnabas.model import TopicPartition

NO_GENERATION = -1

Subscriptions = Mapping[str, Collection[str]]
"""Member id to the topics that it wants."""

PartitionCounts = Mapping[str, int]
"""Topic to the number of its partitions. A topic that is not in it does not exist yet, and is passed over."""

Assignment = dict[str, list[TopicPartition]]
"""Member id to its partitions; every member is in it, if only with an empty list."""


@dataclass(frozen=True, slots=True)
class Claim:
    """What a member says that it has, and since which generation of the group."""

    partitions: tuple[TopicPartition, ...] = ()
    generation: int = NO_GENERATION


NOTHING = Claim()

Claims = Mapping[str, Claim]
"""Member id to its claim; a member that is not in it claims nothing."""


def owners(
    subscriptions: Subscriptions, partition_counts: PartitionCounts, claims: Claims
) -> dict[TopicPartition, str]:
    """Return who has which partition, out of what members claim.

    A claim counts where the partition exists and the member still wants the topic. If two members claim the same
    partition, the one with the later generation has it; the other one missed a generation (KIP-792). If their
    generation is the same, neither has it: it cannot be known which of them is right.

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
