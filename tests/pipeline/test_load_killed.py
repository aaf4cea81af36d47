"""A load killed with -9 at each of its steps: readers see all of it or nothing, the next load does the rest.

What a kill leaves is what was on the disk then, and locks that nobody holds. So one process, which stops at each place
and then goes on, leaves a copy of the warehouse for all of them; where tasks write meanwhile, and at the end, it is
killed indeed.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from barnabas.cli.audit import Audit
from barnabas.cli.connection import Connection
from barnabas.client.admin import Admin
from barnabas.spark import load
from barnabas.spark.table_place import ICEBERG, TablePlace
from tests.programs.stopping_loader import AFTER_SOME_FILES, AFTER_THE_COMMIT, METADATA_WRITTEN, PLACES
from tests.support.broker_process import BrokerProcess
from tests.support.table_contents import TOPIC, data_files, named_files, next_offsets, numbers_in, produce

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(900)

ROOT = Path(__file__).resolve().parents[2]
FIRST_LOAD = "metadata of the first load written"
"""Where there is no table yet."""
LOADED = {FIRST_LOAD: 0, AFTER_THE_COMMIT: 600}
"""So many records are in the table after a kill at these places; at all others those of the first load."""
AT_REST = [place for place in PLACES if place != AFTER_SOME_FILES]
"""The places at which nothing is written while the load stands there."""


class StoppingLoads:
    """Loads in a process of their own."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def wait_for(self, place: str) -> None:
        """Wait until they have come to a place."""
        assert self._process.stdout is not None
        said = self._process.stdout.readline()
        if said != f"stopped at {place}\n":
            self.kill()
            raise AssertionError(f"{said!r} and not at {place}: {self._process.communicate()[1]}")

    def go_on(self) -> None:
        """Let them go on."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def kill(self) -> None:
        """Kill them, with all their processes."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


@contextmanager
def stopping_loads(
    bootstrap: str, warehouse: Path, *places: Sequence[str], table_format: str = ICEBERG
) -> Iterator[StoppingLoads]:
    """Begin a load, one after the other, for each sequence of places. They are killed at the end."""
    command = [
        sys.executable,
        "-m",
        "tests.programs.stopping_loader",
        bootstrap,
        str(warehouse),
        table_format,
        *map(",".join, places),
    ]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, cwd=ROOT, stdin=pipe, stdout=pipe, stderr=pipe, text=True, start_new_session=True
    ) as process:
        loads = StoppingLoads(process)
        try:
            yield loads
        finally:
            if process.poll() is None:
                loads.kill()


class Killed(NamedTuple):
    """What kills have left.

    `copies`: by place, the warehouse, to be put where it was.
    """

    bootstrap: str
    warehouse: Path
    copies: dict[str, Path]


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Killed]:
    """A topic of 700 records. A first load was to load 300 of them, a second one 600; the last 100 came later."""
    folder = tmp_path_factory.mktemp("killed")
    broker = BrokerProcess(folder / "broker")
    left = Killed(broker.bootstrap, folder / "warehouse", {})

    def keep(place: str) -> None:
        left.copies[place] = shutil.copytree(left.warehouse, folder / place)

    try:
        broker.start()
        make_topic(broker.bootstrap)
        produce(broker.bootstrap, 0, 300, audit=True)
        with stopping_loads(broker.bootstrap, left.warehouse, [METADATA_WRITTEN], AT_REST) as loads:
            loads.wait_for(METADATA_WRITTEN)
            keep(FIRST_LOAD)
            produce(broker.bootstrap, 300, 300, audit=True)  # the first load has been planned, without them
            for place in AT_REST:
                loads.go_on()
                loads.wait_for(place)
                keep(place)
        produce(broker.bootstrap, 600, 100, audit=True)
        yield left
    finally:
        broker.close()


def make_topic(bootstrap: str) -> None:
    with Admin(bootstrap) as admin:
        admin.create_topic(TOPIC, partitions=3, config={"retention.ms": "-1"})


def check_table_and_offsets_agree(bootstrap: str, warehouse: Path, produced: int) -> None:
    assert numbers_in(warehouse) == list(range(produced))
    with Admin(bootstrap) as admin:
        ends = admin.end_offsets([(TOPIC, number) for number in range(3)])
    assert next_offsets(warehouse)[TOPIC] == {tp.partition: end for tp, end in ends.items()}


def check_accounts_are_those_of_the_rows(bootstrap: str, warehouse: Path) -> None:
    """All that loads have told is in the table, and the other way round; what they told and did not commit counts for
    nothing."""
    balance, _table = Audit(TOPIC, Connection(bootstrap), TablePlace.of(warehouse)).run()
    assert {window.status for window in balance.windows} == {"complete"}
    assert sum(window.loaded for window in balance.windows) == 700


def check_next_load_does_the_rest(spark: SparkSession, bootstrap: str, warehouse: Path, place: str) -> None:
    """Check what a kill has left of a topic of 700 records, and load what is missing."""
    loaded = LOADED.get(place, 300)
    assert numbers_in(warehouse) == list(range(loaded))
    after = load(TOPIC, bootstrap=bootstrap, warehouse=warehouse, spark=spark).tables[0]
    assert after.records == 700 - loaded
    assert after.leftovers_removed == (0 if place in ("planning", AFTER_THE_COMMIT) else 1)
    check_table_and_offsets_agree(bootstrap, warehouse, 700)
    assert after.complete_until_ms is not None
    check_accounts_are_those_of_the_rows(bootstrap, warehouse)
    assert data_files(warehouse) == named_files(warehouse)
    assert list(warehouse.glob("tables/default/events/loads/*")) == []


@pytest.mark.parametrize("place", [FIRST_LOAD, *AT_REST])
def test_a_killed_load_is_all_there_or_not_at_all_and_the_next_one_does_the_rest(
    spark: SparkSession, killed: Killed, place: str
) -> None:
    shutil.rmtree(killed.warehouse, ignore_errors=True)
    shutil.copytree(killed.copies[place], killed.warehouse)
    check_next_load_does_the_rest(spark, killed.bootstrap, killed.warehouse, place)


def test_what_tasks_still_write_when_a_load_is_killed_is_never_seen(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path
) -> None:
    warehouse = tmp_path / "warehouse"
    make_topic(broker.bootstrap)
    produce(broker.bootstrap, 0, 300, audit=True)
    load(TOPIC, bootstrap=broker.bootstrap, warehouse=warehouse, spark=spark)
    produce(broker.bootstrap, 300, 300, audit=True)
    with stopping_loads(broker.bootstrap, warehouse, [AFTER_SOME_FILES]) as loads:
        loads.wait_for(AFTER_SOME_FILES)
    produce(broker.bootstrap, 600, 100, audit=True)
    check_next_load_does_the_rest(spark, broker.bootstrap, warehouse, AFTER_SOME_FILES)
    with Admin(broker.bootstrap) as admin:
        admin.delete_records({(TOPIC, number): -1 for number in range(3)})
    check_accounts_are_those_of_the_rows(broker.bootstrap, warehouse)
