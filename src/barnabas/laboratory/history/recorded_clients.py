"""Producers and consumers that record their operations in a history, and the final read of all records."""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType
from typing import Any, Self

from barnabas.client.admin import Admin
from barnabas.client.consumer.consumer import Consumer
from barnabas.client.producer.delivery import Delivery
from barnabas.client.producer.producer import Producer
from barnabas.clock import SYSTEM_CLOCK, Clock
from barnabas.errors import ApiError, BarnabasError, ConfigurationError, ErrorCode, TimedOutError
from barnabas.laboratory.history.history_file import History, Outcome
from barnabas.model import TopicPartition
from barnabas.records import Record

POLL_RECORDS = 10_000
POLL_S = 0.5
END_TIMEOUT_S = 60.0

REFUSALS = frozenset(
    {
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_REQUIRED_ACKS,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    }
)
"""The errors that prove that no attempt of a produce request was appended. NOT_ENOUGH_REPLICAS proves nothing: an
earlier attempt may have been appended although its response was lost.
"""


def outcome_of(error: BaseException) -> Outcome:
    """Return the outcome of a send whose delivery failed. Only a rejection proves that the log does not have the
    value.
    """
    if isinstance(error, ConfigurationError) or (isinstance(error, ApiError) and error.code in REFUSALS):
        return Outcome.FAIL
    return Outcome.INFO


class RecordedProducer:
    """A producer that records its sends in a history.

    Args:
        history: The history to write to.
        producer: The producer; `close` closes it.
        process: The name of the process in the history.
    """

    def __init__(self, history: History, producer: Producer, process: str) -> None:
        self._history = history
        self._producer = producer
        self._process = process

    def send(self, place: tuple[str, int], value: bytes, **options: Any) -> Delivery | None:
        """Send a value to one partition. No other send in this history may have the value.

        Returns:
            The delivery; None if the producer rejected the record.
        """
        send = self._history.send(self._process, place, value)
        try:
            delivery = self._producer.send(place[0], value, partition=place[1], **options)
        except BarnabasError as error:
            send.ended(Outcome.FAIL, str(error))  # the producer has not sent the record
            return None

        def ended(delivery: Delivery) -> None:
            error = delivery.exception()
            if error is None:
                send.ok(offset if (offset := delivery.result().offset) >= 0 else None)
            else:
                send.ended(outcome_of(error), str(error))

        delivery.add_done_callback(ended)
        return delivery

    def flush(self, timeout_s: float | None = None) -> None:
        """Wait until the outcome of all sends is known; see `Producer.flush`."""
        self._producer.flush(timeout_s)

    def close(self, timeout_s: float | None = None) -> None:
        self._producer.close(timeout_s=timeout_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class RecordedConsumer:
    """A consumer that records its polls in a history.

    Args:
        history: The history to write to.
        consumer: The consumer, without a deserializer, so that values are bytes; `close` closes it.
        process: The name of the process in the history.
    """

    def __init__(self, history: History, consumer: Consumer, process: str) -> None:
        self._history = history
        self._consumer = consumer
        self._process = process

    def subscribe(self, topics: Iterable[str]) -> None:
        """Subscribe to topics as a member of the consumer's group, starting at the committed offsets."""

        def moved(_: Any) -> None:
            self._history.moved(self._process)

        self._consumer.subscribe(list(topics), on_assign=moved, on_revoke=moved, on_lost=moved)

    def assign(self, places: Iterable[tuple[str, int]]) -> None:
        """Assign partitions."""
        self._consumer.assign(places)
        self._history.moved(self._process)

    def seek(self, place: tuple[str, int], offset: int) -> None:
        """Continue at an offset."""
        self._consumer.seek(place, offset)
        self._history.moved(self._process)

    def poll(self, *, max_records: int = 500, timeout_s: float = 1.0, final: bool = False) -> list[Record]:
        """Return the next records; see `Consumer.poll`. For `final` see `History.poll`."""
        started = self._history.now()
        records = self._consumer.poll(max_records=max_records, timeout_s=timeout_s)
        if records:
            given = (((each.topic, each.partition), each.offset, each.value or b"") for each in records)
            self._history.poll(self._process, started, given, final=final)
        return records

    def commit(self) -> None:
        self._consumer.commit()

    def position(self, place: tuple[str, int]) -> int:
        """Return the offset of the next record of a partition."""
        return self._consumer.position(place)

    def close(self) -> None:
        self._consumer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def read_to_the_end(
    history: History,
    bootstrap: str,
    topics: Iterable[str],
    *,
    timeout_s: float = END_TIMEOUT_S,
    clock: Clock = SYSTEM_CLOCK,
    **security: Any,
) -> int:
    """Read topics from the beginning to the end, after all faults have ended and all producers have stopped.

    Without this final read, the check cannot detect missing acknowledged records.

    Args:
        history: The history to write to. bootstrap: The addresses of the brokers. topics: All topics of the history.
        timeout_s: The time limit for reading past the highest offset that was acknowledged or read. If the log is still
        shorter then, it has lost records, and the check reports the loss. security: The security settings of the
        clients.

    Returns:
        The number of records read.

    Raises:
        TimedOutError: If the reader did not reach the end of the log in time.
    """
    deadline = clock.monotonic() + timeout_s
    with Admin(bootstrap, **security) as admin:
        places = [
            TopicPartition(topic.name, partition.partition)
            for topic in admin.describe_topics(list(topics))
            for partition in topic.partitions
        ]
        consumer = Consumer(bootstrap, auto_offset_reset="earliest", **security)
        with RecordedConsumer(history, consumer, "final reader") as reader:
            count = 0
            for place in places:
                reader.assign([place])
                count += _read_place(history, admin, reader, place, deadline, clock)
    return count


def _read_place(
    history: History, admin: Admin, reader: RecordedConsumer, place: TopicPartition, deadline: float, clock: Clock
) -> int:
    """Read one partition to its end, and return its number of records."""
    count = 0
    while True:
        records = reader.poll(max_records=POLL_RECORDS, timeout_s=POLL_S, final=True)
        count += len(records)
        if records:
            continue
        late = clock.monotonic() > deadline
        position = reader.position(place)
        at_end = position >= admin.end_offsets([place])[place]
        if at_end and (late or position > history.highest(place)):
            history.read_whole(place)
            return count
        if late:
            raise TimedOutError(f"cannot read {place} to its end: the reader is at offset {position}")
