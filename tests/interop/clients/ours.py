"""Barnabas's own client, by the same measure as the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import barnabas
from barnabas.model import OffsetAndMetadata
from barnabas.records import Record
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


class Ours:
    """The library."""

    name = "barnabas"
    sends_null_headers = True
    reads_metadata_of_others = True
    closes_without_coordinator = True

    def producer(self, bootstrap: str, sending: Sending = Sending()) -> OurProducer:  # noqa: B008
        return OurProducer(bootstrap, sending)

    def consumer(self, bootstrap: str, topic: str, membership: Membership | None = None) -> OurConsumer:
        return OurConsumer(bootstrap, topic, membership)

    def admin(self, bootstrap: str) -> OurAdmin:
        return OurAdmin(bootstrap)


class OurProducer:
    def __init__(self, bootstrap: str, sending: Sending) -> None:
        self._producer = barnabas.Producer(
            bootstrap,
            compression_type=sending.compression,
            acks=sending.acks,
            enable_idempotence=sending.idempotent,
            max_request_size=REQUEST_BYTES_MAX,
            retry_backoff_ms=RETRY_BACKOFF_MS,
        )

    def produce(self, topic: str, events: Sequence[Event], partition: int | None = None) -> list[Place]:
        deliveries = [
            self._producer.send(
                topic,
                event.value,
                event.key,
                partition=partition,
                timestamp_ms=event.timestamp_ms,
                headers=event.headers,
            )
            for event in events
        ]
        self._producer.flush(TIMEOUT_S)
        places = [delivery.result(0) for delivery in deliveries]
        return [Place(place.partition, place.offset) for place in places]

    def close(self) -> None:
        self._producer.close(timeout_s=TIMEOUT_S)


class OurConsumer:
    def __init__(self, bootstrap: str, topic: str, membership: Membership | None) -> None:
        self._topic = topic
        settings: dict[str, Any] = {} if membership is None else _group_settings(membership)
        self._consumer = barnabas.Consumer(
            bootstrap,
            auto_offset_reset="earliest",
            fetch_max_wait_ms=FETCH_WAIT_MS,
            retry_backoff_ms=RETRY_BACKOFF_MS,
            **settings,
        )
        if membership is None:
            with barnabas.Admin(bootstrap) as admin:
                (description,) = admin.describe_topics([topic])
            self._consumer.assign([(topic, each.partition) for each in description.partitions])
        else:
            self._consumer.subscribe(topic)

    def poll(self, timeout_s: float) -> list[Received]:
        return [_received(record) for record in self._consumer.poll(timeout_s=timeout_s)]

    def assigned(self) -> set[int]:
        return {each.partition for each in self._consumer.assignment()}

    def commit(self, offsets: Mapping[int, OffsetAndMetadata] | None = None) -> None:
        ours = offsets and {self._at(partition): each for partition, each in offsets.items()}
        self._consumer.commit(ours)

    def committed(self, partition: int) -> OffsetAndMetadata | None:
        found = self._consumer.committed(self._at(partition))
        return found and OffsetAndMetadata(found.offset, found.metadata)

    def seek(self, partition: int, offset: int) -> None:
        self._consumer.seek(self._at(partition), offset)

    def beginning_offset(self, partition: int) -> int:
        where = self._at(partition)
        return self._consumer.beginning_offsets([where])[where]

    def end_offset(self, partition: int) -> int:
        where = self._at(partition)
        return self._consumer.end_offsets([where])[where]

    def offset_for_time(self, partition: int, timestamp_ms: int) -> int | None:
        where = self._at(partition)
        found = self._consumer.offsets_for_times({where: timestamp_ms})[where]
        return found and found.offset

    def close(self) -> None:
        self._consumer.close()

    def _at(self, partition: int) -> barnabas.TopicPartition:
        return barnabas.TopicPartition(self._topic, partition)


class OurAdmin:
    def __init__(self, bootstrap: str) -> None:
        self._admin = barnabas.Admin(bootstrap)

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replication_factor: int = 1,
        config: Mapping[str, str] | None = None,
    ) -> None:
        self._admin.create_topic(name, partitions, replication_factor, config)

    def delete_topic(self, name: str) -> None:
        self._admin.delete_topic(name)

    def partition_counts(self) -> dict[str, int]:
        return {topic.name: len(topic.partitions) for topic in self._admin.describe_topics()}

    def brokers(self) -> dict[int, str]:
        return {node.id: f"{node.host}:{node.port}" for node in self._admin.brokers()}

    def close(self) -> None:
        self._admin.close()


def _group_settings(membership: Membership) -> dict[str, Any]:
    return {
        "group": membership.group,
        "group_instance_id": membership.instance_id,
        "session_timeout_ms": membership.session_timeout_ms,
        "heartbeat_interval_ms": HEARTBEAT_INTERVAL_MS,
        "partition_assignment_strategy": membership.assignor,
        "enable_auto_commit": membership.commits_by_itself,
    }


def _received(record: Record) -> Received:
    event = Event(record.value, record.key, record.headers, record.timestamp_ms)
    return Received(Place(record.partition, record.offset), event)
