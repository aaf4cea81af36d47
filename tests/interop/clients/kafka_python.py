"""kafka-python 3."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import kafka
import kafka.errors
from kafka.admin import KafkaAdminClient
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

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
ASSIGNORS = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
    "cooperative-sticky": CooperativeStickyAssignor,
}


class KafkaPython:
    """The library."""

    name = "kafka-python"
    sends_null_headers = False
    reads_metadata_of_others = True
    closes_without_coordinator = True

    def producer(self, bootstrap: str, sending: Sending = Sending()) -> KafkaPythonProducer:  # noqa: B008
        return KafkaPythonProducer(bootstrap, sending)

    def consumer(self, bootstrap: str, topic: str, membership: Membership | None = None) -> KafkaPythonConsumer:
        return KafkaPythonConsumer(bootstrap, topic, membership)

    def admin(self, bootstrap: str) -> KafkaPythonAdmin:
        return KafkaPythonAdmin(bootstrap)


class KafkaPythonProducer:
    def __init__(self, bootstrap: str, sending: Sending) -> None:
        self._producer = kafka.KafkaProducer(
            bootstrap_servers=bootstrap,
            compression_type=None if sending.compression == "none" else sending.compression,
            acks=sending.acks,
            enable_idempotence=sending.idempotent,
            max_request_size=REQUEST_BYTES_MAX,
            retry_backoff_ms=RETRY_BACKOFF_MS,
            linger_ms=5,
        )

    def produce(self, topic: str, events: Sequence[Event], partition: int | None = None) -> list[Place]:
        futures = [
            self._producer.send(
                topic,
                event.value,
                event.key,
                list(event.headers),
                partition=partition,
                timestamp_ms=event.timestamp_ms,
            )
            for event in events
        ]
        self._producer.flush(TIMEOUT_S)
        with _errors():
            places = [future.get(TIMEOUT_S) for future in futures]
        return [Place(place.partition, place.offset) for place in places]

    def close(self) -> None:
        self._producer.close(TIMEOUT_S)


class KafkaPythonConsumer:
    def __init__(self, bootstrap: str, topic: str, membership: Membership | None) -> None:
        self._topic = topic
        self._consumer = kafka.KafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            auto_offset_reset="earliest",
            fetch_max_wait_ms=FETCH_WAIT_MS,
            retry_backoff_ms=RETRY_BACKOFF_MS,
            **({} if membership is None else _group_settings(membership)),
        )

    def poll(self, timeout_s: float) -> list[Received]:
        try:
            batches = self._consumer.poll(timeout_s * 1000)
        except kafka.errors.RetriableError:
            # While the coordinator restarts, kafka-python 3.0 lets errors of its metadata requests out of `poll`.
            return []
        self._ask_again_for_a_lost_assignment()
        return [_received(record) for records in batches.values() for record in records]

    def assigned(self) -> set[int]:
        return {each.partition for each in self._consumer.assignment()}

    def commit(self, offsets: Mapping[int, OffsetAndMetadata] | None = None) -> None:
        with _errors():
            if offsets is None:
                self._consumer.commit(timeout_ms=TIMEOUT_S * 1000)
                return
            theirs = {
                self._at(partition): kafka.OffsetAndMetadata(each.offset, each.metadata, each.leader_epoch)
                for partition, each in offsets.items()
            }
            self._consumer.commit(theirs, timeout_ms=TIMEOUT_S * 1000)

    def committed(self, partition: int) -> OffsetAndMetadata | None:
        found = self._consumer.committed(self._at(partition), metadata=True, timeout_ms=TIMEOUT_S * 1000)
        return found and OffsetAndMetadata(found.offset, found.metadata)

    def seek(self, partition: int, offset: int) -> None:
        self._consumer.seek(self._at(partition), offset)

    def beginning_offset(self, partition: int) -> int:
        where = self._at(partition)
        return int(self._consumer.beginning_offsets([where])[where])

    def end_offset(self, partition: int) -> int:
        where = self._at(partition)
        return int(self._consumer.end_offsets([where])[where])

    def offset_for_time(self, partition: int, timestamp_ms: int) -> int | None:
        where = self._at(partition)
        found = self._consumer.offsets_for_times({where: timestamp_ms})[where]
        return found and int(found.offset)

    def close(self) -> None:
        self._consumer.close()

    def _ask_again_for_a_lost_assignment(self) -> None:
        """Join once more where kafka-python 3.0 has lost what it was assigned.

        Its I/O thread goes on with a join when `poll` has run out of time; if the join ends before the next
        `poll`, the assignment is never taken up and no heartbeat is sent any more.
        """
        coordinator = self._consumer._coordinator
        if coordinator is not None and coordinator._join_task is not None and coordinator._join_task.is_done:
            coordinator.request_rejoin()

    def _at(self, partition: int) -> kafka.TopicPartition:
        return kafka.TopicPartition(self._topic, partition)


class KafkaPythonAdmin:
    def __init__(self, bootstrap: str) -> None:
        self._admin = KafkaAdminClient(bootstrap_servers=bootstrap)

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replication_factor: int = 1,
        config: Mapping[str, str] | None = None,
    ) -> None:
        options = {
            "num_partitions": partitions,
            "replication_factor": replication_factor,
            "configs": dict(config or {}),
        }
        with _errors():
            self._admin.create_topics({name: options})

    def delete_topic(self, name: str) -> None:
        with _errors():
            self._admin.delete_topics([name])

    def partition_counts(self) -> dict[str, int]:
        return {topic["name"]: len(topic["partitions"]) for topic in self._admin.describe_topics()}

    def brokers(self) -> dict[int, str]:
        brokers = self._admin.describe_cluster()["brokers"]
        return {each["broker_id"]: f"{each['host']}:{each['port']}" for each in brokers}

    def close(self) -> None:
        self._admin.close()


def _group_settings(membership: Membership) -> dict[str, Any]:
    return {
        "group_id": membership.group,
        "group_instance_id": membership.instance_id,
        "session_timeout_ms": membership.session_timeout_ms,
        "heartbeat_interval_ms": HEARTBEAT_INTERVAL_MS,
        "partition_assignment_strategy": [ASSIGNORS[membership.assignor]],
        "enable_auto_commit": membership.commits_by_itself,
    }


def _received(record: Any) -> Received:
    event = Event(record.value, record.key, tuple(record.headers), record.timestamp)
    return Received(Place(record.partition, record.offset), event)


@contextlib.contextmanager
def _errors() -> Iterator[None]:
    try:
        yield
    except kafka.errors.BrokerResponseError as error:
        raise ApiError(error.errno, str(error)) from error
