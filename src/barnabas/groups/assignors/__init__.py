"""Partition assignors for the leader of a group: pure functions of subscriptions, owned partitions and topics.

`range_round_robin` ignores the current owners of partitions; `sticky` keeps them. `assignor` contains all by name.
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
