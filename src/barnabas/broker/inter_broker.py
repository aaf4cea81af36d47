"""What brokers serve each other, on a listener of their own.

Followers are believed there what nobody is believed on the listener for clients: that they are replicas, and how far
they have come (CVE-2018-1288). Beside that they pass on what an administrator wants and only another can do: to hand on
leadership, or to claim it; and they ask whether another has heard of a new topic. Nothing else is served there.
"""

from __future__ import annotations

from dataclasses import dataclass

from barnabas.broker.follower_sessions import FollowerSessions
from barnabas.broker.handlers.api_versions import api_versions
from barnabas.broker.handlers.elect_leaders import elect_leaders_here
from barnabas.broker.handlers.metadata import known_topics
from barnabas.broker.handlers.offset_for_leader_epoch import offset_for_leader_epoch
from barnabas.broker.handlers.replica_fetch import CheckBroker, replica_fetch
from barnabas.broker.pipeline.call import BROKERS, ServedApi, ServedApis
from barnabas.broker.pipeline.scheduler import CooperativeScheduler, RequestPipeline
from barnabas.broker.replica_manager import ReplicaManager
from barnabas.broker.requested_elections import RequestedElections
from barnabas.broker.topics import Topics
from barnabas.clock import Clock

SERVED: dict[int, ServedApi] = {
    served.api.key: served
    for served in (replica_fetch, api_versions, offset_for_leader_epoch, elect_leaders_here, known_topics)
}


@dataclass(frozen=True, slots=True)
class InterBrokerParts:
    """What these handlers may ask for; see `barnabas.broker.parts`."""

    topics: Topics
    replicas: ReplicaManager
    follower_sessions: FollowerSessions
    check_broker: CheckBroker
    elections: RequestedElections
    scheduler: CooperativeScheduler
    clock: Clock
    served: ServedApis


def inter_broker_requests(
    topics: Topics,
    replicas: ReplicaManager,
    follower_sessions: FollowerSessions,
    check_broker: CheckBroker,
    elections: RequestedElections,
    scheduler: CooperativeScheduler,
    clock: Clock,
) -> RequestPipeline:
    """Return the pipeline of the listener that brokers have for each other."""
    parts = InterBrokerParts(topics, replicas, follower_sessions, check_broker, elections, scheduler, clock, SERVED)
    return RequestPipeline({key: each.bind(parts) for key, each in SERVED.items()}, scheduler, BROKERS)
