"""Where records enter a producer: what `Producer` and `AsyncProducer` do alike, short of waiting."""

from __future__ import annotations

import random
from array import array
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from barnabas.client.config import ProducerConfig
from barnabas.client.producer.accumulator import Accumulator, TopicQueues
from barnabas.client.producer.delivery import Deliveries, Delivery
from barnabas.client.producer.routing import Routing, Run
from barnabas.clock import Clock
from barnabas.model import Headers
from barnabas.records import Appender, Compression
from barnabas.records.arrow import arrow_rows


class Entrance(Appender):
    """Makes the accumulator, and leads records into it. `send` is `Appender`'s.

    :param wake: wakes the sender; called from the threads that send.
    """

    def __init__(self, config: ProducerConfig, clock: Clock, wake: Callable[[], None]) -> None:
        super().__init__(clock.time_s)
        self._clock = clock
        self._routing = Routing(config.partitioner)
        self._accumulator = Accumulator(
            batch_size=config.batch_size,
            buffer_memory=config.buffer_memory,
            linger_s=config.linger_ms / 1000,
            max_block_s=config.max_block_ms / 1000,
            max_record_bytes=config.max_request_size,
            compression=Compression[config.compression_type.upper()],
            clock=clock,
            wake=wake,
            random=random.random,
            # A partition function is asked for every record, so every record takes the long way.
            lanes=self.open_lanes if config.partitioner is None else None,
        )

    def _queues(self, topic: str) -> TopicQueues:
        """Return the queues of a topic; here it must be known already."""
        queues = self._accumulator.topic(topic)
        assert queues is not None
        return queues

    def _send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int | None,
        timestamp_ms: int | None,
        headers: Headers,
    ) -> Delivery:
        queues = self._queues(topic)
        if timestamp_ms is None:
            timestamp_ms = self._clock.time_ms()
        chosen = self._routing.partition(queues, key, partition)
        batch, index = self._accumulator.append(queues, chosen, timestamp_ms, key, value, headers)
        return Delivery(batch, index, timestamp_ms)

    def _value_runs(
        self,
        queues: TopicQueues,
        values: Sequence[bytes | None],
        keys: Sequence[bytes | None] | None,
        partition: int | None,
        timestamps_ms: Sequence[int] | int | None,
        headers: Sequence[Headers] | None,
    ) -> tuple[Deliveries, Iterator[Run]]:
        """Return the runs that a `send_many` is made of, and the outcomes that they fill in."""
        stamps = self._clock.time_ms() if timestamps_ms is None else timestamps_ms
        deliveries = Deliveries(stamps)
        return deliveries, self._routing.runs_of_values(queues, values, keys, partition, stamps, headers, deliveries)

    def _row_runs(
        self,
        queues: TopicQueues,
        batch: Any,
        value: str | None,
        key: str | None,
        timestamp: str | None,
        partition: int | None,
    ) -> tuple[Deliveries, Iterator[Run]]:
        """Return the runs that a `send_arrow` is made of, and the outcomes that they fill in."""
        parts = arrow_rows(batch, value=value, key=key, timestamp=timestamp)
        now_ms = self._clock.time_ms()
        stamps = array("q", b"".join(part.timestamps_ms for part in parts if part.timestamps_ms is not None))
        deliveries = Deliveries(now_ms if timestamp is None else stamps)
        runs = (
            run for part in parts for run in self._routing.runs_of_rows(queues, part, partition, now_ms, deliveries)
        )
        return deliveries, runs
