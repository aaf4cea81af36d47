"""A load killed with -9 at each of its steps: readers see all of it or nothing, the next load does the rest."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from barnabas.cli.audit import Audit
from barnabas.client.admin import Admin
from barnabas.spark import load
from tests.conftest import BrokerProcess
from tests.pipeline.stopping_loader import PLACES
from tests.pipeline.table_contents import TOPIC, data_files, named_files, next_offsets, numbers_in, produce

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[2]


def kill_a_load_at(place: str, bootstrap: str, warehouse: Path) -> None:
    """Start a load, wait until it has come to `place`, and kill it with all its processes."""
    command = [sys.executable, "-m", "tests.pipeline.stopping_loader", bootstrap, str(warehouse), place]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None
        said = process.stdout.readline()
        os.killpg(process.pid, signal.SIGKILL)
        assert said == "stopped\n", process.stderr and process.stderr.read()


def check_table_and_offsets_agree(bootstrap: str, warehouse: Path, produced: int) -> None:
    assert numbers_in(warehouse) == list(range(produced))
    with Admin(bootstrap) as admin:
        ends = admin.end_offsets([(TOPIC, number) for number in range(3)])
    assert next_offsets(warehouse)[TOPIC] == {tp.partition: end for tp, end in ends.items()}


def check_accounts_are_those_of_the_rows(bootstrap: str, warehouse: Path) -> None:
    """All that loads have told is in the table, and the other way round: also where the log is gone."""
    with Admin(bootstrap) as admin:
        admin.delete_records({(TOPIC, number): -1 for number in range(3)})
    balance, _table = Audit(TOPIC, bootstrap, str(warehouse)).run()
    assert {window.status for window in balance.windows} == {"complete"}
    assert sum(window.loaded for window in balance.windows) == 700


@pytest.mark.timeout(600)
@pytest.mark.parametrize("place", PLACES)
def test_a_killed_load_is_all_there_or_not_at_all_and_the_next_one_does_the_rest(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path, place: str
) -> None:
    warehouse = tmp_path / "warehouse"
    with Admin(broker.bootstrap) as admin:
        admin.create_topic(TOPIC, partitions=3, config={"retention.ms": "-1"})
    produce(broker.bootstrap, 0, 300, audit=True)
    load(TOPIC, bootstrap=broker.bootstrap, warehouse=warehouse, spark=spark)
    produce(broker.bootstrap, 300, 300, audit=True)

    kill_a_load_at(place, broker.bootstrap, warehouse)

    committed = 600 if place == "after the commit" else 300
    assert numbers_in(warehouse) == list(range(committed))
    produce(broker.bootstrap, 600, 100, audit=True)
    after = load(TOPIC, bootstrap=broker.bootstrap, warehouse=warehouse, spark=spark).tables[0]
    assert after.records == 700 - committed
    assert after.leftovers_removed == (0 if place in ("planning", "after the commit") else 1)
    check_table_and_offsets_agree(broker.bootstrap, warehouse, 700)
    assert after.complete_until_ms is not None
    check_accounts_are_those_of_the_rows(broker.bootstrap, warehouse)
    assert data_files(warehouse) == named_files(warehouse)
    assert list(warehouse.glob("tables/default/events/loads/*")) == []


@pytest.mark.timeout(600)
def test_a_first_load_that_is_killed_leaves_no_table(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path
) -> None:
    warehouse = tmp_path / "warehouse"
    with Admin(broker.bootstrap) as admin:
        admin.create_topic(TOPIC, partitions=3, config={"retention.ms": "-1"})
    produce(broker.bootstrap, 0, 300)
    kill_a_load_at("metadata written", broker.bootstrap, warehouse)
    assert data_files(warehouse)
    assert numbers_in(warehouse) == []
    load(TOPIC, bootstrap=broker.bootstrap, warehouse=warehouse, spark=spark)
    check_table_and_offsets_agree(broker.bootstrap, warehouse, 300)
    assert data_files(warehouse) == named_files(warehouse)
