"""The groups of one partition of `__consumer_offsets` that this broker leads: their states, offsets, and log.

While the partition is being loaded nothing is told of its groups, and nothing is changed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from barnabas.broker.group_loading import Loaded, load_partition
from barnabas.broker.group_log import GroupLog
from barnabas.errors import ApiError, ErrorCode
from barnabas.groups.offsets import GroupOffsets
from barnabas.groups.records import Change, OffsetRecord

if TYPE_CHECKING:
    from barnabas.broker.leader_replica import LeaderReplica
    from barnabas.broker.pipeline.reply import Steps
    from barnabas.broker.settings.static import BrokerConfig
    from barnabas.broker.topics import Topics
    from barnabas.broker.turns import Turns
    from barnabas.clock import Clock
    from barnabas.groups.coordinator import GroupCoordinator
    from barnabas.groups.results import Reply
    from barnabas.groups.stored import Committed, StoredGroup
    from barnabas.model import TopicPartition


class GroupShard:
    """Used from the event loop's thread only."""

    def __init__(
        self, partition: LeaderReplica, coordinator: GroupCoordinator, config: BrokerConfig, clock: Clock
    ) -> None:
        self.partition = partition
        self.coordinator = coordinator
        self.offsets = GroupOffsets()
        self.log = GroupLog(partition, self._apply, clock, config.offsets_commit_timeout_ms / 1000)
        self.error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        """Why its groups are not served; NONE when they are loaded."""
        self.fenced_s = float("-inf")
        """When it was last seen that another broker may coordinate them."""
        self._clock = clock

    @property
    def refusal(self) -> ErrorCode:
        """What clients are told who ask for one of its groups, or NONE; also that another broker may coordinate them by
        now, and know more of them."""
        return self.error or (ErrorCode.NONE if self.partition.is_led else ErrorCode.NOT_COORDINATOR)

    async def load(self, topics: Topics, turns: Turns, buffer_bytes: int) -> None:
        """Read what the partition holds. `error` stays as it is.

        :raises BarnabasError: the disk refused.
        """
        loaded = Loaded(_sharing(topics))
        await load_partition(self.partition, loaded, turns, buffer_bytes)
        self.offsets = loaded.offsets
        await turns.finish(self._take_over(loaded.groups))

    def resign(self, error: ErrorCode) -> list[Reply]:
        """Coordinate no more; return what those are told who wait."""
        self.error = error
        replies = self.coordinator.close(error)
        self.log.close(ApiError(error, f"{self.partition.topic_partition} is not led here any more"))
        return replies

    def _take_over(self, groups: dict[str, StoredGroup]) -> Steps[None]:
        now, now_ms = self._clock.monotonic(), self._clock.expiry_ms()
        for number, (group_id, stored) in enumerate(groups.items()):
            if number % 32 == 31:
                yield
            empty_for_s = 0.0
            if now_ms is not None and stored.since_ms >= 0:
                empty_for_s = max(0, now_ms - stored.since_ms) / 1000
            self.coordinator.load(now, group_id, stored, empty_for_s)

    def _apply(self, change: Change) -> None:
        if isinstance(change, OffsetRecord):
            self.offsets.apply(*change)


def _sharing(topics: Topics) -> Callable[[TopicPartition, Committed], tuple[TopicPartition, Committed]]:
    def share(where: TopicPartition, committed: Committed) -> tuple[TopicPartition, Committed]:
        topic = topics.get(where.topic)
        if topic is None:
            return where, committed
        if topic.id == committed.topic_id:
            committed = committed._replace(topic_id=topic.id)
        if 0 <= where.partition < len(topic.partitions):
            where = topic.where(where.partition)
        return where, committed

    return share
