"""What has to hold all the time, looked at from outside (cluster-wide, with all memories and disks at hand)."""

from __future__ import annotations

import asyncio

from barnabas.broker.partition import Partition
from barnabas.broker.replica import Replica
from barnabas.coordination import paths
from barnabas.coordination.values import PartitionState, decode_partition_state
from barnabas.model import TopicPartition
from barnabas.records.header import iter_headers
from barnabas.storage import Log
from tests.simulation.cluster import SimulatedCluster

LOOK_S = 0.05


class Invariants:
    """Looks at all brokers at once, often."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self.broken: list[str] = []
        self._places: list[TopicPartition] = []
        self._leaders: dict[tuple[TopicPartition, int], int] = {}
        self._told: dict[TopicPartition, int] = {}

    def begin(self, places: list[TopicPartition]) -> None:
        """Look from now on."""
        self._places = places
        self._task = self._cluster.world.loop.create_task(self._look_often())

    async def _look_often(self) -> None:
        while True:
            self.look()
            await asyncio.sleep(LOOK_S)

    def look(self) -> None:
        """Check what has to hold at each instant."""
        for place in self._places:
            for number, machine in self._cluster.machines.items():
                partition = self._replica(number, place)
                if not machine.is_up or not isinstance(partition, Partition):
                    continue
                epoch = partition.leader_epoch
                other = self._leaders.setdefault((place, epoch), number)
                if other != number:
                    self._say(f"{place}: brokers {other} and {number} both led in epoch {epoch}")

    def is_whole(self) -> bool:
        """Whether all replicas of all places are in sync, by what the tree says."""
        for place in self._places:
            state = self.state_of(place)
            if state is None or len(state.isr) < 3 or state.leader < 0:
                return False
            ends = {log and log.log_end_offset for log in (self.log_of(number, place) for number in state.isr)}
            if len(ends) != 1 or None in ends:
                return False
        return True

    def check_equal(self) -> None:
        """Check that in-sync replicas have the same bytes up to the high watermark."""
        for place in self._places:
            state = self.state_of(place)
            if state is None:
                continue
            logs = {number: self.log_of(number, place) for number in state.isr}
            present = {number: log for number, log in logs.items() if log is not None}
            if len(present) < len(logs):
                self._say(f"{place}: of {state} only {sorted(present)} have a log")
                continue
            # Followers learn later how far the high watermark is.
            end = min(log.high_watermark for log in present.values())
            if len({_bytes(log, end) for log in present.values()}) > 1:
                self._say(f"{place}: in-sync replicas differ below offset {end}")

    def state_of(self, place: TopicPartition) -> PartitionState | None:
        """Return what the tree says of a place."""
        path = paths.partition_state(place)
        node = self._cluster.ensemble.nodes.get(path)
        return None if node is None else decode_partition_state(path, node.data)

    def log_of(self, number: int, place: TopicPartition) -> Log | None:
        """Return a broker's log of a place, if it is up and has one."""
        replica = self._replica(number, place)
        return None if replica is None else replica.log

    def _replica(self, number: int, place: TopicPartition) -> Replica | None:
        broker = self._cluster.machines[number].broker
        topics = getattr(broker, "topics", None)
        topic = None if topics is None else topics.get(place.topic)
        return None if topic is None else topic.hosted.get(place.partition)

    def _say(self, what: str) -> None:
        if what not in self.broken:
            self.broken.append(what)
            self._cluster.world.tell(f"BROKEN: {what}")


def _bytes(log: Log, end: int) -> bytes:
    """Return all that a log has up to an offset."""
    parts = []
    offset = log.log_start_offset
    while offset < end and (region := log.read(offset, 1 << 20, end)) is not None:
        data = log.bytes_of(region)
        parts.append(bytes(data))
        offset = max(header.next_offset for _, header in iter_headers(data))
    return b"".join(parts)
