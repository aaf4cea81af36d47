"""Partition assignors for the leader of a group: pure functions of subscriptions, owned partitions and topics.

The assignors in `range_round_robin` ignore the current owners of partitions. The assignors in `sticky` keep partitions
with their owners. `assignor` contains all assignors by name.
"""

from barnabas.groups.assignors.assignor import ASSIGNORS, Assignor
from barnabas.groups.assignors.range_round_robin import range_assign, round_robin_assign
from barnabas.groups.assignors.sharing import (
    NO_GENERATION,
    NOTHING,
    Assignment,
    Claim,
    Claims,
    PartitionCounts,
    Subscriptions,
    owners,
)
from barnabas.groups.assignors.sticky import cooperative_sticky_assign, sticky_assign

__all__ = [
    "ASSIGNORS",
    "NOTHING",
    "NO_GENERATION",
    "Assignment",
    "Assignor",
    "Claim",
    "Claims",
    "PartitionCounts",
    "Subscriptions",
    "cooperative_sticky_assign",
    "owners",
    "range_assign",
    "round_robin_assign",
    "sticky_assign",
]
