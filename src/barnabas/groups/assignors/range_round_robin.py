"""The range and round-robin assignors, which ignore the current owners of partitions.

Members and partitions are sorted first, so each member would compute the same assignment. In Algorithm 1 of the paper
(3.2), each consumer computes its own part, so the algorithm relies on this property. `range_assign` implements
Algorithm 1: sort the partitions of a topic, sort the consumers, and assign consecutive ranges of partitions.
"""

from __future__ import annotations

from itertools import cycle

from barnabas.groups.assignors.sharing import Assignment, Claims, PartitionCounts, Subscriptions
from barnabas.model import TopicPartition


def range_assign(
    subscriptions: Subscriptions, partition_counts: PartitionCounts, claims: Claims | None = None
) -> Assignment:
    """Assign a range of each topic's partitions to each subscriber. The first subscribers may get one partition more.

    :param claims: ignored.

    >>> range_assign({"a": ["clicks"], "b": ["clicks"]}, {"clicks": 3})["a"]
    [TopicPartition(topic='clicks', partition=0), TopicPartition(topic='clicks', partition=1)]
    """
    assignment: Assignment = {member_id: [] for member_id in subscriptions}
    for topic in sorted(_wanted_topics(subscriptions)):
        members = sorted(member_id for member_id, topics in subscriptions.items() if topic in topics)
        share, extra = divmod(partition_counts.get(topic, 0), len(members))
        start = 0
        for index, member_id in enumerate(members):
            end = start + share + (1 if index < extra else 0)
            assignment[member_id] += [TopicPartition(topic, partition) for partition in range(start, end)]
            start = end
    return assignment


def round_robin_assign(
    subscriptions: Subscriptions, partition_counts: PartitionCounts, claims: Claims | None = None
) -> Assignment:
    """Assign the partitions of all topics to the members in turn. Members that do not subscribe to a topic are skipped.

    :param claims: ignored.

    >>> round_robin_assign({"a": ["x", "y"], "b": ["x", "y"]}, {"x": 1, "y": 1})["b"]
    [TopicPartition(topic='y', partition=0)]
    """
    assignment: Assignment = {member_id: [] for member_id in subscriptions}
    members = cycle(sorted(subscriptions))
    for topic in sorted(_wanted_topics(subscriptions)):
        for partition in range(partition_counts.get(topic, 0)):
            member_id = next(each for each in members if topic in subscriptions[each])
            assignment[member_id].append(TopicPartition(topic, partition))
    return assignment


def _wanted_topics(subscriptions: Subscriptions) -> set[str]:
    return {topic for topics in subscriptions.values() for topic in topics}
