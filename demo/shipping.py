"""Ships a feed through a producer, and counts what the broker acknowledged."""

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
"""A day: the events are of a year."""


def prepare_topic(bootstrap: str, topic: str) -> dict[TopicPartition, int]:
    """Make the topic, unless an earlier run has, and return where its partitions end now."""
    with Admin(bootstrap) as admin:
        if topic not in admin.list_topics():
            # The events are years old: with the usual retention they would be deleted within minutes. In a cluster
            # there are three replicas of each partition, as its brokers' default.replication.factor says.
            admin.create_topic(topic, partitions=PARTITIONS, config={"retention.ms": "-1"})
        return end_offsets(bootstrap, topic)


def end_offsets(bootstrap: str, topic: str) -> dict[TopicPartition, int]:
    """Return where the partitions of a topic end, as the broker has them."""
    with Admin(bootstrap) as admin:
        described = admin.describe_topics([topic])[0]
        partitions = [TopicPartition(topic, part.partition) for part in described.partitions]
        return dict(admin.end_offsets(partitions))


def ship(
    bootstrap: str, feed: Feed, run: str, on_acknowledged: Callable[[int], None], rows: range | None = None
) -> int:
    """Ship events of a feed, and return how many the broker acknowledged.

    :param on_acknowledged: called with how many more were acknowledged.
    :param rows: which events, in a row; None: all.
    :raises BarnabasError: a record could not be delivered.
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
    """Wait for the acknowledgement of each record; an offset is the broker's word that it has it."""
    count = sum(delivery.result(DELIVERY_TIMEOUT_S).offset >= 0 for delivery in deliveries)
    on_acknowledged(count)
    return count
