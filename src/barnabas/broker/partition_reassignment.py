"""Completes the reassignments of partitions that this broker leads, when all new replicas are in sync.

`barnabas.replication.reassignment` contains the rules. Each leader applies them, so a reassignment continues after a
leader election. If a response from the metadata store is lost, the broker reads the state before it writes again.

Used from the event loop's thread only.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress

from barnabas.broker.controlled_shutdown import ControlledShutdown
from barnabas.broker.leader_replica import LeaderReplica
from barnabas.broker.log_aggregator import LogAggregator
from barnabas.broker.metadata_image import next_state
from barnabas.broker.topic_admin import TopicAdmin
from barnabas.broker.topics import Topics
from barnabas.coordination.change_notifications import StateChange
from barnabas.coordination.metadata_store import NodeError
from barnabas.coordination.reassignments import End
from barnabas.coordination.topic_metadata_store import PartitionInfo
from barnabas.coordination.values import PartitionState
from barnabas.errors import BarnabasError, StorageError
from barnabas.replication.reassignment import end_state, heir, is_complete

LOOK_S = 1.0
"""The interval between periodic checks, and the pause after a failure, in seconds."""

log = logging.getLogger(__name__)


class PartitionReassignment:
    """Advances and completes the reassignments of the partitions that this broker leads."""

    def __init__(self, topics: Topics, topic_admin: TopicAdmin, broker_id: int) -> None:
        self._topics = topics
        self._topic_admin = topic_admin
        self._broker_id = broker_id
        self._controlled_shutdown = ControlledShutdown(topics, broker_id)
        self._in_doubt: dict[LeaderReplica, End] = {}
        """The completions whose result is unknown, because the metadata store's response was lost."""
        self._is_due = asyncio.Event()
        self._log_lines = LogAggregator(log)

    def check_soon(self) -> None:
        """Schedule a check of the partitions under reassignment."""
        if self._topics.image.is_moving:
            self._is_due.set()

    async def run(self) -> None:
        """Complete reassignments until cancelled.

        Without partitions under reassignment, the task sleeps.
        """
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S if self._topics.image.is_moving else None):
                    await self._is_due.wait()
            self._is_due.clear()
            try:
                await self.advance()
            except BarnabasError as error:
                log.warning("cannot advance partition reassignments: %s; retrying", error)
                await asyncio.sleep(LOOK_S)
                self._is_due.set()
            except Exception:
                log.exception("cannot advance partition reassignments; retrying")
                await asyncio.sleep(LOOK_S)
                self._is_due.set()

    async def advance(self) -> None:
        """Advance each reassignment as far as currently possible.

        :raises BarnabasError: the metadata store is unreachable, or rejected a write of one topic. The reassignments of
            other topics have advanced in that case.
        """
        refused = await self._read_again()
        moving = self._led_and_moving()
        sole = {partition: info for partition, info in moving.items() if partition.followers is None}
        await self._keep_account_of_followers(sole)
        complete = {
            partition: info
            for partition, info in moving.items()
            if partition not in sole and self._is_complete(partition, info)
        }
        going = {each for each, info in complete.items() if self._broker_id in info.removing}
        await self._hand_on({each: complete[each] for each in going})
        refused += await self._end({each: info for each, info in complete.items() if each not in going})
        if refused:
            raise refused[0]

    def _led_and_moving(self) -> dict[LeaderReplica, PartitionInfo]:
        found = {}
        for where in self._topics.image.moving:
            info = self._topics.image.partition(where)
            replica = self._topics.replicas.get(where)
            if info is None or not isinstance(replica, LeaderReplica) or not replica.is_led:
                continue
            if info.state.leader == self._broker_id and info.state.leader_epoch == replica.leader_epoch:
                found[replica] = info
        return found

    @staticmethod
    def _is_complete(partition: LeaderReplica, info: PartitionInfo) -> bool:
        followers = partition.followers
        if followers is None or followers.is_changing or followers.isr != info.state.isr:
            return False
        return is_complete(info.replica_set, info.state.isr, partition.config.min_insync_replicas)

    # -- partitions with one replica that get followers ------------------------------------------------------

    async def _keep_account_of_followers(self, partitions: dict[LeaderReplica, PartitionInfo]) -> None:
        """Begin a new leader epoch for each partition that had one replica and gets followers.

        The current leader role has no followers.
        """
        changes = [
            self._change(partition, PartitionState(self._broker_id, info.state.leader_epoch + 1, info.state.isr))
            for partition, info in partitions.items()
            if len(info.replicas) > 1
        ]
        if changes:
            await self._topics.apply_roles(await self._topics.write_states(changes))

    def _change(self, partition: LeaderReplica, state: PartitionState) -> StateChange:
        where = partition.topic_partition
        return next_state(where, self._topics.image.topics[where.topic], state)

    # -- the end ------------------------------------------------------------------------------------------------

    async def _hand_on(self, partitions: dict[LeaderReplica, PartitionInfo]) -> None:
        """Transfer the leadership of partitions from which this broker is removed to a remaining replica, which then
        completes the reassignment.
        """
        image = self._topics.image
        able = {each for each in image.brokers if image.is_eligible(each)}
        changes = {}
        for partition, info in partitions.items():
            state = heir(info.replica_set, info.state, able)
            where = partition.topic_partition
            topic = image.topics.get(where.topic)
            if state is not None and topic is not None:
                # Use the version after the current state, so that the write fails if the metadata store has a newer
                # state.
                changes[partition] = StateChange(where, topic.topic_id, state, info.version + 1)
        if changes:
            await self._controlled_shutdown.transfer(changes)

    async def _end(self, partitions: dict[LeaderReplica, PartitionInfo]) -> list[BarnabasError]:
        """Complete reassignments. Return an error for each topic for which the broker does not know whether the
        metadata store has applied the change."""
        by_topic: dict[str, list[End]] = {}
        for partition, info in partitions.items():
            followers = partition.followers
            # Check again, because the leadership transfers took time.
            if followers is None or followers.is_changing or not partition.is_led:
                continue
            state = end_state(info.replica_set, info.state)
            followers.begin_change(state.isr)
            end = End(partition.topic_partition, info.replica_set, state, info.version)
            self._in_doubt[partition] = end
            by_topic.setdefault(end.where.topic, []).append(end)

        async def end_those_of(name: str) -> None:
            topic = self._topics.get(name)
            if topic is not None:
                await self._topic_admin.end_reassignments(topic.id, by_topic[name])

        return await self._each_on_its_own(by_topic, end_those_of)

    async def _read_again(self) -> list[BarnabasError]:
        """Read the topics with unknown completion results. Return the errors of topics that cannot be read."""
        names = sorted({partition.topic_partition.topic for partition in self._in_doubt})
        return await self._each_on_its_own(names, lambda name: self._topics.reread_topics([name]))

    async def _each_on_its_own(self, names: Iterable[str], do: Callable[[str], Awaitable[None]]) -> list[BarnabasError]:
        """Call a function for each topic, and then apply the topic's ISRs. Return the errors.

        If one topic fails, for example because of a damaged node, the other topics continue. While the result of an ISR
        change is unknown, no follower can leave the ISR.
        """
        refused: list[BarnabasError] = []
        for name in names:
            try:
                await do(name)
            except (NodeError, StorageError) as error:
                refused.append(error)
            else:
                self._settle(name)
        return refused

    def _settle(self, name: str) -> None:
        """Apply the ISRs from the metadata store to the partitions of a topic whose completion result was unknown."""
        in_doubt = {each: end for each, end in self._in_doubt.items() if end.where.topic == name}
        for partition, end in in_doubt.items():
            del self._in_doubt[partition]
            info, followers = self._topics.image.partition(partition.topic_partition), partition.followers
            if info is not None and info.replica_set == end.after:
                self._log_lines.note(logging.INFO, f"moved to brokers {list(info.replicas)}", partition.topic_partition)
            if info is None or followers is None or info.state.leader_epoch != partition.leader_epoch:
                continue
            followers.adopt(info.state.isr)
            followers.set_replicas(info.replicas)
            partition.isr_changed()
            partition.ask_for_isr_change()
