"""The type of a broker's replica: it has one role in each leader epoch.

A role is an object: a `LeaderReplica` or a `FollowerReplica`. Both use a `ReplicaStorage` for the work on the log that
the two roles share. At the end of a leader epoch, the role resigns and its work ends. The next role then begins with
the same log (`barnabas.broker.replica_manager`).
"""

from __future__ import annotations

from typing import TypeAlias

from barnabas.broker.follower_replica import FollowerReplica
from barnabas.broker.leader_replica import LeaderReplica

Replica: TypeAlias = LeaderReplica | FollowerReplica
