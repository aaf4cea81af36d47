"""Records deleted on request: nobody reads them any more, also after a kill, and consumers go on from what is left."""

from __future__ import annotations

from collections.abc import Callable

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient

from tests.interop.clients.neutral import Event
from tests.interop.conftest import CLIENTS
from tests.support.broker_process import BrokerProcess
from tests.support.reading import read_topic, wait_until

SEGMENT_BYTES = 2_000
MakeBroker = Callable[..., BrokerProcess]


@pytest.fixture
def small_segments(make_broker: MakeBroker) -> BrokerProcess:
    return make_broker(log_segment_bytes=str(SEGMENT_BYTES), file_delete_delay_ms="100")


def fill(broker: BrokerProcess, count: int = 100) -> None:
    producer = CLIENTS[0].producer(broker.bootstrap)
    for number in range(0, count, 10):
        producer.produce("clicks", [Event(b"%d" % each * 50) for each in range(number, number + 10)], partition=0)
    producer.close()


def delete_before(broker: BrokerProcess, offset: int, topic: str = "clicks") -> int:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    where = confluent_kafka.TopicPartition(topic, 0, offset)
    (future,) = admin.delete_records([where]).values()
    return int(future.result(60).low_watermark)


def offsets_in(broker: BrokerProcess, count: int) -> list[int]:
    return [place.offset for place, _ in read_topic(CLIENTS[0], broker.bootstrap, "clicks", count)]


def log_files(broker: BrokerProcess) -> list[str]:
    return sorted(path.name for path in broker.data.glob("clicks-0/*.log*"))


def test_deleted_records_are_gone_for_good(small_segments: BrokerProcess) -> None:
    broker = small_segments
    fill(broker)
    before = log_files(broker)
    assert delete_before(broker, 55) == 55
    assert delete_before(broker, 20) == 55
    broker.kill()
    broker.restart()
    assert offsets_in(broker, 45) == list(range(55, 100))
    assert len(log_files(broker)) < len(before)


def test_files_of_deleted_records_are_removed_after_a_delay(small_segments: BrokerProcess) -> None:
    fill(small_segments)
    assert delete_before(small_segments, confluent_kafka.OFFSET_END) == 100
    wait_until(lambda: log_files(small_segments) == [f"{100:020}.log"], "the files are removed")
    fill(small_segments, 10)
    assert offsets_in(small_segments, 10) == list(range(100, 110))


def test_only_what_is_there_can_be_deleted(small_segments: BrokerProcess) -> None:
    fill(small_segments)
    with pytest.raises(confluent_kafka.KafkaException) as caught:
        delete_before(small_segments, 101)
    assert caught.value.args[0].code() == confluent_kafka.KafkaError.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize("reset", ["earliest", "latest"])
def test_consumer_below_the_start_is_set_back_as_it_asked(small_segments: BrokerProcess, reset: str) -> None:
    fill(small_segments)
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": small_segments.bootstrap, "group.id": "readers", "auto.offset.reset": reset}
    )
    consumer.assign([confluent_kafka.TopicPartition("clicks", 0, 10)])
    assert consumer.poll(10).offset() == 10
    delete_before(small_segments, 90)
    consumer.seek(confluent_kafka.TopicPartition("clicks", 0, 20))
    seen: list[int] = []

    def polled() -> bool:
        message = consumer.poll(0.2)
        if message is None and reset == "latest":
            fill(small_segments, 10)
        elif message is not None and message.error() is None:
            seen.append(message.offset())
        return bool(seen) and seen[-1] >= 90

    wait_until(polled, "the consumer goes on")
    consumer.close()
    assert (seen[-1] == 90) == (reset == "earliest")
