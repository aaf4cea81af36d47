"""Manages the replica fetchers of this broker.

For each broker that leads followed partitions, there are one or more fetchers.
"""

from __future__ import annotations

import zlib
from collections.abc import Awaitable, Callable
from functools import partial

from barnabas.broker.follower_replica import FollowerReplica
from barnabas.broker.replica_fetcher import ReplicaFetcher, StoreLogStarts
from barnabas.broker.settings.static import BrokerConfig
from barnabas.broker.throttles import NO_FOLLOWER_THROTTLE, FollowerThrottle
from barnabas.clock import Clock
from barnabas.model import Node
from barnabas.net.client_connection import ClientConnection
from barnabas.replication.fetch_state import Limits

Dial = Callable[[str, int], Awaitable[ClientConnection]]
"""Connects to a host and port."""


class ReplicaFetcherManager:
    """Assigns each follower to a fetcher. Used from the event loop's thread only.

    :param dial: connects to an inter-broker listener.
    :param own: returns this broker's id and broker epoch for fetch requests to a leader. Its argument is the leader's
        id.
    :param store_log_starts: stores the log start offsets durably.
    :param throttle: the replication throttle.
    """

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        dial: Dial,
        own: Callable[[int], tuple[int, int]],
        store_log_starts: StoreLogStarts,
        throttle: FollowerThrottle = NO_FOLLOWER_THROTTLE,
    ) -> None:
        self._config = config
        self._clock = clock
        self._dial = dial
        self._own = own
        self._store_log_starts = store_log_starts
        self._throttle = throttle
        self._leaders: dict[int, Node] = {}
        self._fetchers: dict[tuple[int, int], ReplicaFetcher] = {}
        self._loop_of: dict[FollowerReplica, tuple[int, int]] = {}

    def follow(self, follower: FollowerReplica, leader: Node) -> None:
        """Start fetching for a replica.

        :param leader: the leader's id and inter-broker address. All followers of this leader use the new address.
        """
        self._leaders[leader.id] = leader
        if follower in self._loop_of:
            return
        number = zlib.crc32(str(follower.topic_partition).encode()) % self._config.num_replica_fetchers
        place = leader.id, number
        loop = self._fetchers.get(place)
        if loop is None:
            loop = self._fetchers[place] = self._new_fetcher(leader.id)
        self._loop_of[follower] = place
        loop.follow(follower)

    def unfollow(self, follower: FollowerReplica) -> None:
        """Stop fetching for a replica. An append in progress continues (`FollowerReplica.end` waits for it)."""
        place = self._loop_of.pop(follower, None)
        if place is None:
            return
        loop = self._fetchers[place]
        loop.unfollow(follower)
        if not len(loop):
            del self._fetchers[place]
            loop.close()

    def close(self) -> None:
        """Stop all fetchers."""
        for loop in self._fetchers.values():
            loop.close()
        self._fetchers.clear()
        self._loop_of.clear()

    def _new_fetcher(self, leader_id: int) -> ReplicaFetcher:
        config = self._config
        limits = Limits(
            max_wait_ms=config.replica_fetch_wait_max_ms,
            min_bytes=config.replica_fetch_min_bytes,
            max_bytes=config.replica_fetch_response_max_bytes,
            partition_max_bytes=config.replica_fetch_max_bytes,
            pause_s_max=config.replica_fetch_backoff_ms / 1000,
        )
        dial = partial(self._dial_leader, leader_id)
        timeout_s = config.replica_socket_timeout_ms / 1000
        return ReplicaFetcher(
            f"broker {leader_id}",
            dial,
            limits,
            partial(self._own, leader_id),
            self._store_log_starts,
            self._clock.monotonic,
            timeout_s,
            self._throttle,
        )

    async def _dial_leader(self, leader_id: int) -> ClientConnection:
        leader = self._leaders[leader_id]
        return await self._dial(leader.host, leader.port)
