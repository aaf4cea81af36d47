"""Where records enter a producer: what `send`, `send_many` and `send_arrow` are given becomes appends.

`Producer` and `AsyncProducer` do this alike, but for waiting: the former blocks, the latter awaits.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from barnabas.client.producer.accumulator import Accumulator, TopicQueues
from barnabas.client.producer.delivery import Deliveries, Delivery
from barnabas.client.producer.routing import Routing, Run
from barnabas.client.producer.serializing import Serializers
from barnabas.clock import Clock
from barnabas.model import GivenHeaders, Headers
from barnabas.records import Appender, OpenEncoders
from barnabas.records.arrow import arrow_rows


class RecordAppender:
    """Leads records into the accumulator.

    :param open_encoders: where the compiled `send` looks for the open batch of a topic.
    :param queues_of: returns the queues of a topic; waits where it is not known yet.
    """

    def __init__(
        self,
        accumulator: Accumulator,
        routing: Routing,
        open_encoders: dict[str, OpenEncoders],
        queues_of: Callable[[str], TopicQueues],
        clock: Clock,
        serializers: Serializers,
    ) -> None:
        self._accumulator = accumulator
        self._routing = routing
        self._queues_of = queues_of
        self._open_encoders = open_encoders
        self._clock = clock
        self.serializers = serializers

    def appender(self) -> Appender:
        """Return what has the compiled `send`: it deals with the usual record itself, and hands all others to `append`.

        It is not kept here: who holds it, or its `send`, may send, and when nobody does the producer was dropped.
        """
        return Appender(self._open_encoders, self.append, self._clock.time_s)

    def append(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int | None,
        timestamp_ms: int | None,
        headers: GivenHeaders,
    ) -> Delivery:
        """Append one record of any kind."""
        queues = self._queues_of(topic)
        if timestamp_ms is None:
            timestamp_ms = self._clock.time_ms()
        chosen = self._routing.partition(queues, key, partition)
        pairs = as_pairs(headers) if headers else ()
        batch, index = self._accumulator.append(queues, chosen, timestamp_ms, key, value, pairs)
        return Delivery(batch, index, timestamp_ms)

    def runs_of_values(
        self,
        queues: TopicQueues,
        values: Sequence[bytes | None],
        keys: Sequence[bytes | None] | None,
        partition: int | None,
        timestamps_ms: Sequence[int] | int | None,
        headers: Sequence[GivenHeaders] | None,
    ) -> tuple[Deliveries, Iterator[Run]]:
        """Return the runs that a `send_many` is made of, and the outcomes that they fill in."""
        values = self.serializers.values(queues.topic, values)
        keys = self.serializers.keys(queues.topic, keys)
        stamps = self._clock.time_ms() if timestamps_ms is None else timestamps_ms
        deliveries = Deliveries(stamps)
        pairs = None if headers is None else [as_pairs(each) for each in headers]
        return deliveries, self._routing.runs_of_values(queues, values, keys, partition, stamps, pairs, deliveries)

    def runs_of_rows(
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


def as_pairs(headers: GivenHeaders) -> Headers:
    """Return headers as (name, value) pairs; users of other clients bring a dict.

    >>> as_pairs({"trace": b"7"})
    [('trace', b'7')]
    """
    return list(headers.items()) if isinstance(headers, Mapping) else headers
