"""Loads into a REST catalog with its tables in S3: real servers, real Spark, whose tasks write to S3 themselves."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from barnabas import Admin, Producer
from barnabas.cli.table import table as table_command
from barnabas.clock import SYSTEM_CLOCK, ManualClock
from barnabas.spark import LoadConflictError, LoadError, LoadProgress, WarehouseError, load, open_table, read_table
from barnabas.spark.object_files import file_system_of, files_below
from barnabas.spark.table_formats import format_of, open_place
from barnabas.spark.table_place import TablePlace
from barnabas.spark.table_store import maintain
from tests.interop.java.maven import TEST_TIMEOUT_S
from tests.support.broker_process import BrokerProcess
from tests.support.object_store import BUCKET, ObjectStore, running_catalog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(TEST_TIMEOUT_S)
TOPIC = "clicks"


@pytest.fixture(scope="module")
def lake(object_store: ObjectStore, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Properties of a catalog, with the storage that its tables are in."""
    with running_catalog(object_store, tmp_path_factory.mktemp("catalog")) as uri:
        yield {"uri": uri, **object_store.properties}


@pytest.fixture
def topic(broker: BrokerProcess) -> str:
    with Admin(broker.bootstrap) as admin:
        admin.create_topic(TOPIC, 2)
    return broker.bootstrap


def send(bootstrap: str, *values: bytes) -> None:
    with Producer(bootstrap) as producer:
        producer.send_many(TOPIC, values, partition=0, timestamps_ms=1_500_000_000_000).result(30)


def data_files(lake: dict[str, str], table: str) -> set[str]:
    return {file.uri for file in files_below(lake, f"s3://{BUCKET}/{table}/data")}


def named_files(lake: dict[str, str], name: str) -> set[str]:
    files = open_table(None, name, catalog_properties=lake).inspect.files()
    return set(files.column("file_path").to_pylist())


def test_a_table_in_s3_grows_with_the_data_and_is_read_and_maintained(
    spark: SparkSession, topic: str, lake: dict[str, str]
) -> None:
    place: dict[str, Any] = {"catalog_properties": lake, "table": "web.clicks"}
    send(topic, b'{"id": 1, "geo": {"lat": 1.5}}', b"bad")
    first = load(TOPIC, bootstrap=topic, spark=spark, format="json", nested=True, dead_letter="dead", **place).tables[0]
    assert (first.records, first.bad.count, first.dead_letters) == (2, 1, 1)
    assert load(TOPIC, bootstrap=topic, spark=spark, format="json", **place).records == 0
    send(topic, b'{"id": 2, "geo": {"lat": 2.5, "city": "Brno"}, "tags": ["a"]}')
    second = load(TOPIC, bootstrap=topic, spark=spark, format="json", **place).tables[0]
    assert set(second.new_fields) == {"geo", "tags"}
    assert data_files(lake, "web/clicks") == named_files(lake, "web.clicks")
    frame = read_table(spark, None, "web.clicks", catalog_properties=lake)
    rows = sorted(
        map(tuple, frame.selectExpr("offset", "id", "geo.city", "tags[0]", "cast(value as string)").collect())
    )
    assert rows == [(0, 1, None, None, None), (1, None, None, None, "bad"), (2, 2, "Brno", "a", None)]

    options = [word for name, value in lake.items() for word in ("--catalog-property", f"{name}={value}")]
    shown = CliRunner().invoke(table_command, ["status", "web.clicks", *options, "--json"])
    assert shown.exit_code == 0, shown.output
    status = json.loads(shown.stdout)
    assert (status["topics"], status["records"]) == ({TOPIC: {"0": 3, "1": 0}}, 3)
    where = TablePlace.of(catalog_properties=lake)
    done = maintain(format_of(where).maintainer(open_place(where), "web.clicks", SYSTEM_CLOCK))
    assert (done.table, done.compacted_files, done.new_files) == ("web.clicks", 2, 1)
    assert sorted(map(tuple, frame.select("offset").collect())) == [(0,), (1,), (2,)]
    send(topic, b'{"id": 3}')
    assert load(TOPIC, bootstrap=topic, spark=spark, format="json", **place).records == 1


