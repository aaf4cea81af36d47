"""A topic whose old records go by its size, so that a follower or a reader that was away finds them gone.

What is deleted is as old as may be: what is younger than `retention.bytes` allows is there, and no log begins earlier
than it did.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, ClassVar

from barnabas.errors import ApiError, BarnabasError, ErrorCode
from barnabas.model import TopicPartition
from barnabas.storage import Log
from tests.simulation.clients import EARLIEST, SimulatedClient, SimulatedProducer, SimulatedReader
from tests.simulation.workload import LOOK_S, REPLICAS, SAFE, Workload

PLACE = TopicPartition("short", 0)
RETENTION_BYTES = 4_000
SEGMENT_BYTES = 1_000
UNACKNOWLEDGED_BYTES = 1_000
"""So much of a log's end may be cut off after it counted when its beginning was deleted; a few batches are less."""
END_S = 60.0


class LateReader(SimulatedReader):
    """Reads, and rests now and then; where the log has gone on without it, it begins again at its start."""

    async def run(self) -> None:
        while not self.is_done:
            await self.read_on()
            await asyncio.sleep(self.world.random.choice([0.0, 0.1, 5.0]))

    async def read_on(self) -> None:
        """Fetch once, from where there is something."""
        try:
            await self.fetch()
        except ApiError as error:
            if error.code is ErrorCode.OFFSET_OUT_OF_RANGE:
                await self._begin_again()
            else:
                await self.again()
        except BarnabasError:
            await self.again()

    async def _begin_again(self) -> None:
        try:
            self.position = max(self.position, await self.end(EARLIEST))
        except BarnabasError:
            await self.again()
        self._history.moved(self.name)


class Retention(Workload):
    """The topic, a producer and a reader."""

    settings: ClassVar[dict[str, Any]] = {"log_retention_check_interval_ms": 1_000}

    async def begin(self, topic: str, partitions: int) -> None:
        del topic, partitions
        configs = {
            **SAFE,
            "retention.bytes": str(RETENTION_BYTES),
            "segment.bytes": str(SEGMENT_BYTES),
        }
        admin = SimulatedClient(self.cluster, "admin of short", (PLACE.topic,))
        await self.on(admin, admin.create_topic(PLACE.topic, 1, REPLICAS, configs))
        self.invariants.watch([PLACE])
        draw = self.world.random
        self._producer = SimulatedProducer(self.cluster, "producer of short", PLACE, self.history)
        self._reader = LateReader(self.cluster, "reader of short", PLACE, self.history)
        pace_s = draw.choice([0.02, 0.1])
        self.start(self._producer.host, self._producer.run(lambda: draw.uniform(0, 2 * pace_s)))
        self.start(self._reader.host, self._reader.run())
        self._starts: dict[int, tuple[Log, int]] = {}
        self._looking = self.world.loop.create_task(self._look())

    def heal(self) -> None:
        self._producer.is_done = self._reader.is_done = True

    async def finish(self, at_end: Mapping[TopicPartition, list[int]]) -> bool:
        del at_end
        await self.end_tasks()
        last = LateReader(self.cluster, "end of short", PLACE, self.history, final=True)

        async def is_read() -> bool:
            last.position = max(last.position, await last.end(EARLIEST))
            await last.fetch()
            return last.position >= await last.end() and last.position > self.history.highest(PLACE)

        whole = await self.on(last, self.until(is_read, END_S, last))
        self._looking.cancel()
        state = self.invariants.state_of(PLACE)
        log = None if state is None else self.invariants.log_of(state.leader, PLACE)
        if not whole or log is None:
            self.say(f"{PLACE} cannot be read to its end")
            return False
        self.history.deleted(PLACE, log.log_start_offset)
        self.history.read_whole(PLACE)
        if log.log_start_offset and log.size_bytes < RETENTION_BYTES - UNACKNOWLEDGED_BYTES:
            self.say(f"{PLACE} has only {log.size_bytes} bytes left")
        return True

    async def _look(self) -> None:
        """Look whether a log begins earlier than it did."""
        while True:
            await asyncio.sleep(LOOK_S)
            members = self.invariants.members(PLACE)
            for number in self.cluster.machines:
                log = self.invariants.log_of(number, PLACE)
                if log is None or number not in members:
                    # One that lost its files begins where it had ended, until it follows.
                    self._starts.pop(number, None)
                    continue
                known, start = self._starts.get(number, (log, 0))
                if known is log and log.log_start_offset < start:
                    self.say(f"{PLACE} begins at {log.log_start_offset} on broker {number}, and had begun at {start}")
                self._starts[number] = log, log.log_start_offset
