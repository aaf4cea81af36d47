"""The ISR changes of the partitions that this broker leads: `IsrUpdates` writes them to the metadata store.

`RemoteReplicas` gets each change before the write. The high watermark then waits for the members of the old and the new
ISR until the result of the write is known. Each change is one compare-and-set. If another broker has changed the
partition state, this broker reads it again, and never repeats its change with the new version (KAFKA-2729). If the
metadata store is unreachable, the change stays pending until the partition state has been read.

Used from the event loop's thread only.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress

from barnabas.broker.broker_events import Events, IsrSettled
from barnabas.broker.leader_replica import LeaderReplica
from barnabas.broker.log_aggregator import LogAggregator
from barnabas.broker.metadata_image import next_state
from barnabas.broker.topics import Topics
from barnabas.clock import Clock
from barnabas.coordination.change_notifications import StateChange
from barnabas.coordination.values import PartitionState
from barnabas.errors import BarnabasError
from barnabas.log_lines import LogEvent, event
from barnabas.replication.in_sync import NO_BROKER_EPOCH

AGAIN_S = 0.5
"""The pause before a failed ISR change is retried, in seconds."""

log = logging.getLogger(__name__)


class IsrUpdates:
    """Changes the ISRs of the partitions that this broker leads.

    :param lag_time_max_s: the time in seconds after which a lagging follower leaves the ISR
        (`replica.lag.time.max.ms`).
    :param events: receives `IsrSettled`.
    """

    def __init__(self, topics: Topics, clock: Clock, lag_time_max_s: float, events: Events) -> None:
        self._topics = topics
        self._events = events
        self._clock = clock
        self._lag_time_max_s = lag_time_max_s
        self._wanted: dict[LeaderReplica, None] = {}
        self._under_way: dict[LeaderReplica, StateChange] = {}
        self._is_due = asyncio.Event()
        self._log_lines = LogAggregator(log)
        self.shrink_count = 0
        """The number of written ISRs that are smaller than before."""
        self.expand_count = 0
        """The number of written ISRs that are larger than before."""
        self.failure_count = 0
        """The number of failed attempts to write ISRs."""

    def update_soon(self, partition: LeaderReplica) -> None:
        """Schedule a check of the ISR of a partition."""
        self._wanted[partition] = None
        self._is_due.set()

    async def run(self) -> None:
        """Write due ISR changes until cancelled. Check all partitions twice per `replica.lag.time.max.ms`."""
        interval_s = self._lag_time_max_s / 2
        look_s = self._clock.monotonic() + interval_s
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, look_s - self._clock.monotonic())):
                    await self._is_due.wait()
            if self._clock.monotonic() >= look_s:
                look_s = self._clock.monotonic() + interval_s
                self._look_at_all()
            self._is_due.clear()
            wanted, self._wanted = self._wanted, {}
            try:
                await self.update(list(wanted))
            except BarnabasError as error:
                self.failure_count += 1
                extra = event(LogEvent.ISR_NOT_WRITTEN)
                log.warning("cannot write in-sync replicas to the metadata store: %s; retrying", error, extra=extra)
                await asyncio.sleep(AGAIN_S)
                self._wanted |= wanted
                self._is_due.set()
            except Exception:
                self.failure_count += 1
                log.exception("cannot write in-sync replicas to the metadata store; retrying")
                await asyncio.sleep(AGAIN_S)

    def _look_at_all(self) -> None:
        for partition in self._topics.replicas.leaders():
            if partition.followers is not None:
                self._wanted[partition] = None
                if partition.followers.lagging:
                    partition.request_follower_fetches()

    async def update(self, partitions: list[LeaderReplica]) -> None:
        """Write the new ISR of each given partition whose ISR should change.

        :raises BarnabasError: the metadata store is unreachable.
        """
        if self._under_way:
            # The results of the previous writes are unknown.
            await self._topics.reread(self._under_way.values())
            await self._settle()
        self._under_way = {partition: change for partition in partitions if (change := self._change_of(partition))}
        if self._under_way:
            if proposed := await self._up_to_date():
                await self._topics.write_states(proposed)
            await self._settle()

    async def _up_to_date(self) -> list[StateChange]:
        """Return the pending changes, except changes that add a follower with an outdated broker epoch.

        Such a follower may have restarted and lost records. The leader reads the broker epochs after the version for
        the compare-and-set. If a broker that lost records registers later, it changes this version
        (`barnabas.replication.unclean_recovery.withdraw`), so the write fails (KIP-903).
        """
        joining = {partition: _joining(partition, change) for partition, change in self._under_way.items()}
        brokers = {each for epochs in joining.values() for each in epochs}
        in_tree = await self._topics.read_broker_epochs(brokers) if brokers else {}
        proposed = []
        for partition, change in self._under_way.items():
            ended = [each for each, epoch in joining[partition].items() if epoch != in_tree.get(each)]
            if not ended:
                proposed.append(change)
            for each in ended:
                partition.followers.forget(each)  # type: ignore[union-attr]  # the leader has followers
        return proposed

    async def _settle(self) -> None:
        """Apply the ISRs from the metadata store to the partitions with pending changes.

        A partition with another leader gets a new role.
        """
        under_way, self._under_way = self._under_way, {}
        ended: dict[str, list[int]] = {}
        for partition, change in under_way.items():
            info = self._topics.image.partition(change.where)
            if info is None or not _is_led_by(partition, info.state) or partition.followers is None:
                ended.setdefault(change.where.topic, []).append(change.where.partition)
                continue
            if info.state.isr == change.state.isr:
                difference = len(info.state.isr) - len(partition.followers.isr)
                self.shrink_count += difference < 0
                self.expand_count += difference > 0
            partition.followers.adopt(info.state.isr)
            partition.isr_changed()
            # While the change was pending, fetches did not trigger ISR checks.
            self.update_soon(partition)
        if ended:
            await self._topics.apply_roles(ended)
        if under_way:
            self._events.publish(IsrSettled())

    def _change_of(self, partition: LeaderReplica) -> StateChange | None:
        followers, where = partition.followers, partition.topic_partition
        image = self._topics.image
        topic, info = image.topics.get(where.topic), image.partition(where)
        if followers is None or topic is None or info is None or partition.has_ended:
            return None
        if not _is_led_by(partition, info.state):
            return None

        def is_eligible(broker_id: int) -> bool:
            # A follower that has restarted since its last fetch may have lost records (KIP-903).
            epoch = followers.broker_epoch_of(broker_id)
            return image.is_eligible(broker_id, None if epoch == NO_BROKER_EPOCH else epoch)

        own = partition.log
        isr = followers.wanted_isr(
            self._clock.monotonic(), self._lag_time_max_s, own.log_end_offset, is_eligible, own.log_start_offset
        )
        if isr is None and info.state.lost_memory and not followers.is_changing:
            # This leader is alive, so no election needs the log end reports of former ISR members. Write the same ISR
            # without them.
            isr = followers.isr
        if isr is None:
            # If a follower that had caught up is gone, the high watermark no longer waits for it.
            partition.isr_changed()
            return None
        self._log_lines.note(logging.INFO, f"changing the ISR from {list(info.state.isr)} to {list(isr)}", where)
        followers.begin_change(isr)
        return next_state(where, topic, PartitionState(info.state.leader, info.state.leader_epoch, isr))


def _is_led_by(partition: LeaderReplica, state: PartitionState) -> bool:
    """Return whether a partition state has the leader and the leader epoch of this `LeaderReplica`."""
    return (state.leader, state.leader_epoch) == (partition.leader, partition.leader_epoch)


def _joining(partition: LeaderReplica, change: StateChange) -> dict[int, int]:
    """Return the followers that a change adds to the ISR, with their broker epochs from their last fetches."""
    followers = partition.followers
    if followers is None:
        return {}
    epochs = {each: followers.broker_epoch_of(each) for each in change.state.isr if not followers.is_in_sync(each)}
    return {each: epoch for each, epoch in epochs.items() if epoch != NO_BROKER_EPOCH}
