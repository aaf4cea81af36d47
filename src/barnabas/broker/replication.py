"""Replication on this broker: it fetches from leaders, and serves the fetches of followers.

Followers fetch from the inter-broker listener (`barnabas.broker.inter_broker`). A fetch request must contain the id of
a registered broker and its current broker epoch.
"""

from __future__ import annotations

from collections.abc import Callable

from barnabas import __version__
from barnabas.broker.broker_events import Events, RoleBegan, RoleEnded
from barnabas.broker.environment import Environment
from barnabas.broker.follower_replica import FollowerReplica
from barnabas.broker.follower_sessions import FollowerSessions
from barnabas.broker.inter_broker import inter_broker_apis
from barnabas.broker.metadata_propagation import MetadataPropagation
from barnabas.broker.pipeline.scheduler import CooperativeScheduler
from barnabas.broker.replica import Replica
from barnabas.broker.replica_fetcher_manager import ReplicaFetcherManager
from barnabas.broker.requested_elections import RequestedElections
from barnabas.broker.settings.listeners import inter_broker_listener
from barnabas.broker.settings.static import BrokerConfig
from barnabas.broker.throttles import FollowerThrottle, LeaderThrottle, Throttles
from barnabas.broker.topics import Topics
from barnabas.errors import ApiError, ErrorCode
from barnabas.model import Node, TopicPartition
from barnabas.net.client_connection import ClientConnection, ConnectionSecurity

CONNECT_TIMEOUT_S = 10.0


class Replication:
    """Runs fetchers for the followers on this broker, and serves followers on other brokers.

    Used from the event loop's thread only.

    :param own_epoch: returns the broker epoch of this broker's registration.
    :param throttles: the replication throttles.
    :param security: the TLS and SASL of connections to other brokers; None without both.
    """

    def __init__(
        self,
        config: BrokerConfig,
        topics: Topics,
        events: Events,
        scheduler: CooperativeScheduler,
        own_epoch: Callable[[], int],
        environment: Environment,
        throttles: Throttles,
        security: ConnectionSecurity | None = None,
    ) -> None:
        self._security = security
        self._topics = topics
        self._events = events
        self._own_epoch = own_epoch
        self._broker_id = config.broker_id
        self._dial_broker = environment.dial
        self._client_id = f"broker-{config.broker_id}"
        self._manager = ReplicaFetcherManager(
            config,
            environment.clock,
            self._dial,
            self._own_identity,
            topics.replicas.store_log_starts,
            FollowerThrottle(throttles.follower, config.broker_id, self._is_in_sync),
        )
        throttle = LeaderThrottle(throttles.leader, config.broker_id)
        sessions = FollowerSessions(environment.random_source.random_below, throttle)
        self.elections = RequestedElections(topics, config.broker_id, self.connect, scheduler)
        self.propagation = MetadataPropagation(topics, config.broker_id, self.connect)
        self._listener = inter_broker_listener(config)
        self.served = inter_broker_apis(
            topics, topics.replicas, sessions, self._check_broker, self.elections, scheduler, environment.clock
        )
        """The APIs for other brokers."""

    def begin(self) -> None:
        """Start fetching for all followers on this broker."""
        self._events.subscribe(RoleBegan, lambda event: self._follow(event.replica))
        self._events.subscribe(RoleEnded, lambda event: self._unfollow(event.replica))
        for replica in self._topics.replicas.all():
            self._follow(replica)

    def close(self) -> None:
        """Stop all fetches."""
        self._manager.close()

    def _follow(self, replica: Replica) -> None:
        leader = self._address_of(replica.leader)
        if isinstance(replica, FollowerReplica) and leader is not None:
            self._manager.follow(replica, leader)

    def _is_in_sync(self, where: TopicPartition) -> bool:
        info = self._topics.image.partition(where)
        return info is not None and self._broker_id in info.state.isr

    def _own_identity(self, leader: int) -> tuple[int, int]:
        epoch = self._topics.image.epoch_for_leader(leader, self._broker_id)
        return self._broker_id, self._own_epoch() if epoch is None else epoch

    def _address_of(self, broker_id: int) -> Node | None:
        """Return the inter-broker address of a live broker."""
        broker = self._topics.image.brokers.get(broker_id)
        endpoint = None if broker is None else broker.registration.endpoint(self._listener)
        return None if endpoint is None else Node(broker_id, endpoint.host, endpoint.port)

    async def connect(self, broker_id: int) -> ClientConnection:
        """Connect to the inter-broker listener of another broker.

        :raises BarnabasError: the broker is unreachable.
        """
        address = self._address_of(broker_id)
        if address is None:
            raise ApiError(ErrorCode.BROKER_NOT_AVAILABLE, f"the inter-broker address of broker {broker_id} is unknown")
        return await self._dial(address.host, address.port)

    def _unfollow(self, replica: Replica) -> None:
        if isinstance(replica, FollowerReplica):
            self._manager.unfollow(replica)

    async def _dial(self, host: str, port: int) -> ClientConnection:
        return await self._dial_broker(
            host,
            port,
            client_id=self._client_id,
            connect_timeout_s=CONNECT_TIMEOUT_S,
            software_version=__version__,
            security=self._security,
        )

    def _check_broker(self, broker_id: int, broker_epoch: int) -> None:
        known = self._topics.image.brokers.get(broker_id)
        if known is None or known.epoch != broker_epoch:
            message = f"broker {broker_id} is registered with another broker epoch"
            raise ApiError(ErrorCode.STALE_BROKER_EPOCH, message)
