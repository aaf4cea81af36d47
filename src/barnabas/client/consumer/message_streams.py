"""Message streams (paper, section 3): iterators that block while there are no new records, and never end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol

from barnabas.errors import ConfigurationError
from barnabas.model import K_co, TopicPartition, V_co
from barnabas.records import Record


class RecordSource(Protocol):
    """The source of a stream's records. If an error ends the iterator `records`, the source replaces it with a new
    iterator.
    """

    records: Iterator[Record[Any, Any]]


class MessageStream(Iterator[Record[K_co, V_co]]):
    """An iterator over some of the records of a topic, for one thread. `Consumer.create_message_streams` returns it.

    Iteration blocks while there are no new records, and ends when the consumer is closed. All records of a partition
    are in one stream, in order.

        with barnabas.Consumer("localhost:9092", group="jobs", auto_offset_reset="earliest") as consumer:
            (stream,) = consumer.create_message_streams({"clicks": 1})["clicks"]
            for record in stream:
                print(record.value)
    """

    def __init__(self, topic: str, number: int, slices: RecordSource) -> None:
        self.topic = topic
        self.number = number
        self._slices = slices

    def __iter__(self) -> Iterator[Record[K_co, V_co]]:
        return self._slices.records

    def __next__(self) -> Record[K_co, V_co]:
        return next(self._slices.records)

    def __repr__(self) -> str:
        return f"<MessageStream {self.number} of {self.topic}>"


class StreamPlan:
    """Assigns each new partition to the stream with the fewest partitions. The partition stays in this stream while the
    consumer owns it, so its records stay in order.
    """

    def __init__(self, counts: Mapping[str, int]) -> None:
        for topic, count in counts.items():
            if count < 1:
                raise ConfigurationError(f"{count} streams for topic {topic!r}; there must be at least one")
        self.counts = dict(counts)
        self._stream_of: dict[TopicPartition, int] = {}

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Apply a new assignment.

        >>> plan = StreamPlan({"clicks": 2})
        >>> plan.assign(TopicPartition("clicks", partition) for partition in range(3))
        >>> [plan.accepts("clicks", 0)(TopicPartition("clicks", partition)) for partition in range(3)]
        [True, False, True]
        """
        assigned = sorted(partitions)
        self._stream_of = {tp: self._stream_of[tp] for tp in assigned if tp in self._stream_of}
        taken = Counter((tp.topic, number) for tp, number in self._stream_of.items())
        for tp in assigned:
            if tp not in self._stream_of:
                streams = range(self.counts.get(tp.topic, 1))
                number = min(streams, key=lambda number: taken[tp.topic, number])
                self._stream_of[tp] = number
                taken[tp.topic, number] += 1

    def accepts(self, topic: str, number: int) -> Callable[[TopicPartition], bool]:
        """Return a function that returns whether a partition is currently assigned to stream `number` of `topic`."""
        return lambda tp: tp.topic == topic and self._stream_of.get(tp) == number
