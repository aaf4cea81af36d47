"""What Spark asks of a stream, asked by the test: offsets, limits, topics that come and go, and starts after crashes.

No JVM runs here. `Query` keeps the two logs of a checkpoint as Spark does, and can be left at any step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, ReadMinRows

from barnabas import Admin, Producer
from barnabas.errors import ConfigurationError, TimedOutError
from barnabas.model import OffsetAndMetadata, TopicPartition
from barnabas.spark.errors import DataLossError
from barnabas.spark.options import parse_stream_options
from barnabas.spark.stream_reader import BarnabasStreamReader
from tests.support.broker_process import BrokerProcess
from tests.support.ports import free_port
from tests.support.reading import wait_until

TOPIC = "clicks"
STEPS = ("asked", "offsets written", "batch read", "batch committed")
Made = Callable[..., BarnabasStreamReader]


@pytest.fixture
def admin(broker: BrokerProcess) -> Iterator[Admin]:
    with Admin(broker.bootstrap) as admin:
        yield admin


@pytest.fixture
def make_reader(open_reader: Made) -> Made:
    """A function from options (without the brokers) to a reader, which starts at the first record by default."""
    return lambda **options: open_reader(**{"startingOffsets": "earliest"} | options)


def produce(broker: BrokerProcess, values: range, topic: str = TOPIC, partition: int | None = None) -> None:
    with Producer(broker.bootstrap) as producer:
        for value in values:
            producer.send(topic, b"%d" % value, partition=partition)


def read(reader: BarnabasStreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[int]:
    return [
        int(value)
        for partition in reader.partitions(start, end)
        for batch in reader.read(partition)
        for value in batch.column("value").to_pylist()
    ]


def limit_of(reader: BarnabasStreamReader) -> ReadLimit:
    return reader.getDefaultReadLimit()


class Query:
    """One query with its checkpoint; `reader` is that of the run that is under way."""

    def __init__(self, make: Callable[[], BarnabasStreamReader]) -> None:
        self.make = make
        self.offsets: list[dict[str, Any]] = []
        self.commits = 0
        self.taken: dict[int, list[int]] = {}
        """What a sink has that takes each batch once, as a file sink does."""
        self.reader = make()

    def start_of(self, batch: int) -> dict[str, Any]:
        return self.offsets[batch - 1] if batch else self.reader.initialOffset()

    def crash(self) -> None:
        """Begin anew with what the checkpoint has."""
        self.reader.stop()
        self.reader = self.make()
        if len(self.offsets) > self.commits:
            self.finish()

    def run(self, crash_after: str | None = None) -> bool:
        """Run a batch if there is something to read; stop before its next step, if told to."""
        batch = len(self.offsets)
        start = self.start_of(batch)
        end = self.reader.latestOffset(start, limit_of(self.reader))
        if batch and end == start:
            return False
        if crash_after == "asked":
            return True
        self.offsets.append(end)
        if crash_after != "offsets written":
            self.finish(crash_after)
        return True

    def finish(self, crash_after: str | None = None) -> None:
        batch = len(self.offsets) - 1
        self.taken[batch] = read(self.reader, self.start_of(batch), self.offsets[batch])
        if crash_after != "batch read":
            self.commits += 1

    @property
    def values(self) -> list[int]:
        return sorted(value for batch in self.taken.values() for value in batch)


@pytest.mark.parametrize("starting", ["earliest", "latest"])
def test_a_crash_after_any_step_of_any_batch_loses_and_doubles_nothing(
    broker: BrokerProcess, admin: Admin, make_reader: Made, starting: str
) -> None:
    admin.create_topic(TOPIC, partitions=3)
    produce(broker, range(-50, 0))
    for step in STEPS:
        query = Query(lambda: make_reader(startingOffsets=starting, maxOffsetsPerTrigger="40"))
        query.run(crash_after=step)
        produce(broker, range(100))
        query.crash()
        query.run(crash_after=step)
        query.crash()
        while query.run():
            pass
        came = [value for value in query.values if value >= 0]
        # A query that never got as far as its log of offsets has not begun: it begins at what is the end by then.
        assert came == sorted(list(range(100)) * came.count(0)), step
        expected = STEPS.index(step) + 1 if starting == "earliest" else int(step != "asked")
        assert came.count(0) == expected, step


def test_batches_are_limited_and_what_comes_during_available_now_waits_for_the_next_run(
    broker: BrokerProcess, admin: Admin, make_reader: Made
) -> None:
    admin.create_topic(TOPIC, partitions=2)
    produce(broker, range(100))
    reader = make_reader(maxOffsetsPerTrigger="30", minOffsetsPerTrigger="20")
    assert limit_of(reader) == ReadMaxRows(30)
    assert limit_of(make_reader(minOffsetsPerTrigger="20")) == ReadMinRows(20)
    assert limit_of(make_reader()) == ReadAllAvailable()
    at = reader.initialOffset()
    assert at == {TOPIC: {"0": 0, "1": 0}}
    reader.prepareForTriggerAvailableNow()
    produce(broker, range(100, 115))
    sizes = []
    while (end := reader.latestOffset(at, limit_of(reader))) != at:
        sizes.append(len(read(reader, at, end)))
        at = end
    assert sizes == [30, 30, 30, 10]  # the last one has fewer than the least, and does not wait
    assert sum(reader.reportLatestOffset()[TOPIC].values()) == 100  # type: ignore[index]
    again = make_reader(minOffsetsPerTrigger="20")
    end = again.latestOffset(at, limit_of(again))
    assert len(read(again, at, end)) == 15
    assert again.latestOffset(end, limit_of(again)) == end
    produce(broker, range(115, 134))
    assert again.latestOffset(end, limit_of(again)) == end  # fewer than 20, and the last batch was just now
    assert again.latestOffset(end, ReadAllAvailable()) != end  # a trigger that takes all has no limits


def test_new_partitions_and_new_topics_are_read_from_their_first_record(
    broker: BrokerProcess, admin: Admin, make_reader: Made
) -> None:
    admin.create_topic("web-a", partitions=1)
    admin.create_topic("other", partitions=1)
    produce(broker, range(10), "web-a")
    query = Query(lambda: make_reader(subscribePattern="web-.*", startingOffsets="latest"))
    query.run()
    assert query.values == []
    admin.add_partitions("web-a", 2)
    admin.create_topic("web-b", partitions=1)
    produce(broker, range(10, 20), "web-a", partition=1)
    produce(broker, range(20, 30), "web-b")
    produce(broker, range(30, 40), "other")

    def all_came() -> bool:
        query.run()
        return query.values == list(range(10, 30))

    wait_until(all_came, lambda: f"{query.values}")
    assert query.offsets[-1] == {"web-a": {"0": 10, "1": 10}, "web-b": {"0": 10}}


def test_a_topic_that_goes_is_an_error_or_left_out_and_one_that_is_made_again_is_read_anew(
    broker: BrokerProcess, admin: Admin, make_reader: Made
) -> None:
    admin.create_topic(TOPIC, partitions=1)
    admin.create_topic("kept", partitions=1)
    produce(broker, range(10))
    strict = make_reader(subscribe=f"{TOPIC},kept")
    at = strict.latestOffset(strict.initialOffset(), ReadAllAvailable())
    admin.delete_topic(TOPIC)
    produce(broker, range(10, 15), "kept")

    def is_told() -> bool:
        try:
            strict.latestOffset(at, ReadAllAvailable())
        except DataLossError as error:
            return "clicks-0 was deleted; the query had read up to 10. Set failOnDataLoss to false" in str(error)
        return False

    wait_until(is_told, "nobody missed the topic")
    lenient = make_reader(subscribe=f"{TOPIC},kept", failOnDataLoss="false")
    after = lenient.latestOffset(at, ReadAllAvailable())
    assert after == {"kept": {"0": 5}}
    assert read(lenient, at, after) == list(range(10, 15))
    admin.create_topic(TOPIC, partitions=1)
    produce(broker, range(20, 24))
    wait_until(lambda: TOPIC in lenient.latestOffset(at, ReadAllAvailable()), "nobody saw the topic")
    both = lenient.latestOffset(at, ReadAllAvailable())
    assert sorted(read(lenient, at, both)) == [*range(10, 15), *range(20, 24)]


def test_records_that_were_deleted_before_they_were_read_are_told(
    broker: BrokerProcess, admin: Admin, make_reader: Made
) -> None:
    admin.create_topic(TOPIC, partitions=1)
    produce(broker, range(20))
    admin.delete_records({(TOPIC, 0): 12})
    start, end = {TOPIC: {"0": 5}}, {TOPIC: {"0": 20}}
    with pytest.raises(DataLossError, match="offsets 5 to 11 were deleted before they were read"):
        make_reader().partitions(start, end)
    with pytest.raises(DataLossError, match="offsets 5 to 11"):
        make_reader().latestOffset(start, ReadAllAvailable())
    lenient = make_reader(failOnDataLoss="false")
    assert read(lenient, start, end) == list(range(12, 20))
    planned = lenient.partitions({TOPIC: {"0": 12}}, end)
    admin.delete_records({(TOPIC, 0): 15})
    left = [value for each in planned for batch in lenient.read(each) for value in batch.column("value").to_pylist()]
    assert left == [b"%d" % value for value in range(15, 20)]


def test_the_group_is_told_how_far_the_query_is_also_after_the_last_batch(
    broker: BrokerProcess, admin: Admin, make_reader: Made
) -> None:
    admin.create_topic(TOPIC, partitions=1)
    produce(broker, range(10))
    query = Query(lambda: make_reader(commitToGroup="reports"))
    while query.run():
        pass
    assert admin.group_offsets("reports") == {TopicPartition(TOPIC, 0): OffsetAndMetadata(10)}


def test_a_checkpoint_of_sparks_kafka_source_is_taken_over(
    broker: BrokerProcess, admin: Admin, make_reader: Made
) -> None:
    admin.create_topic(TOPIC, partitions=2)
    produce(broker, range(10), partition=0)
    reader = make_reader()
    end = reader.latestOffset({TOPIC: {"1": 0, "0": 4}}, ReadAllAvailable())
    assert end == {TOPIC: {"0": 10, "1": 0}}
    assert read(reader, {TOPIC: {"1": 0, "0": 4}}, end) == list(range(4, 10))


def test_a_stream_on_what_does_not_exist_is_told(broker: BrokerProcess, make_reader: Made) -> None:
    with pytest.raises(ConfigurationError, match="topic 'nowhere' does not exist"):
        make_reader(subscribe="nowhere").initialOffset()


def test_a_broker_that_is_down_is_told_at_the_first_question() -> None:
    options = {"kafka.bootstrap.servers": f"127.0.0.1:{free_port()}", "subscribe": TOPIC}
    reader = BarnabasStreamReader(parse_stream_options(options), ["value"])
    with pytest.raises(TimedOutError, match=r"tried for 3 s.*is it running\?"):
        reader.initialOffset()


def test_a_broker_that_restarts_is_waited_for(broker: BrokerProcess, admin: Admin, make_reader: Made) -> None:
    admin.create_topic(TOPIC, partitions=1)
    produce(broker, range(10))
    reader = make_reader()
    at = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    broker.kill()
    broker.restart()
    produce(broker, range(10, 12))
    end = reader.latestOffset(at, ReadAllAvailable())
    assert read(reader, at, end) == [10, 11]
