"""The data for consumer group lag: the end offsets of partitions, and the arrival times of records.

A broker knows the end offsets of its own replicas. It requests the log end offsets of all other partitions from their
leaders, over the inter-broker listener.
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
"""The interval between updates of all end offsets, and the maximum wait for another broker, in seconds."""

log = logging.getLogger(__name__)


class EndOffsets:
    """The end offsets of the partitions for which this broker's groups have committed offsets.

    `run` updates them on the event loop; any thread may read them.
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
        """The end offsets of partitions without a replica on this broker. The mapping is replaced as a whole."""

    async def run(self) -> None:
        """Update the end offsets periodically until cancelled."""
        while True:
            try:
                await self.look()
            except Exception:
                log.exception("cannot update the end offsets for the lag of groups; retrying in %g s", LOOK_S)
            await asyncio.sleep(LOOK_S)

    async def look(self) -> None:
        """Update the end offsets once. Drop the partitions for which no group has a committed offset."""
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
        """Return the high watermark of this broker's replica, or the log end offset on the leader, or None if
        unknown.
        """
        replica = self._topics.replicas.get(where)
        return self._elsewhere.get(where) if replica is None else replica.log.high_watermark

    def age_s(self, where: TopicPartition, offset: int) -> float | None:
        """Return the time in seconds since the record at an offset was appended, or None if unknown."""
        arrivals = self._arrivals.get(where)
        return None if arrivals is None else arrivals.age_s(offset, self._clock.monotonic())

    # -- partitions on other brokers ------------------------------------------------------------------

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
        """Request the log end offsets of partitions from their leader.

        Return an empty dict if the leader does not respond.

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
            log.debug(
                "cannot read log end offsets from broker %d: %r; the lag of some groups is unknown", leader, error
            )
            return {}
        return {
            TopicPartition(topic.topic, each.partition): each.end_offset
            for topic in response.topics
            for each in topic.partitions
            if not each.error_code
        }
