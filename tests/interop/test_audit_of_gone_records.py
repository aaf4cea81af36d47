"""The audit of a table reports each acknowledged record that log and table lack, no matter which component removed it.

The rule has two halves for each way of removal: records that were removed before their load are an error with their
count, and records that were removed after their load are none.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import barnabas
from barnabas.cli.audit import audit as command
from barnabas.model import TopicPartition
from barnabas.spark import load
from barnabas.spark.table_place import TablePlace
from barnabas.spark.warehouse import Warehouse
from tests.support.broker_process import BrokerProcess
from tests.support.reading import wait_until

DeltaTable = pytest.importorskip("deltalake").DeltaTable

GONE, KEPT = 40, 20
BEGIN_MS = 1_700_000_040_000
FORMATS = ("iceberg", "delta")


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker that looks for old segments often."""
    settings = {"log_retention_check_interval_ms": "100", "log_cleaner_enable": "false"}
    broker = BrokerProcess(tmp_path_factory.mktemp("broker") / "data", settings)
    broker.start()
    yield broker.bootstrap
    broker.stop()


class Case:
    """A topic of its own, and a table of it."""

    def __init__(self, bootstrap: str, folder: Path, table_format: str, topic: str) -> None:
        self.bootstrap = bootstrap
        self.folder = folder
        self.table_format = table_format
        self.topic = topic
        self.table: str | None = None
        self._sent = 0
        self.create()

    @property
    def place(self) -> TablePlace:
        return TablePlace.of(self.folder, table_format=self.table_format)

    def admin(self) -> barnabas.Admin:
        return barnabas.Admin(self.bootstrap)

    def create(self) -> None:
        with self.admin() as admin:
            admin.create_topic(self.topic, 1, config={"retention.ms": "-1", "segment.bytes": "500"})

    def send(self, count: int, *, audit: bool = True) -> None:
        """Send records of minutes of their own, which are long ago."""
        with barnabas.Producer(self.bootstrap, audit=audit, client_id="shop", batch_size=200) as producer:
            for number in range(self._sent, self._sent + count):
                producer.send(self.topic, b"%d" % number, timestamp_ms=BEGIN_MS + number * 10_000)
        self._sent += count

    def load(self, **options: Any) -> None:
        """Load what is new, in this process."""
        load(
            self.topic, bootstrap=self.bootstrap, warehouse=self.folder, table_format=self.table_format,
            table=self.table, **options,
        )  # fmt: skip

    def audit(self, *options: str) -> tuple[int, int, list[str]]:
        """Return the exit code, how many records are lost, and the statuses of the windows."""
        place = ["--warehouse", str(self.folder), "--table-format", self.table_format]
        table = [] if self.table is None else ["--table", self.table]
        result = CliRunner().invoke(command, [self.topic, "--json", "-b", self.bootstrap, *place, *table, *options])
        assert result.exit_code in (0, 1), (result.output, result.exception)
        found = json.loads(result.stdout)
        return (
            result.exit_code,
            sum(each["lost"] for each in found["windows"]),
            [each["status"] for each in found["windows"]],
        )

    def begins_at(self) -> int:
        with self.admin() as admin:
            (begin,) = admin.beginning_offsets([(self.topic, 0)]).values()
        return int(begin)


def delete_records(case: Case) -> None:
    with case.admin() as admin:
        admin.delete_records({(case.topic, 0): -1})


def expire_by_time(case: Case) -> None:
    expire(case, {"retention.ms": "1000"})


def expire_by_size(case: Case) -> None:
    expire(case, {"retention.bytes": "1"})


def expire(case: Case, retention: dict[str, str]) -> None:
    with case.admin() as admin:
        admin.alter_config(case.topic, to_set=retention)
        wait_until(lambda: case.begins_at() > 0, "expired records")
        admin.alter_config(case.topic, to_set=dict.fromkeys(retention, "-1"))


def recreate_topic(case: Case) -> None:
    with case.admin() as admin:
        admin.delete_topic(case.topic)
        wait_until(lambda: case.topic not in admin.list_topics(), "deleted topic")
    case.create()
    case.table = "of_the_new_topic"


WAYS: list[Callable[[Case], None]] = [delete_records, expire_by_time, expire_by_size, recreate_topic]


@pytest.mark.parametrize("table_format", FORMATS)
@pytest.mark.parametrize("remove", WAYS, ids=lambda way: way.__name__)
def test_records_are_lost_if_they_were_removed_before_their_load_and_not_if_after(
    bootstrap: str, tmp_path: Path, table_format: str, remove: Callable[[Case], None]
) -> None:
    loaded = Case(bootstrap, tmp_path / "loaded", table_format, f"loaded-{table_format}-{remove.__name__}")
    gone = Case(bootstrap, tmp_path / "gone", table_format, f"gone-{table_format}-{remove.__name__}")
    for case in (loaded, gone):
        case.send(GONE)
    loaded.load(audit=True)
    for case in (loaded, gone):
        remove(case)
        lost = case.begins_at() or GONE
        case.send(KEPT)
        case.load(audit=True)
    assert loaded.audit()[:2] == (0, 0)
    assert gone.audit()[:2] == (1, lost)


@pytest.mark.parametrize("loads_tell", [True, False], ids=["audited", "not-audited"])
@pytest.mark.parametrize("table_format", FORMATS)
def test_load_that_skips_records_does_not_hide_them(
    bootstrap: str, tmp_path: Path, table_format: str, loads_tell: bool
) -> None:
    topic = f"skipped-{table_format}-{loads_tell}"
    case = Case(bootstrap, tmp_path, table_format, topic)
    case.send(GONE)
    case.load(audit=loads_tell, starting_offsets={TopicPartition(topic, 0): 10})
    case.send(KEPT)
    delete_records(case)  # the load is not asked, and not allowed to care
    case.send(KEPT)
    case.load(audit=loads_tell, fail_on_data_loss=False)
    assert case.audit()[:2] == (1, 10 + KEPT)


@pytest.mark.parametrize("table_format", FORMATS)
def test_rows_that_another_tool_deleted_are_lost_though_the_log_has_expired(
    bootstrap: str, tmp_path: Path, table_format: str
) -> None:
    case = Case(bootstrap, tmp_path, table_format, f"hole-{table_format}")
    for count in (3, GONE):  # a file each
        case.send(count)
        case.load(audit=True)
    delete_records(case)
    assert case.audit()[:2] == (0, 0)
    if table_format == "iceberg":
        Warehouse.open(tmp_path).catalog.load_table(f"default.{case.topic.replace('-', '_')}").delete("offset < 3")
    else:
        (log,) = tmp_path.rglob("_delta_log")
        DeltaTable(log.parent).delete("offset < 3")
    assert case.audit()[:2] == (1, 3)


def test_records_that_no_producer_told_of_are_lost_by_their_offsets(bootstrap: str, tmp_path: Path) -> None:
    case = Case(bootstrap, tmp_path, "iceberg", "nobody-tells")
    case.send(GONE, audit=False)
    delete_records(case)
    case.send(KEPT, audit=False)
    case.load()
    code, lost, statuses = case.audit()
    assert (code, lost) == (1, GONE)
    assert f"lost {GONE}" in statuses
    # `--since` accepts what was before.
    assert case.audit("--since", "2023-11-14T22:20:00Z")[:2] == (0, 0)
