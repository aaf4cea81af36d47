"""The replicas of a broker: each has one role in each leader epoch.

A role is an object: a `LeaderReplica` or a `FollowerReplica`. Both hold a `ReplicaStorage`, the work on the log that
roles have in common. When the leader epoch ends, the role resigns, its work ends, and the next role begins with the
same log (`barnabas.broker.replica_manager`).
"""

from __future__ import annotations

from typing import TypeAlias

from barnabas.broker.follower_replica import FollowerReplica
from barnabas.broker.leader_replica import LeaderReplica

Replica: TypeAlias = LeaderReplica | FollowerReplica
