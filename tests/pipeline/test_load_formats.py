"""Loads of strangers' data: event times, lines by pattern, tables that grow with the data, bad records sent on."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from barnabas import Admin, Consumer, Producer, Record
from barnabas.errors import ConfigurationError
from barnabas.spark import load, open_table, read_table
from barnabas.spark.load_types import TableLoad
from tests.support.broker_process import BrokerProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(600)

TOPIC = "strange"
MOMENT = datetime(2015, 5, 17, 10, 5, 3, tzinfo=UTC)
COMMON = b'127.0.0.1 - frank [17/May/2015:10:05:03 +0000] "GET /a.gif HTTP/1.0" 200 2326'


@pytest.fixture
def topic(broker: BrokerProcess) -> str:
    """An empty topic with two partitions."""
    with Admin(broker.bootstrap) as admin:
        admin.create_topic(TOPIC, partitions=2)
    return broker.bootstrap


def send(bootstrap: str, *values: bytes | None, partition: int = 0) -> None:
    with Producer(bootstrap) as producer:
        producer.send_many(TOPIC, values, partition=partition, timestamps_ms=1_500_000_000_000).result(30)


def load_one(spark: SparkSession, bootstrap: str, folder: Path, **options: object) -> TableLoad:
    return load(TOPIC, bootstrap=bootstrap, warehouse=folder, spark=spark, **options).tables[0]  # type: ignore[arg-type]


def rows_in(folder: Path, *columns: str) -> list[tuple[object, ...]]:
    rows = open_table(folder, TOPIC).scan().to_arrow().sort_by([("partition", "ascending"), ("offset", "ascending")])
    return list(zip(*(rows[name].to_pylist() for name in columns), strict=True))


def test_lines_become_columns_and_are_partitioned_by_their_own_time(
    spark: SparkSession, topic: str, tmp_path: Path
) -> None:
    send(topic, COMMON, b"nonsense", None)
    loaded = load_one(spark, topic, tmp_path, format="lines:common")
    assert (loaded.records, loaded.kept_values, loaded.without_time) == (3, 1, 2)
    assert loaded.bad.reasons == {"the line does not match the pattern": 1}
    assert rows_in(tmp_path, "event_time", "path", "status", "value", "value_form") == [
        (MOMENT, "/a.gif", 200, None, "columns"),
        (None, None, None, b"nonsense", "value"),
        (None, None, None, None, "tombstone"),
    ]
    partitions = open_table(tmp_path, TOPIC).inspect.partitions().to_pylist()
    assert {row["partition"]["event_day"] for row in partitions} == {date(2015, 5, 17), None}
    send(topic, COMMON)
    assert load_one(spark, topic, tmp_path, format="lines:common").records == 1
    assert read_table(spark, tmp_path, TOPIC).where("status = 200").count() == 2
    with pytest.raises(ConfigurationError, match="takes its event times from time, not from record"):
        load_one(spark, topic, tmp_path, format="lines:common", event_time="record")


def test_the_event_time_is_in_a_field_in_whatever_form(spark: SparkSession, topic: str, tmp_path: Path) -> None:
    send(topic, b'{"at": 1431857103, "n": 1}', b'{"at": 1431857103000}')
    send(topic, b'{"at": "2015-05-17T12:05:03+02:00"}', b'{"n": 4}', partition=1)
    loaded = load_one(spark, topic, tmp_path, format="json", event_time="at")
    assert loaded.without_time == 1
    assert [row[0] for row in rows_in(tmp_path, "event_time")] == [MOMENT, MOMENT, MOMENT, None]


def test_a_table_grows_with_the_data_and_spark_reads_it_all(spark: SparkSession, topic: str, tmp_path: Path) -> None:
    send(topic, b'{"id": 1, "price": 19.99, "geo": {"lat": 1.5}}')
    load_one(spark, topic, tmp_path, format="json", nested=True, decimals=True)
    send(topic, b'{"id": 2, "geo": {"lat": 2.5, "city": "Brno"}, "tags": ["a", "b"]}')
    send(topic, b'{"id": "three", "price": 20}', partition=1)
    second = load_one(spark, topic, tmp_path, format="json")
    geo = {"lat": "decimal(38,1)", "city": "string"}
    assert second.new_fields == {"geo": geo, "tags": ["string"], "id_string": "string"}
    assert (second.bad.count, second.further_columns) == (0, {"id": {"id": 1, "id_string": 1}})
    assert rows_in(tmp_path, "id", "id_string", "price", "tags", "value") == [
        (1, None, pa.scalar("19.99").cast(pa.decimal128(38, 2)).as_py(), None, None),
        (2, None, None, ["a", "b"], None),
        (None, "three", pa.scalar("20.00").cast(pa.decimal128(38, 2)).as_py(), None, None),
    ]
    table = read_table(spark, tmp_path, TOPIC)
    assert {tuple(row) for row in table.selectExpr("id", "geo.city", "tags[1]").collect()} == {
        (1, None, None),
        (2, "Brno", "b"),
        (None, None, None),
    }
    files = open_table(tmp_path, TOPIC).inspect.files().column("file_path").to_pylist()
    on_disk = {str(path) for path in tmp_path.rglob("*.parquet")}
    assert {path.removeprefix("file://") for path in files} == on_disk


def test_bad_records_are_sent_on_with_reason_and_place(spark: SparkSession, topic: str, tmp_path: Path) -> None:
    send(topic, b'{"id": 1}', b"\xff", None, partition=1)
    first = load_one(spark, topic, tmp_path, format="json", dead_letter="dead")
    assert (first.bad.count, first.dead_letters) == (1, 1)
    # A task that is done again, as a new field came, sends what is bad once.
    send(topic, b"?", b'{"id": 2, "new": true}')
    assert load_one(spark, topic, tmp_path, format="json", dead_letter="dead").dead_letters == 1
    with Consumer(topic) as consumer:
        consumer.assign([("dead", 0)])
        consumer.seek(("dead", 0), 0)
        records: list[Record] = []
        with Admin(topic) as admin:
            end = admin.end_offsets([("dead", 0)])[("dead", 0)]
        while consumer.position(("dead", 0)) < end:
            records += consumer.poll(timeout_s=1.0)
    told = [(record.value, dict(record.headers)["barnabas.reason"]) for record in records]
    assert told == [(b"\xff", b"not UTF-8"), (b"?", b"not JSON")]
    assert dict(records[0].headers)["barnabas.partition"] == b"1"
    assert dict(records[0].headers)["barnabas.offset"] == b"1"
    assert records[0].timestamp_ms == 1_500_000_000_000
