"""The settings of how fast a broker copies replicas (KIP-73, KIP-113): each can be changed while it runs."""

from __future__ import annotations

from barnabas.broker.settings.rules import Rule, whole

THROTTLE_RULES: dict[str, Rule] = {
    "follower.replication.throttled.rate": whole(),
    "leader.replication.throttled.rate": whole(),
    "replica.alter.log.dirs.io.max.bytes.per.second": whole(),
}
