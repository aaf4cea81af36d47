"""A load with a dead-letter table, killed with -9 at each of its steps: what is bad is there once, and nothing is lost.

No Spark runs: the records are few. One warehouse goes through all kills, so that each load meets what the ones before
have left.
"""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from barnabas import Admin, Producer
from barnabas.model import TopicPartition
from barnabas.spark import load, scan_table
from barnabas.spark.table_formats import open_place
from barnabas.spark.table_place import DELTA, ICEBERG, TablePlace
from tests.programs.killed_loader import places
from tests.support.broker_process import BrokerProcess
from tests.support.killed_loads import killed_loads
from tests.support.table_contents import DAY_MS, START_MS, TOPIC
from tests.support.xdist_groups import SPARK_PROGRAMS

pytestmark = pytest.mark.xdist_group(SPARK_PROGRAMS)

DEAD_LETTERS = "dead"
PARTITIONS = 2

Rows = list[tuple[int, int]]
"""Partitions and offsets."""


def rows_of(place: TablePlace, table: str) -> Rows:
    """Return where the rows of a table were in the log, repeats included; nothing where there is no table."""
    if not open_place(place).current_table(table).exists:
        return []
    columns = ["partition", "offset"]
    found = scan_table(place.warehouse, table, columns=columns, table_format=place.table_format)
    return sorted((row["partition"], row["offset"]) for batch in found for row in batch.to_pylist())


def produce(bootstrap: str, round_number: int) -> None:
    """Send four records to each partition, the second and the last of them bad."""
    with Producer(bootstrap) as producer:
        for partition in range(PARTITIONS):
            values = [b'{"number": 1}', b"?", b'{"number": 2}', b"\xff"]
            times_ms = [START_MS + round_number * DAY_MS] * len(values)
            producer.send_many(TOPIC, values, partition=partition, timestamps_ms=times_ms).result(60)


def arguments_of(bootstrap: str, place: TablePlace) -> dict[str, Any]:
    """Return how it is loaded."""
    return {
        "bootstrap": bootstrap,
        "warehouse": str(place.warehouse),
        "table_format": place.table_format,
        "format": "json",
        "dead_letter_table": DEAD_LETTERS,
    }


def is_bad(row: tuple[int, int]) -> bool:
    return row[1] % 2 == 1


def unnamed(place: TablePlace, table: str) -> set[Path]:
    """Return the files of rows that a table does not name, and locks."""
    opened = open_place(place).current_table(table).table
    if place.table_format == DELTA:
        named = set(opened.file_uris())
    else:
        named = set(opened.inspect.files().column("file_path").to_pylist())
    folder = Path(str(open_place(place).current_table(table).location().local_folder))
    return {*(folder / "data").rglob("*.parquet"), *folder.rglob("*.lock")} - {
        Path(path.removeprefix("file://")) for path in named
    }


@pytest.fixture
def topic(broker: BrokerProcess) -> str:
    with Admin(broker.bootstrap) as admin:
        admin.create_topic(TOPIC, partitions=PARTITIONS, config={"retention.ms": "-1"})
    return broker.bootstrap


@pytest.mark.timeout(900)
@pytest.mark.parametrize("table_format", [ICEBERG, DELTA])
def test_wherever_a_load_is_killed_both_tables_agree_afterwards(topic: str, tmp_path: Path, table_format: str) -> None:
    if table_format == DELTA:
        pytest.importorskip("deltalake")
    place = TablePlace.of(tmp_path, table_format=table_format)
    with killed_loads(arguments_of(topic, place)) as load_killed_at:
        for number, where in enumerate(places(table_format)):
            produce(topic, number)
            assert load_killed_at(where) == -signal.SIGKILL, where
            loaded, dead = rows_of(place, TOPIC), rows_of(place, DEAD_LETTERS)
            assert len(set(loaded)) == len(loaded), where
            assert len(set(dead)) == len(dead), where
            assert set(filter(is_bad, loaded)) <= set(dead), where
            if number % 2:  # else the next one to be killed meets what this one has left
                load_the_rest(topic, place)
    load_the_rest(topic, place)
    assert load_the_rest(topic, place) == 0


def load_the_rest(bootstrap: str, place: TablePlace) -> int:
    """Load what is missing, check that tables, ledgers and folders agree with the log, and return how much it was."""
    done = load(TOPIC, **arguments_of(bootstrap, place)).tables[0]
    with Admin(bootstrap) as admin:
        ends = admin.end_offsets([TopicPartition(TOPIC, number) for number in range(PARTITIONS)])
    everything = [(tp.partition, offset) for tp, end in sorted(ends.items()) for offset in range(end)]
    assert rows_of(place, TOPIC) == everything
    assert rows_of(place, DEAD_LETTERS) == list(filter(is_bad, everything))
    store = open_place(place)
    for table in (TOPIC, DEAD_LETTERS):
        ledger = store.begin(table).ledger().topics[TOPIC]
        assert dict(ledger.next_offsets) == {tp.partition: end for tp, end in ends.items()}
        if done.records:
            assert unnamed(place, table) == set()
    return done.records
