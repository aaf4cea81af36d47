"""confluent-kafka: the Python binding of librdkafka."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import confluent_kafka
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.errors import ApiError
from barnabas.model import OffsetAndMetadata
from tests.interop.clients.neutral import (
    FETCH_WAIT_MS,
    HEARTBEAT_INTERVAL_MS,
    REQUEST_BYTES_MAX,
    RETRY_BACKOFF_MS,
    Event,
    Membership,
    Place,
    Received,
    Sending,
)

TIMEOUT_S = 60
RECORDS_PER_POLL = 500


class ConfluentKafka:
    """The library."""

    name = "confluent-kafka"
    sends_null_headers = True
    # It takes the metadata for a C string, ends its own with a zero byte, and reads beyond the end of others'.
    reads_metadata_of_others = False
    closes_without_coordinator = True

    def producer(self, bootstrap: str, sending: Sending = Sending()) -> ConfluentProducer:  # noqa: B008
        return ConfluentProducer(bootstrap, sending)

    def consumer(self, bootstrap: str, topic: str, membership: Membership | None = None) -> ConfluentConsumer:
        return ConfluentConsumer(bootstrap, topic, membership)

    def admin(self, bootstrap: str) -> ConfluentAdmin:
        return ConfluentAdmin(bootstrap)


class ConfluentProducer:
    def __init__(self, bootstrap: str, sending: Sending) -> None:
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": bootstrap,
                "compression.type": sending.compression,
                "acks": sending.acks,
                "enable.idempotence": sending.idempotent,
                "message.max.bytes": REQUEST_BYTES_MAX,
                "retry.backoff.ms": RETRY_BACKOFF_MS,
            }
        )

    def produce(self, topic: str, events: Sequence[Event], partition: int | None = None) -> list[Place]:
        outcomes: list[Future[Place]] = [Future() for _ in events]
        for event, outcome in zip(events, outcomes, strict=True):
            self._producer.produce(
                topic,
                event.value,
                event.key,
                partition=-1 if partition is None else partition,
                on_delivery=_settle(outcome),
                timestamp=0 if event.timestamp_ms is None else event.timestamp_ms,
                headers=list(event.headers),
            )
        assert self._producer.flush(TIMEOUT_S) == 0, "not all was delivered in time"
        return [outcome.result(0) for outcome in outcomes]

    def close(self) -> None:
        self._producer.close()


class ConfluentConsumer:
    def __init__(self, bootstrap: str, topic: str, membership: Membership | None) -> None:
        self._topic = topic
        settings: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "auto.offset.reset": "earliest",
            "check.crcs": True,
            "fetch.wait.max.ms": FETCH_WAIT_MS,
            "retry.backoff.ms": RETRY_BACKOFF_MS,
        }
        if membership is None:
            self._consumer = confluent_kafka.Consumer({**settings, "group.id": "none", "enable.auto.commit": False})
            partitions = self._consumer.list_topics(topic, TIMEOUT_S).topics[topic].partitions
            self._consumer.assign([self._at(each, confluent_kafka.OFFSET_BEGINNING) for each in partitions])
        else:
            self._consumer = confluent_kafka.Consumer({**settings, **_group_settings(membership)})
            self._consumer.subscribe([topic])

    def poll(self, timeout_s: float) -> list[Received]:
        first = self._consumer.poll(timeout_s)
        if first is None:
            return []
        messages = [first, *self._consumer.consume(RECORDS_PER_POLL, 0)]
        for message in messages:
            if message.error():
                raise ApiError(message.error().code(), message.error().str())
        return [_received(message) for message in messages]

    def assigned(self) -> set[int]:
        return {each.partition for each in self._consumer.assignment()}

    def commit(self, offsets: Mapping[int, OffsetAndMetadata] | None = None) -> None:
        with _errors():
            if offsets is None:
                self._consumer.commit(asynchronous=False)
                return
            committed = self._consumer.commit(
                offsets=[
                    confluent_kafka.TopicPartition(self._topic, partition, each.offset, each.metadata)
                    for partition, each in offsets.items()
                ],
                asynchronous=False,
            )
        for each in committed:
            if each.error:
                raise ApiError(each.error.code(), each.error.str())

    def committed(self, partition: int) -> OffsetAndMetadata | None:
        (found,) = self._consumer.committed([self._at(partition)], TIMEOUT_S)
        return None if found.offset < 0 else OffsetAndMetadata(found.offset, found.metadata or "")

    def seek(self, partition: int, offset: int) -> None:
        self._consumer.seek(self._at(partition, offset))

    def beginning_offset(self, partition: int) -> int:
        return int(self._consumer.get_watermark_offsets(self._at(partition), TIMEOUT_S)[0])

    def end_offset(self, partition: int) -> int:
        return int(self._consumer.get_watermark_offsets(self._at(partition), TIMEOUT_S)[1])

    def offset_for_time(self, partition: int, timestamp_ms: int) -> int | None:
        (found,) = self._consumer.offsets_for_times([self._at(partition, timestamp_ms)], TIMEOUT_S)
        return None if found.offset == confluent_kafka.OFFSET_END else int(found.offset)

    def close(self) -> None:
        self._consumer.close()

    def _at(self, partition: int, offset: int = confluent_kafka.OFFSET_INVALID) -> confluent_kafka.TopicPartition:
        return confluent_kafka.TopicPartition(self._topic, partition, offset)


class ConfluentAdmin:
    def __init__(self, bootstrap: str) -> None:
        self._admin = AdminClient({"bootstrap.servers": bootstrap})

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replication_factor: int = 1,
        config: Mapping[str, str] | None = None,
    ) -> None:
        topic = NewTopic(name, partitions, replication_factor, config=dict(config or {}))
        with _errors():
            self._admin.create_topics([topic])[name].result(TIMEOUT_S)

    def delete_topic(self, name: str) -> None:
        with _errors():
            self._admin.delete_topics([name])[name].result(TIMEOUT_S)

    def partition_counts(self) -> dict[str, int]:
        topics = self._admin.list_topics(timeout=TIMEOUT_S).topics
        return {name: len(topic.partitions) for name, topic in topics.items()}

    def brokers(self) -> dict[int, str]:
        brokers = self._admin.list_topics(timeout=TIMEOUT_S).brokers
        return {number: f"{each.host}:{each.port}" for number, each in brokers.items()}

    def close(self) -> None:
        """It has nothing to close."""


def _group_settings(membership: Membership) -> dict[str, Any]:
    settings = {
        "group.id": membership.group,
        "session.timeout.ms": membership.session_timeout_ms,
        "heartbeat.interval.ms": HEARTBEAT_INTERVAL_MS,
        "partition.assignment.strategy": membership.assignor,
        "enable.auto.commit": membership.commits_by_itself,
    }
    if membership.instance_id:
        settings["group.instance.id"] = membership.instance_id
    return settings


def _settle(outcome: Future[Place]) -> Any:
    def on_delivery(error: confluent_kafka.KafkaError | None, message: confluent_kafka.Message) -> None:
        if error:
            outcome.set_exception(ApiError(error.code(), error.str()))
        else:
            outcome.set_result(Place(message.partition(), message.offset()))

    return on_delivery


def _received(message: confluent_kafka.Message) -> Received:
    event = Event(message.value(), message.key(), tuple(message.headers() or ()), message.timestamp()[1])
    return Received(Place(message.partition(), message.offset()), event)


@contextlib.contextmanager
def _errors() -> Iterator[None]:
    try:
        yield
    except confluent_kafka.KafkaException as error:
        raise ApiError(error.args[0].code(), error.args[0].str()) from error
