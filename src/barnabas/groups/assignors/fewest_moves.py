"""The best assignment for members with different subscriptions: a minimum-cost flow.

The cost consists of two parts. The first part is the sum of the squared partition counts of all members. It is minimal
for the best balance. The second part is the number of partitions that are not assigned to their owner.

An assignment can be improved if and only if a path of moves between members reduces the cost. Such a path is a cycle,
or its first member loses a partition and its last member gains a partition. The algorithm starts with a good initial
assignment, and applies such paths until there are none (negative cycle canceling with a Bellman-Ford search). For the
balance alone, see Harvey, Ladner, Lovász, Tamir, "Semi-matchings for bipartite graphs and load balancing", 2003.

The search is quadratic in the number of members, so it is suitable for groups of up to a few hundred members.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import NamedTuple

from barnabas.groups.assignors.sharing import Assignment, PartitionCounts
from barnabas.model import TopicPartition


class HandOver(NamedTuple):
    """A possible move of one partition to another member.

    `cost` is the change in the number of partitions that are not assigned to their owner.
    """

    cost: int
    tp: TopicPartition


def share_by_fewest_moves(
    wanted: Mapping[str, frozenset[str]], partition_counts: PartitionCounts, owner_of: Mapping[TopicPartition, str]
) -> Assignment:
    """Return the best-balanced assignment that moves the fewest partitions away from their owners.

    :param wanted: the subscribed topics of each member. All these topics must be in `partition_counts`.
    :param owner_of: the current owner of each partition. Each owner must subscribe to the partition's topic.
    """
    sharing = _Sharing(wanted, partition_counts, owner_of)
    while way := sharing.cheaper_way():
        for giver, taker in pairwise(way):
            sharing.hand_over(giver, taker)
    return sharing.result()


class _Sharing:
    """An assignment that is improved step by step. Invariant: each subscribed partition is assigned to a member."""

    def __init__(
        self,
        wanted: Mapping[str, frozenset[str]],
        partition_counts: PartitionCounts,
        owner_of: Mapping[TopicPartition, str],
    ) -> None:
        self._owner_of = owner_of
        self._members = sorted(wanted)
        self._takers = {topic: [each for each in self._members if topic in wanted[each]] for topic in partition_counts}
        self._held: dict[str, set[TopicPartition]] = {member_id: set() for member_id in self._members}
        self._ways_from: dict[str, dict[str, HandOver]] = {}
        self._stale = set(self._members)
        """The members whose entry in `_ways_from` is outdated."""
        self._moves_weight = 1 + sum(partition_counts.values())
        # Assign topics with few subscribers first, so that members with more topics get partitions of the other topics.
        for topic in sorted(partition_counts, key=lambda topic: (len(self._takers[topic]), topic)):
            for partition in range(partition_counts[topic] if self._takers[topic] else 0):
                tp = TopicPartition(topic, partition)
                home = owner_of.get(tp) or min(self._takers[topic], key=lambda each: len(self._held[each]))
                self._held[home].add(tp)

    def result(self) -> Assignment:
        return {member_id: sorted(held) for member_id, held in self._held.items()}

    def hand_over(self, giver: str, taker: str) -> None:
        """Move the partition with the lowest cost from `giver` to `taker`."""
        tp = self._ways_from[giver][taker].tp
        self._held[giver].remove(tp)
        self._held[taker].add(tp)
        # The taker gives the next partition on the path, which it already had before this move. So the moves of both
        # members need not be computed again before the next path.
        self._stale.update((giver, taker))

    def cheaper_way(self) -> list[str]:
        """Return a path of members that reduces the cost if each member gives one partition to the next member.

        Return an empty path if there is none.
        """
        for member_id in self._stale:
            self._ways_from[member_id] = self._hand_overs(member_id)
        self._stale.clear()
        cost = {member_id: -self._balance_cost(member_id, len(self._held[member_id])) for member_id in self._members}
        before: dict[str, str] = {}
        changed = self._members
        for _ in range(len(self._members) + 1):
            changed = self._relax(changed, cost, before)
            if not changed:
                return self._cheaper_end(cost, before)
        return _cycle(changed[0], before)

    def _balance_cost(self, member_id: str, count: int) -> int:
        """Return the balance cost that the `count`-th partition of a member adds."""
        return self._moves_weight * (2 * count - 1)

    def _relax(self, changed: list[str], cost: dict[str, int], before: dict[str, str]) -> list[str]:
        """Extend the paths from the members in `changed`. Return the members whose path cost decreased."""
        cheaper: dict[str, None] = {}
        for giver in changed:
            for taker, hand_over in self._ways_from[giver].items():
                if cost[giver] + hand_over.cost < cost[taker]:
                    cost[taker] = cost[giver] + hand_over.cost
                    before[taker] = giver
                    cheaper[taker] = None
        return list(cheaper)

    def _cheaper_end(self, cost: dict[str, int], before: dict[str, str]) -> list[str]:
        ends = {each: cost[each] + self._balance_cost(each, len(self._held[each]) + 1) for each in self._members}
        end = min(self._members, key=lambda each: ends[each], default=None)
        if end is None or ends[end] >= 0:
            return []
        way = [end]
        while way[-1] in before:
            way.append(before[way[-1]])
        return way[::-1]

    def _hand_overs(self, giver: str) -> dict[str, HandOver]:
        """Return the move with the lowest cost from `giver` to each member that can take one of its partitions."""
        cheapest: dict[str, HandOver] = {}
        for tp in sorted(self._held[giver]):
            owner = self._owner_of.get(tp)
            if owner is not None and owner != giver:
                cheapest[owner] = HandOver(-1, tp)
        by_topic: dict[str, HandOver] = {}
        for tp in sorted(self._held[giver]):
            each = HandOver(1 if self._owner_of.get(tp) == giver else 0, tp)
            if tp.topic not in by_topic or each.cost < by_topic[tp.topic].cost:
                by_topic[tp.topic] = each
        for topic, each in by_topic.items():
            for taker in self._takers[topic]:
                if taker != giver and (taker not in cheapest or each.cost < cheapest[taker].cost):
                    cheapest[taker] = each
        return cheapest


def _cycle(member_id: str, before: Mapping[str, str]) -> list[str]:
    """Return the members of the cycle that leads to `member_id`. The first member is also the last element."""
    for _ in range(len(before)):
        member_id = before[member_id]
    cycle = [member_id, before[member_id]]
    while cycle[-1] != member_id:
        cycle.append(before[cycle[-1]])
    return cycle[::-1]
