"""Ships a feed with a producer, and counts the acknowledged records."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

from barnabas import Admin, Delivery, Producer
from barnabas.model import TopicPartition
from demo.audit import application_of
from demo.events import ID_HEADER, Event, Feed, event_id

PARTITIONS = 6
CHUNK_EVENTS = 2_000
CHUNKS_IN_FLIGHT = 8
DELIVERY_TIMEOUT_S = 60.0
AUDIT_WINDOW_MS = 86_400_000
"""The audit window: a day, because the events span a year."""


def prepare_topic(bootstrap: str, topic: str) -> dict[TopicPartition, int]:
    """Create the topic unless it exists. Return its current end offsets."""
    with Admin(bootstrap) as admin:
        if topic not in admin.list_topics():
            # The events are years old: the default retention would delete them within minutes. In a cluster, the topic
            # gets three replicas, because the brokers set default.replication.factor.
            admin.create_topic(topic, partitions=PARTITIONS, config={"retention.ms": "-1"})
        return end_offsets(bootstrap, topic)


def end_offsets(bootstrap: str, topic: str) -> dict[TopicPartition, int]:
    """Return the end offsets of a topic's partitions."""
    with Admin(bootstrap) as admin:
        described = admin.describe_topics([topic])[0]
        partitions = [TopicPartition(topic, part.partition) for part in described.partitions]
        return dict(admin.end_offsets(partitions))


def ship(
    bootstrap: str, feed: Feed, run: str, on_acknowledged: Callable[[int], None], rows: range | None = None
) -> int:
    """Ship events of a feed. Return the number of acknowledged records.

    :param on_acknowledged: called with the number of newly acknowledged records.
    :param rows: the consecutive rows to ship; None for all.
    :raises BarnabasError: if a record cannot be delivered.
    """
    acknowledged = 0
    waiting: deque[Sequence[Delivery]] = deque()
    wanted = range(feed.count) if rows is None else rows
    with Producer(
        bootstrap,
        acks="all",
        linger_ms=20,
        compression_type="none",
        client_id=application_of(run),
        audit=True,
        audit_window_ms=AUDIT_WINDOW_MS,
    ) as producer:
        for first_row, chunk in _chunks(islice(feed.read(), wanted.start, wanted.stop), wanted.start):
            waiting.append(_send(producer, feed.topic, run, first_row, chunk))
            while len(waiting) > CHUNKS_IN_FLIGHT:
                acknowledged += _count(waiting.popleft(), on_acknowledged)
        producer.flush(DELIVERY_TIMEOUT_S)
        while waiting:
            acknowledged += _count(waiting.popleft(), on_acknowledged)
    return acknowledged


def _chunks(events: Iterator[Event], row: int) -> Iterator[tuple[int, list[Event]]]:
    while chunk := list(islice(events, CHUNK_EVENTS)):
        yield row, chunk
        row += len(chunk)


def _send(producer: Producer, topic: str, run: str, first_row: int, chunk: Sequence[Event]) -> Sequence[Delivery]:
    return producer.send_many(
        topic,
        [event.value for event in chunk],
        keys=[event.key for event in chunk],
        timestamps_ms=[event.timestamp_ms for event in chunk],
        headers=[[(ID_HEADER, event_id(run, row))] for row in range(first_row, first_row + len(chunk))],
    )


def _count(deliveries: Sequence[Delivery], on_acknowledged: Callable[[int], None]) -> int:
    """Wait for the acknowledgement of each record. An offset proves that the broker has the record."""
    count = sum(delivery.result(DELIVERY_TIMEOUT_S).offset >= 0 for delivery in deliveries)
    on_acknowledged(count)
    return count
