"""aiokafka, on one event loop in a thread of its own."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import aiokafka
import aiokafka.errors
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

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

T = TypeVar("T")

TIMEOUT_S = 60
ASSIGNORS = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
}


class Aiokafka:
    """The library, and the event loop that it needs."""

    name = "aiokafka"
    sends_null_headers = True
    reads_metadata_of_others = True
    closes_without_coordinator = False
    """A consumer that is being closed looks for a coordinator no more, and tries for ever to commit to none (0.14)."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._begin = threading.Lock()

    def producer(self, bootstrap: str, sending: Sending = Sending()) -> AiokafkaProducer:  # noqa: B008
        return AiokafkaProducer(self, bootstrap, sending)

    def consumer(self, bootstrap: str, topic: str, membership: Membership | None = None) -> AiokafkaConsumer:
        return AiokafkaConsumer(self, bootstrap, topic, membership)

    def admin(self, bootstrap: str) -> AiokafkaAdmin:
        return AiokafkaAdmin(self, bootstrap)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run on the event loop and wait for the outcome."""
        with _errors():
            return asyncio.run_coroutine_threadsafe(work, self._running_loop()).result(TIMEOUT_S)

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        with self._begin:  # two members of a group begin at once, and what belongs to one loop cannot wait on another
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=self._loop.run_forever, name="aiokafka", daemon=True).start()
            return self._loop


class AiokafkaProducer:
    def __init__(self, library: Aiokafka, bootstrap: str, sending: Sending) -> None:
        self._run = library.run
        self._producer = self._run(_start_producer(bootstrap, sending))

    def produce(self, topic: str, events: Sequence[Event], partition: int | None = None) -> list[Place]:
        return self._run(self._produce(topic, events, partition))

    def close(self) -> None:
        self._run(self._producer.stop())

    async def _produce(self, topic: str, events: Sequence[Event], partition: int | None) -> list[Place]:
        futures = [
            await self._producer.send(
                topic,
                event.value,
                event.key,
                partition,
                event.timestamp_ms,
                list(event.headers),
            )
            for event in events
        ]
        places = await asyncio.gather(*futures)
        # It knows no places where acks=0 leaves the offsets unknown.
        return [Place(place.partition, place.offset) for place in places if place is not None]


class AiokafkaConsumer:
    def __init__(self, library: Aiokafka, bootstrap: str, topic: str, membership: Membership | None) -> None:
        self._run = library.run
        self._library = library
        self._bootstrap = bootstrap
        self._topic = topic
        self._membership = membership
        self._consumer = self._run(_start_consumer(bootstrap, topic, membership))

    def poll(self, timeout_s: float) -> list[Received]:
        batches = self._run(self._consumer.getmany(timeout_ms=int(timeout_s * 1000)))
        return [_received(record) for records in batches.values() for record in records]

    def assigned(self) -> set[int]:
        return {each.partition for each in self._consumer.assignment()}

    def commit(self, offsets: Mapping[int, OffsetAndMetadata] | None = None) -> None:
        if offsets is None:
            self._run(self._consumer.commit())
            return
        theirs = {self._at(partition): (each.offset, each.metadata) for partition, each in offsets.items()}
        self._run(self._consumer.commit(theirs))

    def committed(self, partition: int) -> OffsetAndMetadata | None:
        """Ask as its admin client does: its consumer does not tell the metadata."""
        assert self._membership
        with contextlib.closing(AiokafkaAdmin(self._library, self._bootstrap)) as admin:
            return admin.committed(self._membership.group, self._at(partition))

    def seek(self, partition: int, offset: int) -> None:
        self._consumer.seek(self._at(partition), offset)

    def beginning_offset(self, partition: int) -> int:
        where = self._at(partition)
        return int(self._run(self._consumer.beginning_offsets([where]))[where])

    def end_offset(self, partition: int) -> int:
        where = self._at(partition)
        return int(self._run(self._consumer.end_offsets([where]))[where])

    def offset_for_time(self, partition: int, timestamp_ms: int) -> int | None:
        where = self._at(partition)
        found = self._run(self._consumer.offsets_for_times({where: timestamp_ms}))[where]
        return found and int(found.offset)

    def close(self) -> None:
        self._run(self._consumer.stop())

    def _at(self, partition: int) -> aiokafka.TopicPartition:
        return aiokafka.TopicPartition(self._topic, partition)


class AiokafkaAdmin:
    def __init__(self, library: Aiokafka, bootstrap: str) -> None:
        self._run = library.run
        self._admin = self._run(_start_admin(bootstrap))

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replication_factor: int = 1,
        config: Mapping[str, str] | None = None,
    ) -> None:
        topic = NewTopic(name, partitions, replication_factor, topic_configs=dict(config or {}))
        response = self._run(self._admin.create_topics([topic]))
        for _, code, message in response.topic_errors:
            if code:
                raise ApiError(code, message or "")

    def delete_topic(self, name: str) -> None:
        for _, code in self._run(self._admin.delete_topics([name])).topic_error_codes:
            if code:
                raise ApiError(code)

    def partition_counts(self) -> dict[str, int]:
        return {topic["topic"]: len(topic["partitions"]) for topic in self._run(self._admin.describe_topics())}

    def brokers(self) -> dict[int, str]:
        brokers = self._run(self._admin.describe_cluster())["brokers"]
        return {each["node_id"]: f"{each['host']}:{each['port']}" for each in brokers}

    def committed(self, group: str, where: aiokafka.TopicPartition) -> OffsetAndMetadata | None:
        found = self._run(self._admin.list_consumer_group_offsets(group, partitions=[where]))[where]
        return None if found.offset < 0 else OffsetAndMetadata(found.offset, found.metadata)

    def close(self) -> None:
        self._run(self._admin.close())


# aiokafka's objects want to be made where an event loop runs.


async def _start_producer(bootstrap: str, sending: Sending) -> aiokafka.AIOKafkaProducer:
    producer = aiokafka.AIOKafkaProducer(
        bootstrap_servers=bootstrap,
        compression_type=None if sending.compression == "none" else sending.compression,
        acks=sending.acks,
        enable_idempotence=sending.idempotent,
        max_request_size=REQUEST_BYTES_MAX,
        retry_backoff_ms=RETRY_BACKOFF_MS,
        linger_ms=5,
    )
    await producer.start()
    return producer


async def _start_consumer(bootstrap: str, topic: str, membership: Membership | None) -> aiokafka.AIOKafkaConsumer:
    settings: dict[str, Any] = {}
    if membership is not None:
        settings = {
            "group_id": membership.group,
            "group_instance_id": membership.instance_id,
            "session_timeout_ms": membership.session_timeout_ms,
            "heartbeat_interval_ms": HEARTBEAT_INTERVAL_MS,
            "partition_assignment_strategy": [ASSIGNORS[membership.assignor]],
            "enable_auto_commit": membership.commits_by_itself,
        }
    consumer = aiokafka.AIOKafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        auto_offset_reset="earliest",
        fetch_max_wait_ms=FETCH_WAIT_MS,
        retry_backoff_ms=RETRY_BACKOFF_MS,
        **settings,
    )
    await consumer.start()
    return consumer


async def _start_admin(bootstrap: str) -> AIOKafkaAdminClient:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    return admin


def _received(record: Any) -> Received:
    event = Event(record.value, record.key, tuple(record.headers), record.timestamp)
    return Received(Place(record.partition, record.offset), event)


@contextlib.contextmanager
def _errors() -> Iterator[None]:
    try:
        yield
    except aiokafka.errors.BrokerResponseError as error:
        raise ApiError(error.errno, str(error)) from error
