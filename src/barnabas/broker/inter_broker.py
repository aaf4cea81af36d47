"""The APIs that brokers serve each other, on the inter-broker listener.

Only this listener accepts fetch requests with a replica id, because they advance the high watermark (CVE-2018-1288).
Brokers also use it to forward requests for leader elections, and to check whether other brokers have the metadata of
new topics. The listener serves no other APIs.
"""

from __future__ import annotations

from dataclasses import dataclass

from barnabas.broker.follower_sessions import FollowerSessions
from barnabas.broker.handlers.api_versions import api_versions
from barnabas.broker.handlers.elect_leaders import elect_leaders_here
from barnabas.broker.handlers.metadata import known_topics
from barnabas.broker.handlers.offset_for_leader_epoch import offset_for_leader_epoch
from barnabas.broker.handlers.replica_fetch import CheckBroker, replica_fetch
from barnabas.broker.handlers.sasl_authenticate import sasl_authenticate
from barnabas.broker.handlers.sasl_handshake import sasl_handshake
from barnabas.broker.pipeline.call import ServedApi, ServedApis
from barnabas.broker.pipeline.scheduler import CooperativeScheduler
from barnabas.broker.replica_manager import ReplicaManager
from barnabas.broker.requested_elections import RequestedElections
from barnabas.broker.topics import Topics
from barnabas.clock import Clock

SERVED: dict[int, ServedApi] = {
    served.api.key: served
    for served in (
        replica_fetch,
        api_versions,
        offset_for_leader_epoch,
        elect_leaders_here,
        known_topics,
        sasl_handshake,
        sasl_authenticate,
    )
}


@dataclass(frozen=True, slots=True)
class InterBrokerParts:
    """The components that the inter-broker handlers use. See `barnabas.broker.parts`."""

    topics: Topics
    replicas: ReplicaManager
    follower_sessions: FollowerSessions
    check_broker: CheckBroker
    elections: RequestedElections
    scheduler: CooperativeScheduler
    clock: Clock
    served: ServedApis


def inter_broker_apis(
    topics: Topics,
    replicas: ReplicaManager,
    follower_sessions: FollowerSessions,
    check_broker: CheckBroker,
    elections: RequestedElections,
    scheduler: CooperativeScheduler,
    clock: Clock,
) -> ServedApis:
    """Return the APIs of the inter-broker listener, bound to their parts."""
    parts = InterBrokerParts(topics, replicas, follower_sessions, check_broker, elections, scheduler, clock, SERVED)
    return {key: each.bind(parts) for key, each in SERVED.items()}
