"""The readiness of a broker, which `/readyz` shows (`barnabas.net.status_server`).

A broker is ready when it is registered, its logs and groups are loaded, and its replicas are in sync. A rolling restart
waits until the broker is ready before it stops the next broker. Offline replicas on other brokers are ignored.
Otherwise, one broker that is down for a long time would make all other brokers unready.
"""

from __future__ import annotations

from dataclasses import dataclass

from barnabas.broker.group_service import GroupService
from barnabas.broker.membership import Membership
from barnabas.broker.topics import Topics
from barnabas.errors import ErrorCode

STARTING = "the broker is starting"
STOPPING = "the broker is stopping"


@dataclass(frozen=True, slots=True)
class Readiness:
    """The readiness checks. Any thread may call `reasons_against`.

    :param out_of_sync_max: the number of this broker's replicas that may be out of sync.
    """

    broker_id: int
    membership: Membership
    topics: Topics
    groups: GroupService
    out_of_sync_max: int

    def reasons_against(self) -> list[str]:
        """Return the reasons why the broker is not ready, or an empty list if it is ready."""
        reasons = []
        if not self.membership.is_member:
            reasons.append("this broker is not registered in the metadata store, and leads no partitions")
        if loading := self._loading_count():
            reasons.append(f"{loading} partitions of groups are still loading")
        out_of_sync = self._out_of_sync_count()
        if out_of_sync > self.out_of_sync_max:
            reasons.append(f"{out_of_sync} replicas of this broker are out of sync, more than {self.out_of_sync_max}")
        return reasons

    def _loading_count(self) -> int:
        shards = list(self.groups.runtime.shards)
        return sum(shard.error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS for shard in shards)

    def _out_of_sync_count(self) -> int:
        return sum(
            self.broker_id in info.replicas and self.broker_id not in info.state.isr
            for topic in self.topics.image.topics.values()
            for info in topic.partitions
        )