def test_small_files_of_many_tasks_are_put_together_in_s3(
    spark: SparkSession, topic: str, lake: dict[str, str]
) -> None:
    send(topic, *[b'{"id": %d}' % number if number % 2 else b"?" for number in range(60)])
    place: dict[str, Any] = {"catalog_properties": lake, "table": "many.clicks", "dead_letter_table": "many.bad"}
    done = load(TOPIC, bootstrap=topic, spark=spark, format="json", records_per_task_max=5, **place).tables[0]
    assert (done.records, done.files, done.dead_letter_rows) == (60, 1, 30)
    for table in ("clicks", "bad"):
        named = named_files(lake, f"many.{table}")
        assert len(named) == 1
        assert data_files(lake, f"many/{table}") == named
    assert read_table(spark, None, "many.clicks", catalog_properties=lake).where("id % 2 = 1").count() == 30


def test_of_two_loads_into_s3_one_is_refused_and_its_files_are_removed(
    spark: SparkSession, topic: str, lake: dict[str, str]
) -> None:
    place: dict[str, Any] = {"catalog_properties": lake, "table": "two.clicks", "spark": spark}

    def load_in_between(progress: LoadProgress) -> None:
        if progress.step == "committing":
            load(TOPIC, bootstrap=topic, **place)

    for number in range(2):  # the first makes the table
        send(topic, b"%d" % number)
        with pytest.raises(LoadConflictError, match="another load"):
            load(TOPIC, bootstrap=topic, on_progress=load_in_between, **place)
        assert open_table(None, "two.clicks", catalog_properties=lake).scan().to_arrow().num_rows == number + 1
        assert data_files(lake, "two/clicks") == named_files(lake, "two.clicks")


def test_what_a_kill_left_in_s3_is_removed_by_age(spark: SparkSession, topic: str, lake: dict[str, str]) -> None:
    send(topic, b"1")
    load(TOPIC, bootstrap=topic, spark=spark, catalog_properties=lake, table="old.clicks")
    left = f"s3://{BUCKET}/old/clicks/data/dead-load/part.parquet"
    system, path = file_system_of(lake, left)
    with system.open_output_stream(path) as stream:
        stream.write(b"PAR1")
    where = TablePlace.of(catalog_properties=lake)
    store, maintainer = open_place(where), format_of(where).maintainer
    assert maintainer(store, "old.clicks", SYSTEM_CLOCK).remove_orphans() == 0
    later = ManualClock(start_ms=SYSTEM_CLOCK.time_ms() + timedelta(days=4) // timedelta(milliseconds=1))
    named = named_files(lake, "old.clicks")
    assert left in data_files(lake, "old/clicks")
    assert maintainer(store, "old.clicks", later).remove_orphans() == 1
    assert data_files(lake, "old/clicks") == named
    assert open_table(None, "old.clicks", catalog_properties=lake).scan().to_arrow().num_rows == 1


def test_a_catalog_or_a_store_that_does_not_answer_is_told_in_a_line(
    spark: SparkSession, topic: str, lake: dict[str, str], tmp_path: Path
) -> None:
    send(topic, b"1")
    nowhere = {**lake, "uri": "http://127.0.0.1:9"}
    with pytest.raises(WarehouseError, match="cannot open the catalog http://127") as caught:
        load(TOPIC, bootstrap=topic, spark=spark, catalog_properties=nowhere)
    assert "\n" not in str(caught.value)
    no_store = {**lake, "s3.endpoint": "http://127.0.0.1:9", "s3.connect-timeout": "1"}
    with pytest.raises(LoadError, match=r"default\.clicks|clicks") as caught_too:
        load(TOPIC, bootstrap=topic, spark=spark, catalog_properties=no_store)
    assert "\n" not in str(caught_too.value)
    assert load(TOPIC, bootstrap=topic, spark=spark, catalog_properties=lake).records == 1


def test_a_catalog_of_the_session_has_tables_under_names_of_three_parts(
    spark: SparkSession, topic: str, lake: dict[str, str]
) -> None:
    send(topic, b"1")
    own = {"": "org.apache.iceberg.spark.SparkCatalog", ".type": "rest", **{f".{name}": lake[name] for name in lake}}
    settings = {f"spark.sql.catalog.prod{name}": value for name, value in own.items()}
    try:
        for name, value in settings.items():
            spark.conf.set(name, value)
        assert load(TOPIC, bootstrap=topic, spark=spark, table="prod.three.clicks").tables[0].table == "three.clicks"
        assert read_table(spark, None, "prod.three.clicks").count() == 1
    finally:
        for name in settings:
            spark.conf.unset(name)
    assert data_files(lake, "three/clicks") == named_files(lake, "three.clicks")
