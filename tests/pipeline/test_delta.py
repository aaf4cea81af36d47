"""Loads into Delta tables: the same guarantees as with Iceberg, in a folder and in S3, and after a kill."""

from __future__ import annotations

import json
import shutil
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from barnabas import Admin, Producer
from barnabas.cli.table import table as table_command
from barnabas.errors import ConfigurationError
from barnabas.spark import LoadConflictError, LoadProgress, load, open_table, read_table, scan_table
from tests.pipeline.test_load_killed import AT_REST, stopping_loads
from tests.programs.stopping_loader import AFTER_SOME_FILES, AFTER_THE_COMMIT, METADATA_WRITTEN
from tests.support.broker_process import BrokerProcess
from tests.support.object_store import BUCKET, ObjectStore
from tests.support.table_contents import TOPIC, produce

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("deltalake")
pytestmark = pytest.mark.timeout(600)
DELTA: dict[str, Any] = {"table_format": "delta"}


@pytest.fixture
def topic(broker: BrokerProcess) -> str:
    with Admin(broker.bootstrap) as admin:
        admin.create_topic(TOPIC, partitions=3, config={"retention.ms": "-1"})
    return broker.bootstrap


def send(bootstrap: str, *values: bytes) -> None:
    with Producer(bootstrap) as producer:
        producer.send_many(TOPIC, values, partition=0, timestamps_ms=1_500_000_000_000).result(30)


def numbers_in(warehouse: str | Path, **place: Any) -> list[int]:
    batches = scan_table(warehouse, TOPIC, columns=["headers"], **DELTA, **place)
    return sorted(int(row[0]["value"]) for batch in batches for row in batch.column("headers").to_pylist())


def files_on_disk(warehouse: Path) -> set[str]:
    return {str(path) for path in (warehouse / "default" / TOPIC / "data").rglob("*.parquet")}


def named_files(warehouse: Path) -> set[str]:
    return set(open_table(warehouse, TOPIC, **DELTA).file_uris())


