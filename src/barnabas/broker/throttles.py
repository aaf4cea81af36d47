"""How fast this broker copies replicas that are to be copied slowly (KIP-73): as leader, as follower, between folders.

A replica is held back if its topic names it, the rate is exceeded, and it is not in sync. What is in sync is never
held back, since producers with acks=all wait for it; what it brings counts all the same. Clients are never held back.

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
    """The rates of one broker, and what has passed.

    :param now_s: monotonic seconds.
    """

    def __init__(self, config: BrokerConfig, now_s: Callable[[], float]) -> None:
        self.leader = ReplicationQuota(config.leader_replication_throttled_rate, now_s)
        self.follower = ReplicationQuota(config.follower_replication_throttled_rate, now_s)
        self.log_dirs = ReplicationQuota(config.replica_alter_log_dirs_io_max_bytes_per_second, now_s)

    def configure(self, config: BrokerConfig) -> None:
        """Use these rates from now on."""
        self.leader.set_rate(config.leader_replication_throttled_rate)
        self.follower.set_rate(config.follower_replication_throttled_rate)
        self.log_dirs.set_rate(config.replica_alter_log_dirs_io_max_bytes_per_second)


class LeaderThrottle:
    """What a leader does not give to followers for now.

    :param broker_id: of the leader.
    """

    def __init__(self, quota: ReplicationQuota, broker_id: int) -> None:
        self.quota = quota
        self._broker_id = broker_id

    def note(self, partition: LeaderReplica, size: int) -> None:
        """So many bytes of a partition go to a follower."""
        if self._counts(partition):
            self.quota.note(size)

    def holds_back(self, partition: LeaderReplica, follower: int) -> bool:
        """Whether a follower is to get nothing of a partition now."""
        if not self._counts(partition) or not self.quota.is_exceeded:
            return False
        return partition.followers is not None and not partition.followers.is_in_sync(follower)

    def _counts(self, partition: LeaderReplica) -> bool:
        throttled = partition.config.leader_throttled
        return throttled is not NONE_THROTTLED and (partition.topic_partition.partition, self._broker_id) in throttled


class FollowerThrottle:
    """What a follower does not ask its leaders for now.

    :param broker_id: of the follower.
    :param is_in_sync: whether a replica of this broker is, as far as it is known here.
    """

    def __init__(self, quota: ReplicationQuota, broker_id: int, is_in_sync: Callable[[TopicPartition], bool]) -> None:
        self.quota = quota
        self._broker_id = broker_id
        self._is_in_sync = is_in_sync

    def note(self, follower: FollowerReplica, size: int) -> bool:
        """So many bytes have come for a replica; return whether they count."""
        counts = self._counts(follower)
        if counts:
            self.quota.note(size)
        return counts

    def holds_back(self, follower: FollowerReplica) -> bool:
        """Whether nothing is to be asked for now."""
        if not self._counts(follower) or not self.quota.is_exceeded:
            return False
        return not self._is_in_sync(follower.topic_partition)

    def _counts(self, follower: FollowerReplica) -> bool:
        throttled = follower.config.follower_throttled
        return throttled is not NONE_THROTTLED and (follower.topic_partition.partition, self._broker_id) in throttled


NO_LIMIT = ReplicationQuota(LONG_MAX, lambda: 0.0)
NO_LEADER_THROTTLE = LeaderThrottle(NO_LIMIT, -1)
NO_FOLLOWER_THROTTLE = FollowerThrottle(NO_LIMIT, -1, lambda _: True)
