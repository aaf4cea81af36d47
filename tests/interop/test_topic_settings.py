"""Settings of a topic that are changed while the broker runs: in force with the next append, or the next look."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic

from tests.support.broker_process import BrokerProcess
from tests.support.reading import wait_until

MakeBroker = Callable[..., BrokerProcess]
LONG_AGO_MS = 1_000_000_000_000
LONG_MS = 10**9
TOO_LARGE = confluent_kafka.KafkaError.MSG_SIZE_TOO_LARGE


class Topic:
    """The topic `clicks`, with one partition."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.broker = broker
        self.admin = AdminClient({"bootstrap.servers": broker.bootstrap})

    def create(self, **settings: object) -> None:
        config = {name.replace("_", "."): str(value) for name, value in settings.items()}
        (created,) = self.admin.create_topics([NewTopic("clicks", 1, 1, config=config)]).values()
        created.result(60)

    def alter(self, **settings: object) -> None:
        """Change settings; None takes one away."""
        changes = {name.replace("_", "."): value for name, value in settings.items()}
        self._alter(ConfigResource.Type.TOPIC, "clicks", changes)

    def alter_broker(self, setting: str, value: str | None) -> None:
        """Change a setting of the broker; None takes it away."""
        self._alter(ConfigResource.Type.BROKER, "0", {setting: value})

    def _alter(self, kind: ConfigResource.Type, name: str, changes: Mapping[str, object]) -> None:
        entries = [
            ConfigEntry(
                name,
                None if value is None else str(value),
                incremental_operation=AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET,
            )
            for name, value in changes.items()
        ]
        resource = ConfigResource(kind, name, incremental_configs=entries)
        (altered,) = self.admin.incremental_alter_configs([resource]).values()
        altered.result(60)

    def produce(self, value: bytes = b"value", timestamp_ms: int = 0, acks: str = "1") -> confluent_kafka.Message:
        """Produce one message in a batch of its own, and wait for its acknowledgement."""
        outcome: list[tuple[confluent_kafka.KafkaError | None, confluent_kafka.Message]] = []
        settings = {"bootstrap.servers": self.broker.bootstrap, "acks": acks, "message.max.bytes": 10_000_000}
        producer = confluent_kafka.Producer({**settings, "linger.ms": 0})
        producer.produce("clicks", value, timestamp=timestamp_ms, on_delivery=lambda *result: outcome.append(result))
        assert producer.flush(60) == 0
        error, message = outcome[0]
        if error:
            raise confluent_kafka.KafkaException(error)
        return message

    def watermarks(self) -> tuple[int, int]:
        """Return the first offset that can be read, and the one after the last."""
        consumer = confluent_kafka.Consumer({"bootstrap.servers": self.broker.bootstrap, "group.id": "watermarks"})
        low, high = consumer.get_watermark_offsets(confluent_kafka.TopicPartition("clicks", 0), timeout=60)
        consumer.close()
        return low, high

    def segments(self) -> list[int]:
        return sorted(int(path.stem) for path in Path(self.broker.data).glob("clicks-0/*.log"))


@pytest.fixture
def topic(make_broker: MakeBroker) -> Topic:
    """Old records are looked for every 100 ms."""
    return Topic(make_broker(log_retention_check_interval_ms="100", file_delete_delay_ms="100"))


def test_retention_by_time(topic: Topic) -> None:
    topic.create(retention_ms=-1)
    for _ in range(3):
        topic.produce(timestamp_ms=LONG_AGO_MS)
    topic.alter(retention_ms=1_000_000)
    wait_until(lambda: topic.watermarks() == (3, 3), "the old records are deleted")
    wait_until(lambda: topic.segments() == [3], "their file is deleted")
    topic.produce()
    topic.broker.kill()
    topic.broker.restart()
    assert topic.watermarks() == (3, 4)


def test_default_retention_is_the_broker_s(make_broker: MakeBroker) -> None:
    topic = Topic(make_broker(log_retention_check_interval_ms="100", log_retention_ms="-1"))
    topic.create(retention_ms=1_000_000)
    topic.alter(retention_ms=None)
    topic.produce(timestamp_ms=LONG_AGO_MS)
    topic.alter(retention_ms=1_000_000)
    wait_until(lambda: topic.watermarks() == (1, 1), "the old record is deleted")


def test_a_default_of_the_broker_changes_for_topics_that_there_are(topic: Topic) -> None:
    topic.create(segment_bytes=2_000)
    topic.produce(b"v" * 800)
    with pytest.raises(confluent_kafka.KafkaException, match=r"log\.segment\.bytes is 3; it must be from 14 to"):
        topic.alter_broker("log.segment.bytes", "3")
    topic.alter_broker("message.max.bytes", "500")
    for _ in range(2):
        with pytest.raises(confluent_kafka.KafkaException) as caught:
            topic.produce(b"v" * 800)
        assert caught.value.args[0].code() == TOO_LARGE
        topic.broker.kill()
        topic.broker.restart()
    topic.alter_broker("message.max.bytes", None)
    topic.produce(b"v" * 800)
    assert topic.watermarks() == (0, 2)


