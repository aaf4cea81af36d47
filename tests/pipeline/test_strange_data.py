"""What a stranger's topics look like goes through each way: a query, a stream and a load give back what was sent.

Values that are no JSON or change their shape, times in every unit and by clocks that are wrong by years, thousands of
headers; topics of one partition and of two hundred, one of which has a hundred times more than the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from barnabas import Admin, Producer
from barnabas.spark import load, open_table, register, scan_table
from barnabas.spark.batch_reader import BarnabasReader
from barnabas.spark.options import parse_options, parse_stream_options
from barnabas.spark.stream_reader import BarnabasStreamReader
from barnabas.spark.warehouse import Warehouse
from tests.support.broker_process import BrokerProcess

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

STRANGE, WIDE = "strange", "wide"
PARTITIONS, LARGE = 200, 7
PATIENCE_S = 400
NOW_MS = 1_790_000_000_000
YEAR_MS = 365 * 86_400_000
VALUES = [
    b'{"id":1,"at":1790000000,"geo":{"lat":1.5,"tags":["a",{"b":null}]}}',
    b'{"id":2,"at":1790000000000,"geo":{"lat":2.5,"city":"Brno"}}',
    b'{"id":3,"at":"2026-09-21T14:13:20Z","geo":"somewhere"}',
    b'{"id":"four","at":"2026-09-21T16:13:20.5+02:00","new":[1,2]}',
    b'{"id":18446744073709551616,"at":"long ago"}',
    b'{"id":-9223372036854775808,"at":null}',
    b'{"id":123456789012345678901234567890}',
    b'{"id":1.50,"id":2}',
    b'{"ID":7,"i d":8,"offset":9}',
    b'{"id":1,"broken":',
    b'{"name":"\xff\xfe"}',
    b"\xff\x00 no text",
    b"[1,2]",
    b'"text"',
    b"null",
    b"",
    None,
    b'{"name":"' + "\U0001f98a\u0000x".encode() * 3 + b'"}',
    b"[" * 5_000,
]


class Sent(NamedTuple):
    """A record as it was produced."""

    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: list[tuple[str, bytes | None]]


def strange_records() -> list[Sent]:
    """Return every value, with clocks that go wrong meanwhile, and headers by the thousand in the last."""
    clocks = [NOW_MS, NOW_MS - 40 * YEAR_MS, NOW_MS + 30 * YEAR_MS, 0, NOW_MS // 1_000, NOW_MS * 1_000, NOW_MS * 10**6]
    records = [
        Sent(b"always the same", value, clocks[number % len(clocks)], [] if number % 3 else [("n", b"%d" % number)])
        for number, value in enumerate(VALUES)
    ]
    many: list[tuple[str, bytes | None]] = [(f"h{number % 100}", b"%d" % number) for number in range(3_000)]
    return [*records, Sent(None, b"headers", NOW_MS, [*many, ("none", None), ("", b"")])]


def wide_counts() -> list[int]:
    """Return how many records each partition has: most have two, some none, one a hundred times more."""
    return [200 if number == LARGE else 0 if number % 10 == 3 else 2 for number in range(PARTITIONS)]


@pytest.fixture(scope="module")
def strangers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker with both topics."""
    broker = BrokerProcess(tmp_path_factory.mktemp("strangers") / "broker")
    try:
        broker.start()
        with Admin(broker.bootstrap) as admin:
            admin.create_topic(STRANGE, partitions=4, config={"retention.ms": "-1"})
            admin.create_topic(WIDE, partitions=PARTITIONS, config={"retention.ms": "-1"})
        with Producer(broker.bootstrap) as producer:
            for key, value, timestamp_ms, headers in strange_records():
                partition = None if key else 3
                producer.send(
                    STRANGE, value, key, partition=partition, timestamp_ms=timestamp_ms, headers=headers
                ).result(60)
            for partition, count in enumerate(wide_counts()):
                values = [b"%d-%d" % (partition, number) for number in range(count)]
                producer.send_many(WIDE, values, partition=partition)
        yield broker.bootstrap
    finally:
        broker.close()


