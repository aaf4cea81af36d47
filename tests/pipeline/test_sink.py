"""`df.write.format("barnabas")`, `writeStream` and tables in SQL, against a real broker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from barnabas import Admin, Consumer, Producer, Record
from barnabas.errors import BarnabasError
from barnabas.spark import register
from barnabas.spark.sink import write_rows
from barnabas.spark.sink_options import parse_sink_options
from tests.support.broker_process import BrokerProcess
from tests.support.ports import free_port

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PATIENCE_S = 400
WRITTEN = "key binary, value string, topic string, partition int, headers array<struct<key: string, value: binary>>"


def records_of(broker: BrokerProcess, topic: str, count: int) -> list[Record]:
    """Return the records of a topic, sorted by their values."""
    found: list[Record] = []
    with Consumer(broker.bootstrap) as consumer, Admin(broker.bootstrap) as admin:
        ends = admin.end_offsets([(topic, each.partition) for each in admin.describe_topics([topic])[0].partitions])
        consumer.assign(ends)
        consumer.seek_to_beginning()
        while len(found) < sum(ends.values()):
            found += consumer.poll(max_records=10)
    assert len(found) == count
    return sorted(found, key=lambda record: record.value or b"")


@pytest.fixture
def session(spark: SparkSession, broker: BrokerProcess) -> SparkSession:
    register(spark)
    with Admin(broker.bootstrap) as admin:
        admin.create_topic("a", partitions=3)
        admin.create_topic("b", partitions=1)
    return spark


def write(frame: DataFrame, broker: BrokerProcess, **options: str) -> None:
    writer = frame.write.format("barnabas").mode("append").option("kafka.bootstrap.servers", broker.bootstrap)
    writer.options(**options).save()


@pytest.mark.timeout(900)
def test_rows_become_records_where_they_say(session: SparkSession, broker: BrokerProcess) -> None:
    rows = [
        (b"k", "1", "a", 2, None),
        (None, "2", "a", 1, [("h", b"x"), ("none", None)]),
        (b"k", "3", "b", None, []),
        (b"k", None, "a", 2, None),
    ]
    write(session.createDataFrame(rows, WRITTEN), broker)
    tombstone, one, two = records_of(broker, "a", 3)
    assert (tombstone.key, tombstone.value, tombstone.partition) == (b"k", None, 2)
    assert (one.key, one.value, one.partition, list(one.headers)) == (b"k", b"1", 2, [])
    assert (two.key, two.value, two.partition) == (None, b"2", 1)
    assert list(two.headers) == [("h", b"x"), ("none", None)]
    assert [record.value for record in records_of(broker, "b", 1)] == [b"3"]


@pytest.mark.timeout(900)
def test_many_rows_of_several_tasks_are_all_there_once(session: SparkSession, broker: BrokerProcess) -> None:
    frame = session.range(0, 20_000, 1, 4).selectExpr("CAST(id AS STRING) AS value", "CAST(id % 7 AS STRING) AS key")
    write(frame, broker, topic="a", **{"kafka.compression.type": "zstd"})
    records = records_of(broker, "a", 20_000)
    assert sorted(int(record.value or b"") for record in records) == list(range(20_000))
    places = {(record.key, record.partition) for record in records}
    assert len(places) == 7  # each key has one partition


@pytest.mark.timeout(900)
def test_what_cannot_be_written_is_told_at_the_driver_in_a_line(session: SparkSession, broker: BrokerProcess) -> None:
    numbers = session.range(3)
    values = numbers.selectExpr("CAST(id AS STRING) AS value")
    down = {"kafka.bootstrap.servers": f"127.0.0.1:{free_port()}", "topic": "a"}
    for frame, options, told in (
        (numbers, {"topic": "a"}, "no column 'value'"),
        (numbers.withColumnRenamed("id", "value"), {"topic": "a"}, "must be of type binary or string, not bigint"),
        (values, {}, "the destination is missing"),
        (values, down, "is it running"),
    ):
        with pytest.raises(Exception, match="barnabas") as caught:
            write(frame, broker, **options)
        assert told in str(caught.value)
        assert "Traceback" not in str(caught.value)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("mode", ["overwrite", "ignore", "error"])
def test_a_topic_is_appended_to_and_nothing_else(session: SparkSession, broker: BrokerProcess, mode: str) -> None:
    frame = session.range(3).selectExpr("CAST(id AS STRING) AS value")
    writer = frame.write.format("barnabas").option("kafka.bootstrap.servers", broker.bootstrap).option("topic", "a")
    with pytest.raises(Exception, match=r"append|mode"):
        writer.mode(mode).save()
    records_of(broker, "a", 0)


def rows_of(*values: bytes) -> Iterator[pa.RecordBatch]:
    return (pa.record_batch({"value": pa.array([value], pa.binary())}) for value in values)


def test_a_topic_that_does_not_exist_and_is_not_made_ends_the_write(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "broker", {"auto_create_topics_enable": "false"})
    try:
        broker.start()
        given = {"kafka.bootstrap.servers": broker.bootstrap, "topic": "nowhere", "kafka.max.block.ms": "2000"}
        with pytest.raises(BarnabasError, match="nowhere"):
            write_rows(parse_sink_options(given, {"value": "binary"}), rows_of(b"1", b"2"))
        with Admin(broker.bootstrap) as admin:
            assert admin.describe_topics() == []
    finally:
        broker.close()


def test_rows_that_are_more_than_the_producers_memory_wait_for_it(broker: BrokerProcess) -> None:
    given = {"kafka.bootstrap.servers": broker.bootstrap, "topic": "large", "kafka.buffer.memory": "16384"}
    values = [b"%d" % (number % 10) * 15_000 for number in range(200)]
    assert write_rows(parse_sink_options(given, {"value": "binary"}), rows_of(*values)).records == 200
    assert [record.value for record in records_of(broker, "large", 200)] == sorted(values)


@pytest.mark.timeout(900)
def test_a_stream_of_one_topic_goes_into_another(session: SparkSession, broker: BrokerProcess, tmp_path: Path) -> None:
    with Producer(broker.bootstrap) as producer:
        producer.send_many("b", [b"%d" % number for number in range(50)])
    options = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": "b", "startingOffsets": "earliest"}
    stream = session.readStream.format("barnabas").options(**options).load().drop("topic", "partition")
    writer = stream.writeStream.format("barnabas").option("kafka.bootstrap.servers", broker.bootstrap)
    writer = writer.option("topic", "a").option("checkpointLocation", str(tmp_path)).trigger(availableNow=True)
    query = writer.start()
    assert query.awaitTermination(PATIENCE_S)
    assert sum(each["sink"]["numOutputRows"] for each in query.recentProgress) == 50
    assert {int(record.value or b"") for record in records_of(broker, "a", 50)} == set(range(50))


@pytest.mark.timeout(900)
def test_a_table_in_sql_is_read_narrowed_and_written_to(session: SparkSession, broker: BrokerProcess) -> None:
    with Producer(broker.bootstrap) as producer:
        for number in range(30):
            producer.send("a", b"%d" % number, partition=number % 3, timestamp_ms=1_700_000_000_000 + number)
    options = f"`kafka.bootstrap.servers` '{broker.bootstrap}', subscribe 'a'"
    register(session, pushdown=True)
    try:
        session.sql(f"CREATE TABLE spark_catalog.default.clicks USING barnabas OPTIONS ({options})")
        assert session.sql("SELECT count(*) AS n FROM clicks").collect()[0]["n"] == 30
        for condition, tasks, count in (
            ("partition = 1", 1, 10),
            ("partition IN (0, 2) AND offset >= 5", 2, 10),
            ("offset = 3 AND partition < 2", 2, 2),
            ("timestamp >= timestamp_millis(1700000000028)", 2, 2),
        ):
            frame = session.sql(f"SELECT * FROM clicks WHERE {condition}")
            assert (frame.rdd.getNumPartitions(), frame.count()) == (tasks, count), condition
        session.sql("INSERT INTO clicks (value) VALUES (CAST('new' AS BINARY))")
        assert records_of(broker, "a", 31)[-1].value == b"new"
    finally:
        session.sql("DROP TABLE IF EXISTS clicks")


@pytest.mark.timeout(900)
def test_a_query_makes_the_columns_that_it_names(session: SparkSession, broker: BrokerProcess) -> None:
    with Producer(broker.bootstrap) as producer:
        producer.send("b", b"1", timestamp_ms=5).result(30)
    options = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": "b"}
    reader = session.read.format("barnabas").options(**options)
    assert [tuple(row) for row in reader.schema("offset bigint, value binary").load().collect()] == [(0, b"1")]
    with pytest.raises(Exception, match="column 'value' has the type binary, not string"):
        reader.schema("value string").load().collect()