def test_retention_by_size(topic: Topic) -> None:
    topic.create(segment_bytes=1_000)
    for _ in range(10):
        topic.produce(b"v" * 800)
    assert topic.watermarks() == (0, 10)
    assert len(topic.segments()) == 10
    topic.alter(retention_bytes=3_000)
    wait_until(lambda: len(topic.segments()) == 4, "the oldest segments are deleted")
    assert topic.watermarks() == (6, 10)


def test_segment_bytes(topic: Topic) -> None:
    topic.create()
    topic.produce(b"v" * 800)
    topic.produce(b"v" * 800)
    assert topic.segments() == [0]
    topic.alter(segment_bytes=1_000)
    topic.produce(b"v" * 800)
    assert topic.segments() == [0, 2]


def test_segment_ms_is_kept_without_appends(topic: Topic) -> None:
    topic.create()
    topic.produce()
    topic.alter(segment_ms=50)
    wait_until(lambda: topic.segments() == [0, 1], "the segment is closed")


def test_max_message_bytes(topic: Topic) -> None:
    topic.create()
    topic.alter(max_message_bytes=1_000)
    with pytest.raises(confluent_kafka.KafkaException) as caught:
        topic.produce(b"v" * 2_000)
    assert caught.value.args[0].code() == TOO_LARGE
    topic.alter(max_message_bytes=3_000_000)
    assert topic.produce(b"v" * 2_000_000).offset() == 0


def test_message_timestamp_type(topic: Topic) -> None:
    topic.create(retention_ms=-1)
    topic.produce(timestamp_ms=LONG_AGO_MS)
    topic.alter(message_timestamp_type="LogAppendTime")
    before_ms = time.time_ns() // 1_000_000
    timestamp_ms = topic.produce(timestamp_ms=LONG_AGO_MS).timestamp()[1]
    assert timestamp_ms >= before_ms
    topic.alter(message_timestamp_type=None)
    topic.produce(timestamp_ms=LONG_AGO_MS)
    consumer = confluent_kafka.Consumer({"bootstrap.servers": topic.broker.bootstrap, "group.id": "readers"})
    consumer.assign([confluent_kafka.TopicPartition("clicks", 0, 0)])
    stamps = [message.timestamp() for message in consumer.consume(3, 10)]
    consumer.close()
    create, append = confluent_kafka.TIMESTAMP_CREATE_TIME, confluent_kafka.TIMESTAMP_LOG_APPEND_TIME
    assert [kind for kind, _ in stamps] == [create, append, create]
    assert [time_ms for _, time_ms in stamps] == [LONG_AGO_MS, timestamp_ms, LONG_AGO_MS]


def test_flush_messages(topic: Topic) -> None:
    topic.create()
    topic.produce()
    topic.alter(flush_messages=4)
    for _ in range(2):
        topic.produce()
    assert topic.watermarks() == (0, 1)
    topic.produce()
    assert topic.watermarks() == (0, 4)
    topic.produce()
    assert topic.watermarks() == (0, 4)
    topic.alter(flush_messages=None)
    assert topic.watermarks() == (0, 5)


def test_waiting_consumer_is_woken_by_the_flush(topic: Topic) -> None:
    topic.create(flush_messages=2)
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": topic.broker.bootstrap, "group.id": "readers", "fetch.wait.max.ms": 30_000}
    )
    consumer.assign([confluent_kafka.TopicPartition("clicks", 0, 0)])
    assert consumer.poll(0.2) is None
    topic.produce(b"first")
    assert consumer.poll(0.2) is None
    topic.produce(b"second")
    assert [message.value() for message in consumer.consume(2, 10)] == [b"first", b"second"]
    consumer.close()


def test_acks_all_is_exposed_when_it_is_acknowledged(topic: Topic) -> None:
    topic.create(flush_ms=LONG_MS)
    topic.produce(acks="1")
    assert topic.watermarks() == (0, 0)
    topic.produce(acks="all")
    assert topic.watermarks() == (0, 2)


def test_flush_ms(topic: Topic) -> None:
    topic.create(flush_ms=LONG_MS)
    topic.produce()
    assert topic.watermarks() == (0, 0)
    topic.alter(flush_ms=20)
    wait_until(lambda: topic.watermarks() == (0, 1), "the record is flushed and exposed")


def test_what_was_not_flushed_before_a_kill_is_flushed_before_it_is_shown(topic: Topic) -> None:
    topic.create(flush_messages=1_000)
    topic.produce()
    assert topic.watermarks() == (0, 0)
    topic.broker.kill()
    topic.broker.restart()
    assert topic.watermarks() == (0, 1)
