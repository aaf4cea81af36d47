"""The sticky assignors (KIP-54), which choose a balanced assignment that moves the fewest partitions.

`cooperative_sticky_assign` (KIP-429) reaches the same assignment in two rebalances, so that members need not stop
consuming. In the first rebalance, a partition that moves to another member is not assigned. The owner revokes this
partition and joins again, and the second rebalance assigns it to the other member.
"""

from __future__ import annotations

from collections import deque

from barnabas.groups.assignors.fewest_moves import share_by_fewest_moves
from barnabas.groups.assignors.sharing import Assignment, Claims, PartitionCounts, Subscriptions, owners
from barnabas.model import TopicPartition


def sticky_assign(
    subscriptions: Subscriptions, partition_counts: PartitionCounts, claims: Claims | None = None
) -> Assignment:
    """Return a balanced assignment that moves as few partitions as possible.

    In a balanced assignment, the sum of the squared partition counts is minimal. If all members subscribe to the same
    topics, their partition counts differ by at most one.

    >>> from barnabas.groups.assignors.sharing import Claim
    >>> had = Claim((TopicPartition("clicks", 1), TopicPartition("clicks", 2)), generation=5)
    >>> sticky_assign({"a": ["clicks"], "b": ["clicks"]}, {"clicks": 4}, {"b": had})["b"]
    [TopicPartition(topic='clicks', partition=1), TopicPartition(topic='clicks', partition=2)]
    """
    wanted = {
        member_id: frozenset(topic for topic in topics if topic in partition_counts)
        for member_id, topics in subscriptions.items()
    }
    owner_of = owners(subscriptions, partition_counts, claims or {})
    if len(set(wanted.values())) > 1:
        return share_by_fewest_moves(wanted, partition_counts, owner_of)
    partitions = [
        TopicPartition(topic, partition)
        for topic in sorted(frozenset[str]().union(*wanted.values()))
        for partition in range(partition_counts[topic])
    ]
    return _share_equally(sorted(subscriptions), partitions, owner_of)


def cooperative_sticky_assign(
    subscriptions: Subscriptions, partition_counts: PartitionCounts, claims: Claims | None = None
) -> Assignment:
    """Return the assignment of `sticky_assign`, except partitions that another member must revoke first.

    :return: an assignment in which no member gets a partition that another member claims.
    """
    claims = claims or {}
    claimants: dict[TopicPartition, set[str]] = {}
    for member_id, claim in claims.items():
        for tp in claim.partitions:
            claimants.setdefault(tp, set()).add(member_id)
    return {
        member_id: [tp for tp in share if tp not in claimants or member_id in claimants[tp]]
        for member_id, share in sticky_assign(subscriptions, partition_counts, claims).items()
    }


def _share_equally(
    members: list[str], partitions: list[TopicPartition], owner_of: dict[TopicPartition, str]
) -> Assignment:
    """Return a balanced assignment for members with the same subscriptions. Both lists must be sorted."""
    owned: Assignment = {member_id: [] for member_id in members}
    free: list[TopicPartition] = []
    for tp in partitions:
        (owned[owner_of[tp]] if tp in owner_of else free).append(tp)
    share, extra = divmod(len(partitions), len(members)) if members else (0, 0)
    # If the count is not divisible, let the members that own the most partitions keep one more. This saves one move per
    # member.
    by_wealth = sorted(members, key=lambda member_id: -len(owned[member_id]))
    room = {member_id: share + (1 if place < extra else 0) for place, member_id in enumerate(by_wealth)}
    for member_id in members:
        free += owned[member_id][room[member_id] :]
        del owned[member_id][room[member_id] :]
    takers = deque(member_id for member_id in members if len(owned[member_id]) < room[member_id])
    for tp in sorted(free):
        member_id = takers.popleft()
        owned[member_id].append(tp)
        if len(owned[member_id]) < room[member_id]:
            takers.append(member_id)
    return {member_id: sorted(share) for member_id, share in owned.items()}
