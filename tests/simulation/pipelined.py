"""The producer of production in the simulated world: many batches on their way at once, retried and numbered by it.

What it sends goes to the places of the plain producers, into the same history: each value once, in its order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

from barnabas.client.config import ProducerConfig
from barnabas.client.producer.engine import ProducerEngine
from barnabas.client.producer.serializers import Serializers
from barnabas.errors import TimedOutError
from barnabas.laboratory.history.history_file import Send
from barnabas.laboratory.history.recorded_clients import outcome_of
from barnabas.model import TopicPartition
from barnabas.records import Delivery
from tests.simulation.clients import DELIVERY_S, REQUEST_S
from tests.simulation.workload import Workload
from tests.simulation.world import Host, HostClock

T = TypeVar("T")

BATCH_BYTES = 120
"""A few records."""
IN_FLIGHT_RECORDS_MAX = 40


class _Side:
    """The host's own loop, seen from where records are sent."""

    inside = True

    def __init__(self, host: Host) -> None:
        self._host = host

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        coroutine.close()
        raise AssertionError("the topic is looked up before anything is sent")

    def call_soon(self, function: Callable[[], object]) -> None:
        self._host.soon(function)


class PipelinedProducer:
    """A host with a producer."""

    def __init__(self, workload: Pipelined, name: str, topic: str, partitions: int) -> None:
        self.world = workload.world
        self.name = name
        self.host = Host(self.world, name, HostClock(self.world.loop, rate=1.0, ahead_ms=0))
        self.is_done = False
        self._topic = topic
        self._partitions = partitions
        self._workload = workload
        self._on_its_way = 0
        draw, scale, network = self.world.random, self.world.scale, workload.cluster.network
        self._delivery_s = draw.choice([DELIVERY_S, 3 * DELIVERY_S]) * scale
        config = ProducerConfig(
            bootstrap_servers=workload.cluster.addresses,
            request_timeout_ms=int(draw.choice([REQUEST_S / 2, REQUEST_S]) * scale * 1000),
            delivery_timeout_ms=int(self._delivery_s * 1000),
            max_block_ms=int(3 * DELIVERY_S * 1000),
            connect_timeout_ms=2_000,
            retry_backoff_ms=int(draw.choice([0, 10, 50]) * scale),
            retry_backoff_max_ms=int(1_000 * scale),
            linger_ms=draw.choice([0, 1, 5]),
            batch_size=BATCH_BYTES,
            allow_auto_create_topics=False,
        )
        self._engine = ProducerEngine(
            config,
            self.host.clock,
            _Side(self.host),
            Serializers(None, None),
            dial=lambda host, port: network.dial(host, port, connect_timeout_s=2.0),
            random_source=draw.random,
        )

    async def run(self, pause_s: Callable[[], float]) -> None:
        """Send until told to stop, and wait for what became of it."""
        await self._engine.start()
        await self._engine.look_up(self._topic)
        number = 0
        while not self.is_done:
            if self._on_its_way < IN_FLIGHT_RECORDS_MAX:
                for _ in range(self.world.random.randint(1, 8)):
                    self._send(number)
                    number += 1
            await asyncio.sleep(pause_s())
        try:
            await self._engine.flush(self._delivery_s)
        except TimedOutError as error:
            self.world.tell(f"{self.name}: {error}")
        await self._engine.give_up()

    def _send(self, number: int) -> None:
        value = f"{self.name}:{number}".encode()
        place = TopicPartition(self._topic, number % self._partitions)
        send = self._workload.history.send(self.name, place, value)
        self._on_its_way += 1
        delivery = self._engine.records.append(self._topic, value, None, place.partition, None, ())
        delivery.add_done_callback(lambda delivery: self._settle(send, place, delivery))

    def _settle(self, send: Send, place: TopicPartition, delivery: Delivery) -> None:
        self._on_its_way -= 1
        error = delivery.exception()
        if error is not None:
            send.ended(outcome_of(error), str(error))
            return
        offset = delivery.result().offset
        if offset >= 0:
            self._workload.cluster.on_acknowledged(place, offset)
        send.ok(offset if offset >= 0 else None)


class Pipelined(Workload):
    """One or two such producers."""

    async def begin(self, topic: str, partitions: int) -> None:
        draw = self.world.random
        pace_s = draw.choice([0.02, 0.05, 0.2])
        self._producers = [
            PipelinedProducer(self, f"pipelined {number}", topic, partitions) for number in range(draw.randint(1, 2))
        ]
        for producer in self._producers:
            self.start(producer.host, producer.run(lambda: draw.uniform(0, 2 * pace_s)))

    def heal(self) -> None:
        for producer in self._producers:
            producer.is_done = True

    async def settle(self) -> None:
        await self.end_tasks()

    async def finish(self, at_end: Mapping[TopicPartition, list[int]]) -> bool:
        return True
