"""The ends of the partitions that groups read, and when their records arrived: what the lag of groups is made of.

A broker knows the ends of the partitions of which it has a replica. It asks the leaders of all others for the log end
offset, over the listener that brokers have for each other.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from contextlib import closing

from barnabas.broker.group_service import GroupService
from barnabas.broker.pipeline.scheduler import CooperativeScheduler
from barnabas.broker.requested_elections import Connect
from barnabas.broker.topics import Topics
from barnabas.clock import Clock
from barnabas.errors import BarnabasError
from barnabas.groups.arrival_times import ArrivalTimes
from barnabas.model import TopicPartition
from barnabas.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

LOOK_S = 5.0
"""The time between two looks at the ends of all partitions, and the longest wait for another broker."""

log = logging.getLogger(__name__)


class EndOffsets:
    """The ends of the partitions in which the groups of this broker have committed offsets.

    `run` looks at them on the event loop; any thread may ask.
    """

    def __init__(
        self, groups: GroupService, topics: Topics, connect: Connect, scheduler: CooperativeScheduler, clock: Clock
    ) -> None:
        self._groups = groups
        self._topics = topics
        self._connect = connect
        self._scheduler = scheduler
        self._clock = clock
        self._arrivals: dict[TopicPartition, ArrivalTimes] = {}
        self._elsewhere: Mapping[TopicPartition, int] = {}
        """The ends of partitions that have no replica here; replaced as a whole."""

    async def run(self) -> None:
        """Look at the ends until cancelled."""
        while True:
            try:
                await self.look()
            except Exception:
                log.exception("cannot look at the ends of the partitions that groups read; the next look is due soon")
            await asyncio.sleep(LOOK_S)

    async def look(self) -> None:
        """Note the ends of all partitions, and forget those in which no group has an offset."""
        wanted: set[TopicPartition] = set()
        for shard in self._groups.served_shards():
            for _, offsets in shard.machine.offsets.copies():
                wanted.update(offsets)
                await self._scheduler.pause()
        await self._ask_leaders(wanted)
        for where in [*self._arrivals]:
            if where not in wanted:
                del self._arrivals[where]
        async for where in self._scheduler.each(wanted):
            if (end := self.end_of(where)) is not None:
                self._arrivals.setdefault(where, ArrivalTimes()).note(self._clock.monotonic(), end)

    def end_of(self, where: TopicPartition) -> int | None:
        """Return the high watermark of a partition, or the log end offset if other brokers have it; None: unknown."""
        replica = self._topics.replicas.get(where)
        return self._elsewhere.get(where) if replica is None else replica.log.high_watermark

    def age_s(self, where: TopicPartition, offset: int) -> float | None:
        """Return how long ago the record at an offset arrived; None if that is not known."""
        arrivals = self._arrivals.get(where)
        return None if arrivals is None else arrivals.age_s(offset, self._clock.monotonic())

    # -- partitions that other brokers have ------------------------------------------------------------------

    async def _ask_leaders(self, wanted: Iterable[TopicPartition]) -> None:
        image, by_leader = self._topics.image, dict[int, dict[TopicPartition, int]]()
        async for where in self._scheduler.each(wanted):
            info = image.partition(where)
            if info is not None and self._topics.replicas.get(where) is None and info.state.leader in image.brokers:
                by_leader.setdefault(info.state.leader, {})[where] = info.state.leader_epoch
        known = {
            where: self._elsewhere[where] for led in by_leader.values() for where in led if where in self._elsewhere
        }
        for ends in await asyncio.gather(*(self._ask(leader, led) for leader, led in by_leader.items())):
            known |= ends
        self._elsewhere = known

    async def _ask(self, leader: int, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return the log end offsets that a leader returns; none if it does not answer.

        :param epochs: the leader epoch of each partition.
        """
        topics: dict[str, list[OffsetForLeaderPartition]] = {}
        for where, epoch in epochs.items():
            topics.setdefault(where.topic, []).append(
                OffsetForLeaderPartition(partition=where.partition, current_leader_epoch=epoch, leader_epoch=epoch)
            )
        request = OffsetForLeaderEpochRequest(
            topics=[OffsetForLeaderTopic(topic=name, partitions=each) for name, each in topics.items()]
        )
        try:
            async with asyncio.timeout(LOOK_S):
                with closing(await self._connect(leader)) as connection:
                    response: OffsetForLeaderEpochResponse = await connection.send(request)
        except (BarnabasError, TimeoutError) as error:
            log.debug("broker %d cannot be asked where its logs end: %r", leader, error)
            return {}
        return {
            TopicPartition(topic.topic, each.partition): each.end_offset
            for topic in response.topics
            for each in topic.partitions
            if not each.error_code
        }
