"""`spark.read.format("barnabas")` against a real broker: what was produced is what is read."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from barnabas import Admin, Producer
from barnabas.spark import register
from tests.support.broker_process import BrokerProcess

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TOPIC = "clicks"
START_MS = 1_500_000_000_123
Read = Callable[..., "DataFrame"]


@pytest.fixture
def read(spark: SparkSession, broker: BrokerProcess) -> Read:
    """A function from options (without the brokers) to a frame."""
    register(spark)

    def read_with(**options: str) -> DataFrame:
        reader = spark.read.format("barnabas").option("kafka.bootstrap.servers", broker.bootstrap)
        return reader.options(**options).load()

    return read_with


@pytest.fixture
def filled(broker: BrokerProcess) -> BrokerProcess:
    """A broker with 1,000 records in 3 partitions: record n has timestamp START_MS + n."""
    with Admin(broker.bootstrap) as admin:
        admin.create_topic(TOPIC, partitions=3, config={"retention.ms": "-1"})
    with Producer(broker.bootstrap, compression_type="zstd") as producer:
        for number in range(1_000):
            producer.send(
                TOPIC,
                None if number == 7 else b"value-%d\xff" % number,
                None if number == 8 else b"key-%d" % number,
                partition=number % 3,
                timestamp_ms=START_MS + number,
                headers=[("n", b"%d" % number), ("none", None)] if number % 2 else [],
            )
    return broker


def test_columns_have_the_names_and_types_of_sparks_kafka_source(filled: BrokerProcess, read: Read) -> None:
    expected = (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,timestampType:int"
    )
    assert read(subscribe=TOPIC).schema.simpleString() == f"{expected}>"
    with_headers = read(subscribe=TOPIC, includeHeaders="true").schema.simpleString()
    assert with_headers == f"{expected},headers:array<struct<key:string,value:binary>>>"


def test_every_record_is_read_once_with_all_that_it_has(filled: BrokerProcess, read: Read) -> None:
    rows = read(subscribe=TOPIC, includeHeaders="true").collect()
    by_place = {(row["partition"], row["offset"]): row for row in rows}
    assert len(rows) == len(by_place) == 1_000
    for number in range(1_000):
        row = by_place[number % 3, number // 3]
        assert row["topic"] == TOPIC
        assert row["key"] == (None if number == 8 else b"key-%d" % number)
        assert row["value"] == (None if number == 7 else b"value-%d\xff" % number)
        assert row["timestamp"].replace(tzinfo=UTC) == datetime.fromtimestamp((START_MS + number) / 1000, UTC)
        assert row["timestampType"] == 0
        headers = [tuple(pair) for pair in row["headers"]] if row["headers"] else row["headers"]
        assert headers == ([("n", b"%d" % number), ("none", None)] if number % 2 else None)


def test_a_timestamp_beyond_the_calendar_stops_no_query(broker: BrokerProcess, read: Read) -> None:
    sent = [START_MS, START_MS * 1_000_000, START_MS * 1_000, -62_104_060_800_000]
    with Producer(broker.bootstrap) as producer:
        for timestamp_ms in sent:
            producer.send(TOPIC, b"v", partition=0, timestamp_ms=timestamp_ms)
    frame = read(subscribe=TOPIC, includeRawTimestamp="true").orderBy("offset")
    rows = frame.selectExpr("unix_millis(timestamp) AS ms", "raw_timestamp_ms AS raw").collect()
    assert [tuple(row) for row in rows] == [(sent[0], None), (None, sent[1]), (None, sent[2]), (sent[3], None)]
    assert len(read(subscribe=TOPIC).collect()) == 4


def test_small_partitions_share_the_tasks_that_run_at_a_time(filled: BrokerProcess, read: Read) -> None:
    for options, tasks in (({}, 2), ({"failOnDataLoss": "false"}, 2), ({"maxRecordsPerPartition": "334"}, 3)):
        frame = read(subscribe=TOPIC, **options)
        assert frame.rdd.getNumPartitions() == tasks
        assert frame.select("partition", "offset").distinct().count() == frame.count() == 1_000


def test_a_partition_is_split_into_several_tasks_and_still_read_once(filled: BrokerProcess, read: Read) -> None:
    for options, tasks_min in (({"minPartitions": "11"}, 10), ({"maxRecordsPerPartition": "50"}, 20)):
        frame = read(subscribe=TOPIC, **options)
        assert frame.rdd.getNumPartitions() >= tasks_min
        assert frame.select("partition", "offset").distinct().count() == frame.count() == 1_000


def test_offsets_and_timestamps_bound_what_is_read(filled: BrokerProcess, read: Read) -> None:
    starting = json.dumps({TOPIC: {"0": 100, "1": -2, "2": 300}})
    ending = json.dumps({TOPIC: {"0": 110, "1": 5, "2": -1}})
    assert read(subscribe=TOPIC, startingOffsets=starting, endingOffsets=ending).count() == 10 + 5 + 33
    times = read(subscribe=TOPIC, startingTimestamp=str(START_MS + 30), endingTimestamp=str(START_MS + 60))
    assert times.count() == 30
    only_one = read(assign=json.dumps({TOPIC: [2]}))
    assert {row["partition"] for row in only_one.select("partition").distinct().collect()} == {2}


def test_topics_are_chosen_by_pattern(filled: BrokerProcess, read: Read) -> None:
    with Producer(filled.bootstrap) as producer:
        producer.send("clicks-2", b"x").result(60)
        producer.send("other", b"x").result(60)
    assert read(subscribePattern="clicks.*").count() == 1_001
    assert read(subscribe="clicks-2,other").count() == 2


def test_an_empty_topic_is_an_empty_frame(broker: BrokerProcess, read: Read) -> None:
    with Admin(broker.bootstrap) as admin:
        admin.create_topic("empty")
    assert read(subscribe="empty").count() == 0


def test_frames_can_be_computed_with(filled: BrokerProcess, read: Read) -> None:
    counts = read(subscribe=TOPIC).where("offset < 10").groupBy("partition").count().collect()
    assert {row["partition"]: row["count"] for row in counts} == {0: 10, 1: 10, 2: 10}


def test_queries_on_one_frame_with_other_conditions_have_their_own_rows(filled: BrokerProcess, read: Read) -> None:
    frame = read(subscribe=TOPIC)
    assert frame.where("partition = 1").count() == 333
    assert frame.count() == 1_000
    both = frame.where("partition = 0").unionAll(frame.where("partition = 2"))
    assert {row["partition"]: row["count"] for row in both.groupBy("partition").count().collect()} == {0: 334, 2: 333}
    last = frame.where("offset >= 330").alias("last")
    assert last.join(frame.alias("any"), on=["partition", "offset"]).count() == 4 + 3 + 3


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"subscribe": "nowhere"}, "topic 'nowhere' does not exist"),
        ({"subscribe": TOPIC, "startingOffset": "earliest"}, "did you mean 'startingOffsets'"),
        ({"subscribe": TOPIC, "startingOffsets": '{"clicks": {"0": 1}}'}, "without clicks-1, clicks-2"),
        ({"subscribe": TOPIC, "endingOffsets": '{"clicks": {"0": 9999, "1": 0, "2": 0}}'}, "has offsets 0 to 333."),
        ({"subscribe": TOPIC, "kafka.request.timeout": "5"}, "request.timeout.ms"),
        ({"subscribe": TOPIC, "kafka.isolation.level": "some"}, "read_committed"),
    ],
)
def test_a_wrong_option_is_told_in_words(filled: BrokerProcess, read: Read, options: dict[str, str], told: str) -> None:
    with pytest.raises(Exception, match="barnabas") as caught:
        read(**options).count()
    assert told in str(caught.value)
