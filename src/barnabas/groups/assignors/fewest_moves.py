"""The best sharing where members want different topics: a flow of least cost.

Cost is, first, the sum of the squared numbers of partitions that members have (convex, so the least sum is the
best balance), and second, the number of partitions that are not with their owner. A sharing can be bettered
exactly when there is a way of hand-overs, from member to member, that lowers the cost: one that ends where it
began (a cycle), or one that leaves its first member with one partition less and its last with one more. So:
begin with a good guess, and follow such ways until there is none (negative cycle cancelling, with Bellman and
Ford's search). See Harvey, Ladner, Lovász, Tamir, "Semi-matchings for bipartite graphs and load balancing",
2003, for the balance alone.

Meant for groups of up to a few hundred members; the search takes time with the square of their number.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import NamedTuple

from barnabas.groups.assignors.sharing import Assignment, PartitionCounts
from barnabas.model import TopicPartition


class HandOver(NamedTuple):
    """One member may give one partition to another; `cost` is by how many the partitions away from home grow."""

    cost: int
    tp: TopicPartition


def share_by_fewest_moves(
    wanted: Mapping[str, frozenset[str]], partition_counts: PartitionCounts, owner_of: Mapping[TopicPartition, str]
) -> Assignment:
    """Share out, as balanced as can be, then with as few partitions moved from their owner as can be.

    :param wanted: member id to the topics that it wants, all of them in `partition_counts`.
    :param owner_of: who has which partition now; each owner wants the topic.
    """
    sharing = _Sharing(wanted, partition_counts, owner_of)
    while way := sharing.cheaper_way():
        for giver, taker in pairwise(way):
            sharing.hand_over(giver, taker)
    return sharing.result()


class _Sharing:
    """A sharing that gets better step by step. Invariant: every partition that somebody wants is with a member."""

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
        """Those whose `_ways_from` must be looked at anew."""
        self._moves_weight = 1 + sum(partition_counts.values())
        # What few want goes first, so that those who want much fill up behind it.
        for topic in sorted(partition_counts, key=lambda topic: (len(self._takers[topic]), topic)):
            for partition in range(partition_counts[topic] if self._takers[topic] else 0):
                tp = TopicPartition(topic, partition)
                home = owner_of.get(tp) or min(self._takers[topic], key=lambda each: len(self._held[each]))
                self._held[home].add(tp)

    def result(self) -> Assignment:
        return {member_id: sorted(held) for member_id, held in self._held.items()}

    def hand_over(self, giver: str, taker: str) -> None:
        """Let `giver` give what is cheapest to give to `taker`."""
        tp = self._ways_from[giver][taker].tp
        self._held[giver].remove(tp)
        self._held[taker].add(tp)
        # The taker is the next giver: what it gives was found before it took this one, and is still with it. So
        # they are looked at anew only when the next way is looked for.
        self._stale.update((giver, taker))

    def cheaper_way(self) -> list[str]:
        """Return members along whom to hand over one partition each, so that the cost falls; none if it cannot."""
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
        """Return how much the `count`-th partition of a member adds to the cost."""
        return self._moves_weight * (2 * count - 1)

    def _relax(self, changed: list[str], cost: dict[str, int], before: dict[str, str]) -> list[str]:
        """Look one step further from those who became cheaper; return who became cheaper now."""
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
        """Return, for every member that `giver` can give something, what is cheapest to give."""
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
    """Return the members of the cycle that the way to `member_id` comes from, the first one again at the end."""
    for _ in range(len(before)):
        member_id = before[member_id]
    cycle = [member_id, before[member_id]]
    while cycle[-1] != member_id:
        cycle.append(before[cycle[-1]])
    return cycle[::-1]