def options_of(bootstrap: str, topic: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest"}


def check_all_came(rows: list[Row]) -> None:
    """Check that rows are what was sent, in the order in which it was."""
    sent = strange_records()
    by_key: dict[object, list[Row]] = {}
    for row in sorted(rows, key=lambda row: (row["partition"], row["offset"])):
        by_key.setdefault(row["key"] and bytes(row["key"]), []).append(row)
    assert {len({row["partition"] for row in of_key}) for of_key in by_key.values()} == {1}
    found = [*by_key[b"always the same"], *by_key[None]]
    assert [row["value"] if row["value"] is None else bytes(row["value"]) for row in found] == [
        record.value for record in sent
    ]
    for row, record in zip(found, sent, strict=True):
        headers = [(each["key"], each["value"] and bytes(each["value"])) for each in row["headers"] or []]
        assert headers == record.headers
        has_calendar = abs(record.timestamp_ms) < 10**14
        assert (row["ms"], row["raw_timestamp_ms"]) == (
            (record.timestamp_ms, None) if has_calendar else (None, record.timestamp_ms)
        )


def selected(frame: DataFrame) -> DataFrame:
    return frame.selectExpr("*", "unix_millis(timestamp) AS ms").drop("timestamp")


@pytest.mark.timeout(900)
def test_a_query_and_a_stream_give_back_what_was_sent(spark: SparkSession, strangers: str, tmp_path: Path) -> None:
    register(spark)
    more = {"includeHeaders": "true", "includeRawTimestamp": "true"}
    options = options_of(strangers, STRANGE) | more
    check_all_came(selected(spark.read.format("barnabas").options(**options).load()).collect())
    came: list[Row] = []

    def keep(batch: DataFrame, _number: int) -> None:
        came.extend(batch.collect())

    stream = selected(spark.readStream.format("barnabas").options(**options, maxOffsetsPerTrigger="12").load())
    writer = stream.writeStream.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True)
    assert writer.foreachBatch(keep).start().awaitTermination(PATIENCE_S)
    check_all_came(came)


@pytest.mark.timeout(900)
def test_a_load_of_changing_json_tells_what_it_could_not_decode_and_gives_every_value_back(
    spark: SparkSession, strangers: str, tmp_path: Path
) -> None:
    place: dict[str, Any] = {"bootstrap": strangers, "warehouse": tmp_path, "spark": spark}
    loaded = load(STRANGE, format="json", nested=True, event_time="at", keep_values="all", **place).tables[0]
    sent = strange_records()
    assert loaded.records == len(sent)
    assert loaded.bad.reasons == {
        "not JSON": 3,  # one of them by a control character
        "not UTF-8": 2,
        "JSON, but no object": 3,
        "empty": 1,
        "nested too deep": 1,
    }
    rows = open_table(tmp_path, STRANGE).scan().to_arrow()
    shape = Warehouse.open(tmp_path).begin(STRANGE).shape()
    assert shape is not None
    columns = {name: rows[shape.columns[name]].combine_chunks() for name in shape.fields or ()}
    decoder = shape.decoder()
    assert decoder is not None
    restored = decoder.restore(rows["value"].combine_chunks(), rows["value_form"].combine_chunks(), columns)
    assert sorted(map(str, restored.to_pylist())) == sorted(str(record.value) for record in sent)
    times = [row["event_time"] for row in rows.to_pylist() if row["event_time"] is not None]
    assert len(times) == 4
    assert {time.replace(microsecond=0).timestamp() * 1_000 for time in times} == {NOW_MS}
    assert sorted(len(headers or ()) for headers in rows["headers"].to_pylist())[-1] == 3_002


def values_of(batches: Iterable[pa.RecordBatch]) -> list[bytes]:
    return [value for rows in batches for value in rows["value"].to_pylist()]


@pytest.mark.timeout(900)
def test_two_hundred_partitions_of_which_one_has_most_are_read_whole_each_way(
    spark: SparkSession, strangers: str, tmp_path: Path
) -> None:
    expected = [
        b"%d-%d" % (partition, number) for partition, count in enumerate(wide_counts()) for number in range(count)
    ]
    columns = ["value", "partition", "offset"]
    batch = BarnabasReader(parse_options(options_of(strangers, WIDE) | {"minPartitions": "220"}), columns)
    planned = batch.partitions()
    assert len(planned) >= 220
    wanted = [each for task in planned for each in task.wanted]  # type: ignore[attr-defined]
    assert sum(each.partition == LARGE for each in wanted) > 20
    assert values_of(rows for task in planned for rows in batch.read(task)) == expected
    stream = BarnabasStreamReader(parse_stream_options(options_of(strangers, WIDE)), columns)
    try:
        start = stream.initialOffset()
        tasks = stream.partitions(start, stream.latestOffset(start, ReadAllAvailable()))
        assert [
            value for task in tasks for rows in stream.read(task) for value in rows["value"].to_pylist()
        ] == expected
    finally:
        stream.stop()
    loaded = load(WIDE, bootstrap=strangers, warehouse=tmp_path, spark=spark).tables[0]
    assert loaded.records == len(expected)
    assert sorted(values_of(scan_table(tmp_path, WIDE, columns=["value"]))) == sorted(expected)
