"""Small files in S3 that are put together: a load that is killed there with -9, and what it leaves in the bucket."""

from __future__ import annotations

import signal
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from barnabas import Admin, Producer
from barnabas.clock import SYSTEM_CLOCK, ManualClock
from barnabas.spark import load, scan_table
from barnabas.spark.object_files import files_below
from barnabas.spark.table_formats import format_of, open_place
from barnabas.spark.table_place import DELTA, ICEBERG, TablePlace
from tests.programs.killed_loader import GATHERING_PLACES, run_tasks_here
from tests.support.broker_process import BrokerProcess
from tests.support.killed_loads import killed_loads
from tests.support.object_store import BUCKET, ObjectStore
from tests.support.table_contents import START_MS, TOPIC
from tests.support.xdist_groups import SPARK_PROGRAMS

pytestmark = pytest.mark.xdist_group(SPARK_PROGRAMS)

DEAD_LETTERS = "dead"
TASKS = 20


@pytest.fixture(params=[ICEBERG, DELTA])
def place(request: pytest.FixtureRequest, object_store: ObjectStore, tmp_path: Path) -> TablePlace:
    """Where tables in S3 are, without a server for their names."""
    properties = dict(object_store.properties)
    if request.param == DELTA:
        pytest.importorskip("deltalake")
    else:
        properties |= {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db"}
    return TablePlace.of(
        f"s3://{BUCKET}/gathered-{request.param}", catalog_properties=properties, table_format=request.param
    )


def arguments_of(bootstrap: str, place: TablePlace) -> dict[str, Any]:
    return {
        "bootstrap": bootstrap,
        "format": "json",
        "dead_letter_table": DEAD_LETTERS,
        "records_per_task_max": 2,
        **place.as_arguments(),
    }


def produce(bootstrap: str) -> None:
    with Producer(bootstrap) as producer:
        values = [b'{"number": 1}', b"?"] * TASKS
        producer.send_many(TOPIC, values, partition=0, timestamps_ms=START_MS).result(60)


def offsets_in(place: TablePlace, table: str) -> list[int]:
    found = scan_table(name=table, columns=["offset"], **place.as_arguments())
    return sorted(offset for batch in found for offset in batch.column("offset").to_pylist())


def data_files(place: TablePlace, table: str) -> set[str]:
    """Return the files of rows that are there."""
    location = open_place(place).current_table(table).location()
    return {file.uri for file in files_below(location.properties, f"{location.uri}/data")}


def named_files(place: TablePlace, table: str) -> set[str]:
    opened = open_place(place).current_table(table).table
    if place.table_format == DELTA:
        return set(opened.file_uris())
    return set(opened.inspect.files().column("file_path").to_pylist())


@pytest.mark.timeout(900)
def test_a_load_that_is_killed_while_it_puts_files_together_leaves_orphans_that_maintenance_removes(
    broker: BrokerProcess, place: TablePlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_tasks_here(monkeypatch.setattr)
    bootstrap = broker.bootstrap
    with Admin(bootstrap) as admin:
        admin.create_topic(TOPIC, config={"retention.ms": "-1"})
    arguments = arguments_of(bootstrap, place)
    store, maintainer = open_place(place), format_of(place).maintainer
    with killed_loads(arguments) as load_killed_at:
        for number, where in enumerate(GATHERING_PLACES):
            produce(bootstrap)
            before = {table: named_files(place, table) for table in (TOPIC, DEAD_LETTERS) if number}
            assert load_killed_at(where) == -signal.SIGKILL, where
            assert before == {table: named_files(place, table) for table in before}, where
            done = load(TOPIC, spark=lambda: None, **arguments).tables[0]
            assert (done.records, done.files, done.dead_letter_rows) == (2 * TASKS, 1, TASKS)
    later = ManualClock(start_ms=SYSTEM_CLOCK.time_ms() + timedelta(days=4) // timedelta(milliseconds=1))
    for table in (TOPIC, DEAD_LETTERS):
        named = named_files(place, table)
        left = data_files(place, table) - named
        assert left
        assert maintainer(store, table, SYSTEM_CLOCK).remove_orphans() == 0
        assert maintainer(store, table, later).remove_orphans() == len(left)
        assert data_files(place, table) == named
    everything = list(range(2 * TASKS * len(GATHERING_PLACES)))
    assert offsets_in(place, TOPIC) == everything
    assert offsets_in(place, DEAD_LETTERS) == everything[1::2]
