"""Streams whose topics come, go and are made again while batches are under way. No JVM runs here.

The behaviours are those that the tests of Spark's own Kafka source are about.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from barnabas import Admin, Producer
from barnabas.errors import ConfigurationError
from barnabas.spark.errors import DataLossError
from barnabas.spark.stream_reader import BarnabasStreamReader
from tests.support.broker_process import BrokerProcess
from tests.support.reading import wait_until

TOPIC = "clicks"
Made = Callable[..., BarnabasStreamReader]
Offsets = dict[str, Any]


@pytest.fixture
def admin(broker: BrokerProcess) -> Iterator[Admin]:
    with Admin(broker.bootstrap) as admin:
        yield admin


def produce(broker: BrokerProcess, values: range, topic: str = TOPIC, partition: int = 0) -> None:
    with Producer(broker.bootstrap) as producer:
        producer.send_many(topic, [b"%d" % value for value in values], partition=partition).result(60)


def make_again(admin: Admin, topic: str, partitions: int) -> None:
    """Delete a topic, and create it as soon as that is possible."""
    admin.delete_topic(topic)
    admin.create_topic(topic, partitions)


def read(reader: BarnabasStreamReader, start: Offsets, end: Offsets) -> list[int]:
    return [
        int(value)
        for part in reader.partitions(start, end)
        for batch in reader.read(part)
        for value in batch.column("value").to_pylist()
    ]


def advance(reader: BarnabasStreamReader, start: Offsets) -> Offsets:
    """Return where the next batch ends."""
    return reader.latestOffset(start, reader.getDefaultReadLimit())


def test_one_topic_from_its_start_and_one_from_its_end_and_later_ones_from_their_start(
    broker: BrokerProcess, admin: Admin, open_reader: Made
) -> None:
    for topic, partitions in (("web-a", 3), ("web-b", 2)):
        admin.create_topic(topic, partitions)
    produce(broker, range(3), "web-a", partition=2)
    produce(broker, range(10, 12), "web-b")
    reader = open_reader(subscribePattern="web-.*", startingOffsets='{"web-a": "earliest", "web-b": "latest"}')
    start = reader.initialOffset()
    assert start == {"web-a": {"0": 0, "1": 0, "2": 0}, "web-b": {"0": 2, "1": 0}}
    first = advance(reader, start)
    assert first == start  # a start at some end goes into the checkpoint before anything is read
    produce(broker, range(12, 13), "web-b")
    admin.create_topic("web-c", 1)
    produce(broker, range(20, 22), "web-c")
    wait_until(lambda: "web-c" in advance(reader, first), "nobody saw the topic")
    assert sorted(read(reader, first, advance(reader, first))) == [0, 1, 2, 12, 20, 21]
    with pytest.raises(ConfigurationError, match="names nowhere, but no partition of it is selected"):
        open_reader(subscribePattern="web-.*", startingOffsets='{"nowhere": "earliest"}').initialOffset()


@pytest.mark.parametrize(("partitions", "count"), [(3, 15), (5, 3)])
def test_a_topic_made_again_between_batches_of_what_was_there_ends_the_query(
    broker: BrokerProcess, admin: Admin, open_reader: Made, partitions: int, count: int
) -> None:
    admin.create_topic(TOPIC, 5)
    produce(broker, range(15))
    reader = open_reader(startingOffsets="earliest", maxOffsetsPerTrigger="5")
    at = reader.initialOffset()
    reader.prepareForTriggerAvailableNow()
    end = advance(reader, at)
    assert read(reader, at, end) == [0, 1, 2, 3, 4]
    make_again(admin, TOPIC, partitions)
    produce(broker, range(count))

    def is_told() -> bool:
        try:
            read(reader, end, advance(reader, end))
        except DataLossError as error:
            return "Set failOnDataLoss to false" in str(error)
        return False

    wait_until(is_told, "nobody missed the records")


def test_a_batch_that_failed_is_tried_again_with_partitions_that_came_meanwhile(
    broker: BrokerProcess, admin: Admin, open_reader: Made
) -> None:
    admin.create_topic(TOPIC, 1)
    produce(broker, range(7))
    options = {"startingOffsets": "earliest"}
    failed = open_reader(**options)
    start = failed.initialOffset()
    failed.prepareForTriggerAvailableNow()
    end = advance(failed, start)
    assert len(failed.partitions(start, end)) == 1  # and its task fails
    admin.add_partitions(TOPIC, 2)
    produce(broker, range(7, 9), partition=1)
    again = open_reader(**options)
    again.initialOffset()
    again.prepareForTriggerAvailableNow()
    assert read(again, start, end) == list(range(7))
    assert read(again, end, advance(again, end)) == [7, 8]


def test_a_topic_that_is_deleted_while_its_tasks_run_ends_them_only_with_fail_on_data_loss(
    broker: BrokerProcess, admin: Admin, open_reader: Made
) -> None:
    admin.create_topic(TOPIC, 1)
    produce(broker, range(10))
    options = {"startingOffsets": "earliest", "kafka.default.api.timeout.ms": "2000"}
    lenient, strict = (open_reader(**options, failOnDataLoss=value) for value in ("false", "true"))
    start = lenient.initialOffset()
    end = advance(lenient, start)
    (task,) = lenient.partitions(start, end)
    make_again(admin, TOPIC, 1)
    assert [batch for batch in lenient.read(task) if batch.num_rows] == []
    with pytest.raises(DataLossError, match="the log end offset is 0, and the read reached 0: the topic was deleted"):
        list(strict.read(task))


def test_a_query_whose_topics_are_all_gone_keeps_its_place_until_there_is_one_again(
    broker: BrokerProcess, admin: Admin, open_reader: Made
) -> None:
    admin.create_topic("web-a", 2)
    produce(broker, range(4), "web-a")
    reader = open_reader(subscribePattern="web-.*", startingOffsets="earliest", failOnDataLoss="false")
    at = advance(reader, reader.initialOffset())
    admin.delete_topic("web-a")
    wait_until(lambda: not admin.describe_topics(), "the topic is still there")
    looked: list[Offsets] = []

    def has_looked() -> bool:
        looked.append(advance(reader, at))
        return reader.reportLatestOffset() == {}

    wait_until(has_looked, "nobody saw that the topic is gone")
    assert set(map(str, looked)) == {str(at)}
    admin.create_topic("web-b", 1)
    produce(broker, range(4, 6), "web-b")
    wait_until(lambda: "web-b" in advance(reader, at), "nobody saw the topic")
    assert read(reader, at, advance(reader, at)) == [4, 5]


def count_kept(reader: BarnabasStreamReader, start: Offsets, end: Offsets) -> int:
    """Return how many records of `stress-kept` a batch has."""
    tasks = reader.partitions(start, end)
    return sum(batch.column("topic").to_pylist().count("stress-kept") for task in tasks for batch in reader.read(task))


@pytest.mark.parametrize("cores", [None, 1])
def test_a_query_that_goes_on_with_what_is_left_survives_any_change_of_topics(
    broker: BrokerProcess, admin: Admin, open_reader: Made, cores: int | None
) -> None:
    seed = random.Random(20)
    options = {"startingOffsets": "earliest", "failOnDataLoss": "false", "maxOffsetsPerTrigger": "7"}
    reader = open_reader(cores=cores, subscribePattern="stress-.*", **options)
    admin.create_topic("stress-kept", 2)
    at, came, sent = reader.initialOffset(), 0, 0
    alive: list[str] = []
    for step in range(40):
        match seed.randrange(5):
            case 0:
                alive.append(f"stress-{step}")
                admin.create_topic(alive[-1], seed.randrange(1, 4))
            case 1 if alive:
                admin.delete_topic(alive.pop(seed.randrange(len(alive))))
            case 2 if alive:
                make_again(admin, seed.choice(alive), 1)
            case _:
                for topic in alive:
                    produce(broker, range(seed.randrange(1, 10)), topic)
                produce(broker, range(sent, sent + 3), "stress-kept", partition=step % 2)
                sent += 3
        end = advance(reader, at)
        came += count_kept(reader, at, end)
        at = end
    reader.prepareForTriggerAvailableNow()
    end = reader.latestOffset(at, ReadAllAvailable())
    came += count_kept(reader, at, end)
    assert came == sent


def test_a_task_of_several_partitions_reads_what_is_left_of_each(
    broker: BrokerProcess, admin: Admin, open_reader: Made
) -> None:
    admin.create_topic(TOPIC, 3)
    for partition in range(3):
        produce(broker, range(10 * partition, 10 * partition + 10), partition=partition)
    reader = open_reader(cores=1, startingOffsets="earliest", failOnDataLoss="false")
    start = reader.initialOffset()
    (task,) = reader.partitions(start, reader.latestOffset(start, ReadAllAvailable()))
    admin.delete_records({(TOPIC, 0): 4, (TOPIC, 1): 10})
    values = [int(value) for batch in reader.read(task) for value in batch.column("value").to_pylist()]
    assert values == [*range(4, 10), *range(20, 30)]
