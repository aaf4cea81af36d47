"""The type of a broker's replica, which has one role (leader or follower) in each leader epoch.

A role is an object: a `LeaderReplica` or a `FollowerReplica`. Both classes use a `ReplicaStorage` for the log
operations that leaders and followers share. At the end of a leader epoch, the role resigns, and its work on the log
ends. The next role then begins with the same log (`barnabas.broker.replica_manager`).
"""

from __future__ import annotations

from typing import TypeAlias

from barnabas.broker.follower_replica import FollowerReplica
from barnabas.broker.leader_replica import LeaderReplica

Replica: TypeAlias = LeaderReplica | FollowerReplica
