"""The replication throttles of this broker (KIP-73): for its leaders, for its followers, and for moves between log
directories.

A replica is throttled if its topic lists it, the rate is exceeded, and it is not in sync. In-sync replicas are never
throttled, because producers with acks=all wait for them, but their bytes count towards the rate. Client requests are
not throttled.

Used from the event loop's thread only.
"""

from __future__ import annotations

from collections.abc import Callable

from barnabas.broker.follower_replica import FollowerReplica
from barnabas.broker.leader_replica import LeaderReplica
from barnabas.broker.settings.rules import LONG_MAX
from barnabas.broker.settings.static import BrokerConfig
from barnabas.model import TopicPartition
from barnabas.replication.quota import NONE_THROTTLED, ReplicationQuota


class Throttles:
    """The three replication quotas of one broker.

    :param now_s: returns monotonic seconds.
    """

    def __init__(self, config: BrokerConfig, now_s: Callable[[], float]) -> None:
        self.leader = ReplicationQuota(config.leader_replication_throttled_rate, now_s)
        self.follower = ReplicationQuota(config.follower_replication_throttled_rate, now_s)
        self.log_dirs = ReplicationQuota(config.replica_alter_log_dirs_io_max_bytes_per_second, now_s)

    def configure(self, config: BrokerConfig) -> None:
        """Apply new rates."""
        self.leader.set_rate(config.leader_replication_throttled_rate)
        self.follower.set_rate(config.follower_replication_throttled_rate)
        self.log_dirs.set_rate(config.replica_alter_log_dirs_io_max_bytes_per_second)


class LeaderThrottle:
    """Decides which partitions the leaders on this broker withhold from followers.

    :param broker_id: the id of the leader's broker.
    """

    def __init__(self, quota: ReplicationQuota, broker_id: int) -> None:
        self.quota = quota
        self._broker_id = broker_id

    def note(self, partition: LeaderReplica, size: int) -> None:
        """Count the bytes of a throttled partition that are sent to a follower."""
        if self._counts(partition):
            self.quota.note(size)

    def holds_back(self, partition: LeaderReplica, follower: int) -> bool:
        """Return whether records of a partition must not be sent to a follower now."""
        if not self._counts(partition) or not self.quota.is_exceeded:
            return False
        return partition.followers is not None and not partition.followers.is_in_sync(follower)

    def _counts(self, partition: LeaderReplica) -> bool:
        throttled = partition.config.leader_throttled
        return throttled is not NONE_THROTTLED and (partition.topic_partition.partition, self._broker_id) in throttled


class FollowerThrottle:
    """Decides which partitions the followers on this broker omit from fetch requests.

    :param broker_id: the id of the follower's broker.
    :param is_in_sync: returns whether a replica of this broker is in sync, according to this broker's metadata image.
    """

    def __init__(self, quota: ReplicationQuota, broker_id: int, is_in_sync: Callable[[TopicPartition], bool]) -> None:
        self.quota = quota
        self._broker_id = broker_id
        self._is_in_sync = is_in_sync

    def note(self, follower: FollowerReplica, size: int) -> bool:
        """Count the bytes that a throttled replica received. Return whether they count towards the quota."""
        counts = self._counts(follower)
        if counts:
            self.quota.note(size)
        return counts

    def holds_back(self, follower: FollowerReplica) -> bool:
        """Return whether a replica must not be fetched now."""
        if not self._counts(follower) or not self.quota.is_exceeded:
            return False
        return not self._is_in_sync(follower.topic_partition)

    def _counts(self, follower: FollowerReplica) -> bool:
        throttled = follower.config.follower_throttled
        return throttled is not NONE_THROTTLED and (follower.topic_partition.partition, self._broker_id) in throttled


NO_LIMIT = ReplicationQuota(LONG_MAX, lambda: 0.0)
NO_LEADER_THROTTLE = LeaderThrottle(NO_LIMIT, -1)
NO_FOLLOWER_THROTTLE = FollowerThrottle(NO_LIMIT, -1, lambda _: True)
