"""Loads against a real broker and real Spark: each record once, offsets and data together."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from barnabas import Admin, Producer
from barnabas.errors import ConfigurationError
from barnabas.model import TopicPartition
from barnabas.spark import (
    DataLossError,
    LoadConflictError,
    LoadProgress,
    LoadsFailedError,
    RecreatedTopicError,
    WarehouseError,
    load,
    open_table,
    read_table,
    scan_table,
)
from barnabas.spark.offset_ranges import OffsetRange
from tests.support.broker_process import BrokerProcess
from tests.support.table_contents import TOPIC, data_files, named_files, next_offsets, numbers_in, produce

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def topic(broker: BrokerProcess) -> str:
    """A broker with a topic of three partitions; returns its address."""
    with Admin(broker.bootstrap) as admin:
        admin.create_topic(TOPIC, partitions=3, config={"retention.ms": "-1"})
    return broker.bootstrap


def test_a_second_load_adds_only_what_is_new(spark: SparkSession, topic: str, tmp_path: Path) -> None:
    produce(topic, 0, 500)
    first = load(TOPIC, bootstrap=topic, warehouse=tmp_path, spark=spark).tables[0]
    assert (first.records, first.table) == (500, "default.events")
    produce(topic, 500, 300)
    second = load(TOPIC, bootstrap=topic, warehouse=tmp_path, spark=spark).tables[0]
    assert second.records == 300
    assert numbers_in(tmp_path) == list(range(800))
    assert data_files(tmp_path) == named_files(tmp_path)
    assert len(open_table(tmp_path, TOPIC).snapshots()) == 2


def test_a_load_without_anything_new_commits_nothing(spark: SparkSession, topic: str, tmp_path: Path) -> None:
    produce(topic, 0, 10)
    load(TOPIC, bootstrap=topic, warehouse=tmp_path, spark=spark)
    again = load(TOPIC, bootstrap=topic, warehouse=tmp_path, spark=spark).tables[0]
    assert (again.records, again.snapshot_id, again.files) == (0, None, 0)
    assert len(open_table(tmp_path, TOPIC).snapshots()) == 1


def test_the_snapshot_says_which_offsets_it_holds(spark: SparkSession, topic: str, tmp_path: Path) -> None:
    produce(topic, 0, 100)
    loaded = load(TOPIC, bootstrap=topic, warehouse=tmp_path, spark=spark).tables[0]
    with Admin(topic) as admin:
        ends = admin.end_offsets([TopicPartition(TOPIC, number) for number in range(3)])
    assert next_offsets(tmp_path) == {TOPIC: {tp.partition: end for tp, end in ends.items()}}
    snapshot = open_table(tmp_path, TOPIC).current_snapshot()
    assert snapshot is not None
    assert snapshot.snapshot_id == loaded.snapshot_id
    assert snapshot.summary is not None
    assert snapshot.summary["barnabas.records"] == "100"
    assert snapshot.summary["added-records"] == "100"


def test_raw_tables_keep_all_that_a_record_has(spark: SparkSession, topic: str, tmp_path: Path) -> None:
    with Producer(topic) as producer:
        producer.send(TOPIC, b"\xff\x00", b"\xfe", timestamp_ms=-1_000, headers=[("a", None), ("a", b"\xff")])
        producer.send(TOPIC, None, None, timestamp_ms=5, partition=0)
    load(TOPIC, bootstrap=topic, warehouse=tmp_path, spark=spark)
    rows = [row for batch in scan_table(tmp_path, TOPIC) for row in batch.to_pylist()]
    by_key = {row["key"]: row for row in rows}
    assert by_key[b"\xfe"]["value"] == b"\xff\x00"
    assert by_key[b"\xfe"]["headers"] == [{"key": "a", "value": None}, {"key": "a", "value": b"\xff"}]
    assert by_key[b"\xfe"]["timestamp"].timestamp() == -1.0
    assert by_key[None]["value"] is None
    assert not by_key[None]["headers"]  # null in the file; pyiceberg shows it as an empty list


def test_a_producer_that_counts_nanoseconds_stops_no_load(spark: SparkSession, topic: str, tmp_path: Path) -> None:
    now_ms = 1_700_000_000_000
    sent = [now_ms, now_ms * 1_000_000, now_ms * 1_000, -62_104_060_800_000]
    with Producer(topic) as producer:
        for timestamp_ms in sent:
            producer.send(TOPIC, b"v", partition=0, timestamp_ms=timestamp_ms)
    assert load(TOPIC, bootstrap=topic, warehouse=tmp_path, spark=spark).records == 4
    frame = read_table(spark, tmp_path, TOPIC).orderBy("offset")
    rows = frame.selectExpr("unix_millis(timestamp) AS ms", "raw_timestamp_ms AS raw").collect()
    assert [tuple(row) for row in rows] == [(sent[0], None), (None, sent[1]), (None, sent[2]), (sent[3], None)]


def test_json_fields_become_columns_and_nothing_is_lost(spark: SparkSession, topic: str, tmp_path: Path) -> None:
    with Producer(topic) as producer:
        for value in (b'{"city": "Prag", "n": 1, "timestamp": "x", "City": 1}', b'{"city": null, "n": 2.5}'):
            producer.send(TOPIC, value, partition=0, timestamp_ms=0)
    load(TOPIC, bootstrap=topic, warehouse=tmp_path, spark=spark, format="json")
    with Producer(topic) as producer:
        for value in (b'{"city": "Brno", "new": 1}', b"not json", None):
            producer.send(TOPIC, value, partition=0, timestamp_ms=0)
    second = load(TOPIC, bootstrap=topic, warehouse=tmp_path, spark=spark, format="json").tables[0]
    assert second.kept_values == 1
    assert second.new_fields == {"new": "long"}
    assert (second.bad.reasons, second.bad.examples[0].value) == ({"not JSON": 1}, b"not json")
    columns = ["offset", "city", "n", "value_timestamp", "new", "value"]
    assert read_table(spark, tmp_path, TOPIC).where("value_city = 1 and city = 'Prag'").count() == 1
    rows = sorted(
        tuple(row[name] for name in columns) for batch in scan_table(tmp_path, TOPIC) for row in batch.to_pylist()
    )
    assert rows == [
        (0, "Prag", 1.0, "x", None, None),
        (1, None, 2.5, None, None, None),  # `value_form` says that the city is null and not absent
        (2, "Brno", None, None, 1, None),
        (3, None, None, None, None, b"not json"),
        (4, None, None, None, None, None),
    ]


def test_a_table_goes_on_with_the_format_it_began_with(spark: SparkSession, topic: str, tmp_path: Path) -> None:
    produce(topic, 0, 3)
    load(TOPIC, bootstrap=topic, warehouse=tmp_path, spark=spark)
    with pytest.raises(ConfigurationError, match="format raw"):
        load(TOPIC, bootstrap=topic, warehouse=tmp_path, spark=spark, format="json")


def test_several_topics_go_into_one_table_or_one_each(spark: SparkSession, topic: str, tmp_path: Path) -> None:
    produce(topic, 0, 5)
    produce(topic, 5, 5, topic="more.events")
    both = [TOPIC, "more.events"]
    together = load(both, bootstrap=topic, warehouse=tmp_path, spark=spark, table="all.of_them")
    assert [table.table for table in together.tables] == ["all.of_them"]
    assert numbers_in(tmp_path, "all.of_them") == list(range(10))
    each = load(both, bootstrap=topic, warehouse=tmp_path, spark=spark)
    assert [table.table for table in each.tables] == ["default.events", "default.more_events"]
    assert each.records == 10


def test_spark_reads_the_table_without_a_jar(spark: SparkSession, topic: str, tmp_path: Path) -> None:
    produce(topic, 0, 100)
    load(TOPIC, bootstrap=topic, warehouse=tmp_path, spark=spark, format="json")
    frame = read_table(spark, tmp_path, TOPIC)
    assert frame.selectExpr("sum(number)").collect()[0][0] == sum(range(100))
    none = read_table(spark, tmp_path, TOPIC, where="number < 0")
    assert (none.count(), none.columns) == (0, frame.columns)


def test_of_two_loads_at_once_one_is_refused_and_nothing_is_twice(
    spark: SparkSession, topic: str, tmp_path: Path
) -> None:
    produce(topic, 0, 100)

    def load_in_between(progress: LoadProgress) -> None:
        if progress.step == "committing":
            load(TOPIC, bootstrap=topic, warehouse=tmp_path, spark=spark)

    for already_there in (0, 100):
        with pytest.raises(LoadConflictError, match="another load"):
            load(TOPIC, bootstrap=topic, warehouse=tmp_path, spark=spark, on_progress=load_in_between)
        assert numbers_in(tmp_path) == list(range(already_there + 100))
        assert data_files(tmp_path) == named_files(tmp_path)
        produce(topic, already_there + 100, 100)


def test_a_warehouse_that_cannot_be_written_leaves_the_table_as_it_was(
    spark: SparkSession, topic: str, tmp_path: Path
) -> None:
    produce(topic, 0, 50)
    load(TOPIC, bootstrap=topic, warehouse=tmp_path, spark=spark)
    produce(topic, 50, 50)
    before = data_files(tmp_path)

    def take_the_folder_away(progress: LoadProgress) -> None:
        if progress.step == "writing" and not progress.records_done:
            table = tmp_path / "tables/default/events"
            lock = next((table / "loads").glob("*.lock"))
            shutil.rmtree(table / "data" / lock.stem)

    with pytest.raises(WarehouseError, match=r"is unchanged.*cannot write") as caught:
        load(TOPIC, bootstrap=topic, warehouse=tmp_path, spark=spark, on_progress=take_the_folder_away)
    assert "\n" not in str(caught.value)
    assert numbers_in(tmp_path) == list(range(50))
    assert data_files(tmp_path) == before
    load(TOPIC, bootstrap=topic, warehouse=tmp_path, spark=spark)
    assert numbers_in(tmp_path) == list(range(100))


def test_a_topic_that_was_deleted_and_made_again_is_refused(spark: SparkSession, topic: str, tmp_path: Path) -> None:
    produce(topic, 0, 50)
    load(TOPIC, bootstrap=topic, warehouse=tmp_path, spark=spark)
    with Admin(topic) as admin:
        admin.delete_topic(TOPIC)
        admin.create_topic(TOPIC, partitions=3, config={"retention.ms": "-1"})
    produce(topic, 0, 200)
    with pytest.raises(RecreatedTopicError, match="created again"):
        load(TOPIC, bootstrap=topic, warehouse=tmp_path, spark=spark)
    assert numbers_in(tmp_path) == list(range(50))


def test_records_that_are_gone_are_an_error_that_names_them(
    spark: SparkSession, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    produce(topic, 0, 60)

    def all_but_the_last_deleted(admin: Admin, tps: Any) -> dict[TopicPartition, int]:
        return {tp: end - 1 for tp, end in admin.end_offsets(tps).items()}

    load(TOPIC, bootstrap=topic, warehouse=tmp_path, spark=spark)
    produce(topic, 60, 60)
    with monkeypatch.context() as patched:
        patched.setattr(Admin, "beginning_offsets", all_but_the_last_deleted)
        with pytest.raises(DataLossError, match=r"events-0 \[\d+, \d+\) \(\d+ offsets\)"):
            load(TOPIC, bootstrap=topic, warehouse=tmp_path, spark=spark)
        assert numbers_in(tmp_path) == list(range(60))
        what_is_left = load(TOPIC, bootstrap=topic, warehouse=tmp_path, spark=spark, fail_on_data_loss=False).tables[0]
    assert what_is_left.records == 3
    assert sum(gap.count for gap in what_is_left.missing) == 57


def test_what_the_log_had_lost_before_the_first_load_is_told(spark: SparkSession, topic: str, tmp_path: Path) -> None:
    with Producer(topic) as producer:
        producer.send_many(TOPIC, [b"%d" % number for number in range(100)], partition=0).result(60)
    with Admin(topic) as admin:
        admin.delete_records({(TOPIC, 0): 50})
    with pytest.raises(LoadsFailedError, match=r"1 of 2 tables were not loaded: no_such: topic 'no\.such'") as caught:
        load(["no.such", TOPIC], bootstrap=topic, warehouse=tmp_path, spark=spark)
    (loaded,) = caught.value.result.tables
    assert (loaded.records, loaded.missing) == (50, (OffsetRange(TOPIC, 0, 0, 50),))
    snapshot = open_table(tmp_path, TOPIC).current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    assert snapshot.summary["barnabas.missing"] == '{"events": {"0": [0, 50]}}'


def test_topics_that_would_share_a_table_by_accident_are_refused(
    spark: SparkSession, topic: str, tmp_path: Path
) -> None:
    for name in ("web.clicks", "web-clicks"):
        produce(topic, 0, 2, topic=name)
    load("web.clicks", bootstrap=topic, warehouse=tmp_path, spark=spark)
    with pytest.raises(ConfigurationError, match=r"would be loaded into table .*web_clicks.*'web\.clicks'"):
        load("web-clicks", bootstrap=topic, warehouse=tmp_path, spark=spark)
    assert load("web-clicks", bootstrap=topic, warehouse=tmp_path, spark=spark, table="web_clicks").records == 2


def test_many_tasks_leave_one_file_a_day(spark: SparkSession, topic: str, tmp_path: Path) -> None:
    with Producer(topic) as producer:
        for partition in range(3):
            values = [b'{"id": %d}' % number if number % 2 else b"?" for number in range(20)]
            producer.send_many(TOPIC, values, partition=partition, timestamps_ms=1_500_000_000_000)
    options: dict[str, Any] = {"bootstrap": topic, "warehouse": tmp_path, "spark": spark, "format": "json"}
    loaded = load(TOPIC, records_per_task_max=5, dead_letter_table="bad", **options).tables[0]
    assert (loaded.records, loaded.files, loaded.dead_letter_rows) == (60, 1, 30)
    assert len(data_files(tmp_path)) == 2
    assert read_table(spark, tmp_path, TOPIC).where("id % 2 = 1").count() == 30
    assert read_table(spark, tmp_path, "bad").where("reason = 'not JSON'").count() == 30
    again = load(TOPIC, table="again", records_per_task_max=5, dead_letter_table="bad", **options).tables[0]
    assert (again.records, again.bad.count, again.dead_letter_rows) == (60, 30, 0)


def test_a_topic_or_a_broker_that_is_not_there_is_told_in_one_line(
    spark: SparkSession, topic: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigurationError, match="topic 'nowhere' does not exist"):
        load("nowhere", bootstrap=topic, warehouse=tmp_path, spark=spark)
