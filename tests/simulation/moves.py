"""Partitions that move from broker to broker while they are written and read, and while faults go on.

Whoever is in sync holds a replica, all that was acknowledged is there in the end, and nothing is left on brokers that
hold a partition no longer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

from barnabas.coordination import paths
from barnabas.errors import BarnabasError, ErrorCode
from barnabas.model import TopicPartition
from barnabas.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from barnabas.storage.file_names import is_deleted_folder, partition_of
from tests.simulation.clients import REQUEST_S, SimulatedClient
from tests.simulation.cluster import DATA
from tests.simulation.workload import REPLICAS, Workload

TAKEN_BACK = 0.2
"""So often a move is taken back."""
LEAST = 2
"""As many replicas as acks=all asks for."""
END_S = 60.0


class Mover(SimulatedClient):
    """Has partitions move."""

    def __init__(self, moves: Moves, places: Sequence[TopicPartition]) -> None:
        super().__init__(moves.cluster, "mover", ())
        self._places = places
        self._invariants = moves.invariants
        self._numbers = list(moves.cluster.machines)
        self.is_done = False

    async def run(self, pace_s: float) -> None:
        """Ask for one move after the other; in the end for as many replicas as there were, until that stays so."""
        draw = self.world.random
        while not self.is_done:
            target = None
            if draw.random() >= TAKEN_BACK:
                target = draw.sample(self._numbers, draw.randint(LEAST, min(REPLICAS + 1, len(self._numbers))))
            await self._ask(draw.choice(self._places), target)
            await asyncio.sleep(draw.uniform(0, 2 * pace_s))
        loop = self.world.loop
        since_s = loop.time()
        # What was asked for before, and had no answer, may be done a while later.
        while loop.time() < since_s + REQUEST_S:
            for place in self._places:
                if len(self._invariants.replica_set_of(place).target) != REPLICAS:
                    since_s = loop.time()
                    await self._ask(place, draw.sample(self._numbers, REPLICAS))
            await self.again()

    async def _ask(self, place: TopicPartition, target: list[int] | None) -> bool:
        """Ask for a move; return whether it was taken."""
        wanted = ReassignablePartition(partition_index=place.partition, replicas=target)
        request = AlterPartitionReassignmentsRequest(
            timeout_ms=1_000, topics=[ReassignableTopic(name=place.topic, partitions=[wanted])]
        )
        try:
            channel = await self.cluster.any_channel()
            response: AlterPartitionReassignmentsResponse = await self.cluster.ask(channel, request)
        except BarnabasError as error:
            self.world.tell(f"{place} to {target}: {error}")
            return False
        code = ErrorCode.of(response.responses[0].partitions[0].error_code)
        self.world.tell(f"{place} to {target}: {code.name}")
        return code is ErrorCode.NONE


class Moves(Workload):
    """The mover, and what is left at the end."""

    async def begin(self, topic: str, partitions: int) -> None:
        self._places = [TopicPartition(topic, number) for number in range(partitions)]
        self._mover = Mover(self, self._places)
        task = self.start(self._mover.host, self._mover.run(self.world.random.choice([0.1, 0.5, 2.0])))
        self.invariants.unsettled.append(lambda: not task.done())

    def heal(self) -> None:
        self._mover.is_done = True

    async def finish(self, at_end: Mapping[TopicPartition, list[int]]) -> bool:
        del at_end
        await self.end_tasks()

        async def is_tidy() -> bool:
            return not self._leftovers()

        whole = await self.until(is_tidy, END_S)
        for what in self._leftovers():
            self.say(f"left of a replica that has moved: {what}")
        for place in self._places:
            found = self.invariants.replica_set_of(place)
            if found.is_moving or len(found.replicas) != REPLICAS:
                self.say(f"{place} has not come to where it was to be: {found}")
        return whole

    def _leftovers(self) -> list[str]:
        """Return what is left of replicas that have moved.

        A disk that was restored from an older copy may have a replica again whose removal was done and is no longer
        named. Its broker keeps the folder (`barnabas.broker.replica_removal`).
        """
        found = [path for path in self.cluster.ensemble.nodes if path.startswith(f"{paths.REMOVED_REPLICAS}/")]
        for machine in self.cluster.machines.values():
            for name in machine.names_in(Path(DATA)):
                place = partition_of(name)
                is_left = (
                    place in self._places
                    and machine.number not in self.invariants.restored
                    and machine.number not in self.invariants.replica_set_of(place).replicas
                )
                if is_left or is_deleted_folder(name):
                    found.append(f"{name} on {machine.name}")
        return found
