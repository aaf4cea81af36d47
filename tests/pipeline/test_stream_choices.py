"""What a stream reads for which options: starts, chosen partitions, what records lack, limits. No JVM runs here.

The behaviours are those that the tests of Spark's own Kafka source are about.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from barnabas import Admin, Producer
from barnabas.errors import ConfigurationError
from barnabas.spark.stream_reader import BarnabasStreamReader
from tests.support.broker_process import BrokerProcess
from tests.support.reading import wait_until

TOPIC = "clicks"
START_MS = 1_700_000_000_000
Made = Callable[..., BarnabasStreamReader]
Offsets = dict[str, Any]


@pytest.fixture
def topic(broker: BrokerProcess) -> BrokerProcess:
    """A broker with record n in partition n % 3, at START_MS + n; partition 2 has but one record in four."""
    with Admin(broker.bootstrap) as admin:
        admin.create_topic(TOPIC, partitions=3, config={"retention.ms": "-1"})
    produce(broker, range(90))
    return broker


def produce(broker: BrokerProcess, values: range, topic: str = TOPIC, partition: int | None = None) -> None:
    with Producer(broker.bootstrap) as producer:
        for value in values:
            if partition is None and value % 3 == 2 and value % 4:
                continue
            place = value % 3 if partition is None else partition
            producer.send(topic, b"%d" % value, partition=place, timestamp_ms=START_MS + value)


def rows(reader: BarnabasStreamReader, start: Offsets, end: Offsets) -> list[dict[str, Any]]:
    return [row for part in reader.partitions(start, end) for batch in reader.read(part) for row in batch.to_pylist()]


def advance(reader: BarnabasStreamReader, start: Offsets) -> Offsets:
    """Return where the next batch ends."""
    return reader.latestOffset(start, reader.getDefaultReadLimit())


def values_from(reader: BarnabasStreamReader) -> list[int]:
    """Return what is in the first batch that has something, with all that there is."""
    start = reader.initialOffset()
    end = advance(reader, start)
    if end == start:
        end = reader.latestOffset(start, ReadAllAvailable())
    return sorted(int(row["value"]) for row in rows(reader, start, end))


SENT = [value for value in range(90) if not (value % 3 == 2 and value % 4)]


def test_a_start_may_differ_for_each_partition(topic: BrokerProcess, open_reader: Made) -> None:
    starting = json.dumps({TOPIC: {"0": -2, "1": -1, "2": 3}})
    expected = [value for value in SENT if value % 3 == 0] + [value for value in SENT if value % 3 == 2][3:]
    assert values_from(open_reader(startingOffsets=starting)) == sorted(expected)
    with pytest.raises(ConfigurationError, match="without clicks-2"):
        open_reader(startingOffsets=json.dumps({TOPIC: {"0": 1, "1": 1}})).initialOffset()


def test_a_start_by_time_goes_before_offsets_and_one_for_all_before_those_of_partitions(
    topic: BrokerProcess, open_reader: Made
) -> None:
    by_partition = json.dumps({TOPIC: {"0": START_MS + 30, "1": START_MS + 60, "2": START_MS}})
    since = {0: 30, 1: 60, 2: 0}
    chosen = open_reader(startingOffsetsByTimestamp=by_partition, startingOffsets="latest")
    assert values_from(chosen) == [value for value in SENT if value >= since[value % 3]]
    overall = open_reader(startingTimestamp=str(START_MS + 80), startingOffsetsByTimestamp=by_partition)
    assert values_from(overall) == [value for value in SENT if value >= 80]


def test_a_time_after_all_records_is_an_error_or_the_end(topic: BrokerProcess, open_reader: Made) -> None:
    late = str(START_MS + 1_000)
    with pytest.raises(ConfigurationError, match="startingOffsetsByTimestampStrategy"):
        open_reader(startingTimestamp=late).initialOffset()
    lenient = open_reader(startingTimestamp=late, startingOffsetsByTimestampStrategy="latest")
    start = lenient.initialOffset()
    assert start == {TOPIC: {"0": 30, "1": 30, "2": len([value for value in SENT if value % 3 == 2])}}
    first = advance(lenient, start)
    assert first == start  # its place goes into the checkpoint before anything is read
    produce(topic, range(90, 96), partition=1)
    assert [int(row["value"]) for row in rows(lenient, start, advance(lenient, first))] == [*range(90, 96)]


def test_assigned_partitions_are_all_that_is_read_whatever_is_added(topic: BrokerProcess, open_reader: Made) -> None:
    reader = open_reader(assign=json.dumps({TOPIC: [0, 2]}), startingOffsets="earliest")
    assert values_from(reader) == [value for value in SENT if value % 3 != 1]
    at = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    with Admin(topic.bootstrap) as admin:
        admin.add_partitions(TOPIC, 4)
    produce(topic, range(90, 95), partition=3)
    produce(topic, range(95, 97), partition=0)
    wait_until(lambda: advance(reader, at) != at, "nobody saw the new records")
    assert [int(row["value"]) for row in rows(reader, at, advance(reader, at))] == [95, 96]
    with pytest.raises(ConfigurationError, match="has no partition 9"):
        open_reader(assign=json.dumps({TOPIC: [9]})).initialOffset()


def test_keys_values_and_headers_that_are_missing_are_null(topic: BrokerProcess, open_reader: Made) -> None:
    reader = open_reader(startingOffsets="earliest")
    at = advance(reader, reader.initialOffset())
    with Producer(topic.bootstrap) as producer:
        producer.send(TOPIC, None, b"gone", partition=0).result(60)
        producer.send(TOPIC, b"", None, partition=0, headers=[("a", b"1"), ("a", None)]).result(60)
    found = rows(reader, at, reader.latestOffset(at, ReadAllAvailable()))
    assert [(row["key"], row["value"]) for row in found] == [(b"gone", None), (None, b"")]
    assert [row["headers"] for row in found] == [None, [{"key": "a", "value": b"1"}, {"key": "a", "value": None}]]


def test_a_limit_is_shared_by_what_each_partition_has_and_starves_none(topic: BrokerProcess, open_reader: Made) -> None:
    reader = open_reader(startingOffsets="earliest", maxOffsetsPerTrigger="10")
    at = reader.initialOffset()
    first = advance(reader, at)
    taken = {partition: first[TOPIC][partition] for partition in ("0", "1", "2")}
    assert taken["0"] == taken["1"] > taken["2"] >= 1
    assert 10 <= sum(taken.values()) <= 12
    small = open_reader(startingOffsets="earliest", maxOffsetsPerTrigger="1")
    assert advance(small, small.initialOffset()) == {TOPIC: {"0": 1, "1": 1, "2": 1}}
    boundless = open_reader(startingOffsets="earliest", maxOffsetsPerTrigger=str(2**63 - 1))
    assert values_from(boundless) == SENT


def test_an_empty_topic_gives_no_batch_and_a_batch_without_records_no_task(
    broker: BrokerProcess, open_reader: Made
) -> None:
    with Admin(broker.bootstrap) as admin:
        admin.create_topic(TOPIC, partitions=2)
    reader = open_reader(startingOffsets="earliest")
    at = reader.initialOffset()
    reader.prepareForTriggerAvailableNow()
    assert advance(reader, at) == at == {TOPIC: {"0": 0, "1": 0}}
    assert reader.partitions(at, at) == []
    produce(broker, range(3), partition=0)
    later = open_reader(startingOffsets="earliest")
    end = advance(later, later.initialOffset())
    assert [part.wanted[0].partition for part in later.partitions(at, end)] == [0]  # type: ignore[attr-defined]


def test_batches_are_split_into_more_tasks_and_no_offset_is_dropped(topic: BrokerProcess, open_reader: Made) -> None:
    for options in ({"minPartitions": "7"}, {"maxRecordsPerPartition": "4"}):
        reader = open_reader(startingOffsets="earliest", **options)
        at = reader.initialOffset()
        end = advance(reader, at)
        assert len(reader.partitions(at, end)) >= 7
        assert sorted(int(row["value"]) for row in rows(reader, at, end)) == SENT


def test_a_topic_that_a_pattern_chose_may_go_while_others_are_read(topic: BrokerProcess, open_reader: Made) -> None:
    with Admin(topic.bootstrap) as admin:
        admin.create_topic("clicks-old", partitions=1)
    produce(topic, range(200, 205), "clicks-old", 0)
    reader = open_reader(subscribePattern="clicks.*", startingOffsets="earliest", failOnDataLoss="false")
    start = reader.initialOffset()
    at = advance(reader, start)
    with Admin(topic.bootstrap) as admin:
        admin.delete_topic("clicks-old")
    produce(topic, range(300, 303), partition=0)
    wait_until(lambda: "clicks-old" not in advance(reader, at), "nobody saw that the topic is gone")
    assert [int(row["value"]) for row in rows(reader, at, advance(reader, at))] == [300, 301, 302]


def test_without_fail_on_data_loss_what_is_left_is_read_once(topic: BrokerProcess, open_reader: Made) -> None:
    reader = open_reader(startingOffsets="earliest", failOnDataLoss="false", minPartitions="6")
    start = reader.initialOffset()
    end = advance(reader, start)
    planned = reader.partitions(start, end)
    with Admin(topic.bootstrap) as admin:
        admin.delete_records({(TOPIC, 0): 20, (TOPIC, 1): 30})
    left = [int(row["value"]) for part in planned for batch in reader.read(part) for row in batch.to_pylist()]
    kept = [value for value in SENT if (value % 3 == 0 and value // 3 >= 20) or value % 3 == 2]
    assert sorted(left) == kept