def run(*arguments: str) -> Any:
    done = CliRunner().invoke(table_command, [*arguments, "--table-format", "delta", "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_a_delta_table_grows_with_the_data_and_is_read_and_maintained(
    spark: SparkSession, topic: str, tmp_path: Path
) -> None:
    place: dict[str, Any] = {"warehouse": tmp_path, "spark": spark, "bootstrap": topic, "format": "json", **DELTA}
    send(topic, b'{"id": 1, "geo": {"lat": 1.5}}', b"bad")
    first = load(TOPIC, nested=True, dead_letter="dead", **place).tables[0]
    assert (first.records, first.bad.count, first.dead_letters, first.snapshot_id) == (2, 1, 1, 0)
    again = load(TOPIC, **place).tables[0]
    assert (again.records, again.snapshot_id) == (0, None)
    send(topic, b'{"id": 2, "geo": {"lat": 2.5, "city": "Brno"}, "tags": ["a"]}')
    second = load(TOPIC, **place).tables[0]
    assert (set(second.new_fields), second.snapshot_id) == ({"geo", "tags"}, 1)
    assert files_on_disk(tmp_path) == named_files(tmp_path)
    columns = ["offset", "id", "geo.city", "tags[0]", "cast(value as string)", "event_day"]
    frame = read_table(spark, tmp_path, TOPIC, where="event_day = '2017-07-14'", **DELTA)
    day = date(2017, 7, 14)
    assert sorted(map(tuple, frame.selectExpr(*columns).collect())) == [
        (0, 1, None, None, None, day),
        (1, None, None, None, "bad", day),
        (2, 2, "Brno", "a", None, day),
    ]
    assert read_table(spark, tmp_path, TOPIC, where="event_day = '1999-01-01'", **DELTA).count() == 0
    status = run("status", TOPIC, "--warehouse", str(tmp_path))
    assert (status["topics"], status["records"], status["files"]) == ({TOPIC: {"0": 3, "1": 0, "2": 0}}, 3, 2)
    (done,) = run("maintain", TOPIC, "--warehouse", str(tmp_path))
    assert (done["compacted_files"], done["new_files"]) == (2, 1)
    send(topic, b'{"id": 3}')
    assert load(TOPIC, **place).records == 1
    with pytest.raises(ConfigurationError, match="was loaded with format json"):
        load(TOPIC, **{**place, "format": "raw"})


def test_of_two_loads_into_delta_one_is_refused_in_a_folder_and_in_s3(
    spark: SparkSession, topic: str, tmp_path: Path, object_store: ObjectStore
) -> None:
    in_s3 = {"catalog_properties": object_store.properties}
    for warehouse, place in ((str(tmp_path), {}), (f"s3://{BUCKET}/delta", in_s3)):
        options: dict[str, Any] = {"bootstrap": topic, "warehouse": warehouse, "spark": spark, **DELTA, **place}

        def load_in_between(progress: LoadProgress, options: dict[str, Any] = options) -> None:
            if progress.step == "committing":
                load(TOPIC, **options)

        with Admin(topic) as admin:
            before = sum(admin.end_offsets([(TOPIC, number) for number in range(3)]).values())
        for count in (before + 20, before + 40):  # the first makes the table
            produce(topic, count - 20, 20)
            with pytest.raises(LoadConflictError, match="another load"):
                load(TOPIC, on_progress=load_in_between, **options)
            assert numbers_in(warehouse, **place) == list(range(count))
    assert files_on_disk(tmp_path) == named_files(tmp_path)
    frame = read_table(spark, f"s3://{BUCKET}/delta", TOPIC, **DELTA, **in_s3)
    assert frame.count() == 80
    assert frame.where("event_day is null").count() == 0


def check_next_load_does_the_rest(spark: SparkSession, bootstrap: str, warehouse: Path, place: str) -> None:
    """Check what a kill has left of a topic of 250 records of which 100 had been loaded, and load what is missing."""
    loaded = 200 if place == AFTER_THE_COMMIT else 100
    assert numbers_in(warehouse) == list(range(loaded)), place
    after = load(TOPIC, bootstrap=bootstrap, warehouse=warehouse, spark=spark, **DELTA).tables[0]
    has_left = place not in ("planning", AFTER_THE_COMMIT)
    assert (after.records, after.leftovers_removed) == (250 - loaded, int(has_left)), place
    assert numbers_in(warehouse) == list(range(250)), place
    assert files_on_disk(warehouse) == named_files(warehouse), place
    assert list((warehouse / "default" / TOPIC / "loads").iterdir()) == [], place


def test_a_load_killed_at_any_step_is_all_in_the_delta_table_or_not_at_all(
    spark: SparkSession, topic: str, tmp_path: Path
) -> None:
    """As with Iceberg, what a kill leaves is a copy of what is there while a load stands; where its tasks write, and at
    the end, it is killed indeed."""
    warehouse = tmp_path / "warehouse"
    produce(topic, 0, 100)
    load(TOPIC, bootstrap=topic, warehouse=warehouse, spark=spark, **DELTA)
    before = shutil.copytree(warehouse, tmp_path / "before")
    produce(topic, 100, 100)
    places = [place for place in AT_REST if place != METADATA_WRITTEN]  # that is a step of Iceberg's catalog
    with stopping_loads(topic, warehouse, places, table_format="delta") as loads:
        for place in places:
            loads.wait_for(place)
            shutil.copytree(warehouse, tmp_path / place)
            if place != places[-1]:
                loads.go_on()
    put_back(before, warehouse)
    with stopping_loads(topic, warehouse, [AFTER_SOME_FILES], table_format="delta") as loads:
        loads.wait_for(AFTER_SOME_FILES)
    produce(topic, 200, 50)
    check_next_load_does_the_rest(spark, topic, warehouse, AFTER_SOME_FILES)
    for place in places:
        put_back(tmp_path / place, warehouse)
        check_next_load_does_the_rest(spark, topic, warehouse, place)


def put_back(copy: Path, warehouse: Path) -> None:
    shutil.rmtree(warehouse)
    shutil.copytree(copy, warehouse)
