"""Maintenance: few files instead of many, the same rows, and loads that go on where they were."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from barnabas.clock import ManualClock
from barnabas.errors import ConfigurationError
from barnabas.formats.column_types import ColumnType
from barnabas.model import TopicPartition
from barnabas.records import BatchBuilder
from barnabas.records.arrow import ArrowReader
from barnabas.spark import load_tasks
from barnabas.spark.completeness import COMPLETE, Completeness
from barnabas.spark.errors import LoadConflictError, WarehouseError
from barnabas.spark.iceberg_maintenance import IcebergMaintainer
from barnabas.spark.ledger import snapshot_properties
from barnabas.spark.load_folder import LoadFolder
from barnabas.spark.load_tasks import ReadSettings, TaskWritten, WriteSettings, write_ranges
from barnabas.spark.offset_ranges import OffsetRange
from barnabas.spark.table_shape import TableShape
from barnabas.spark.table_status import table_status
from barnabas.spark.table_store import maintain
from barnabas.spark.warehouse import TableBase, Warehouse

DAY_MS = 86_400_000
FIELDS: dict[str, ColumnType] = {"a": "int"}
EVERYTHING = timedelta(0)


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    return Warehouse.open(tmp_path / "warehouse")


def load(warehouse: Warehouse, load_id: str, first: int, *values: bytes) -> None:
    """Do what a load does, without brokers and Spark: values on two days."""
    base = warehouse.begin("t")
    folder = base.location().local_folder
    assert folder is not None
    builder = BatchBuilder()
    for number, value in enumerate(values):
        builder.append(number % 2 * DAY_MS, b"key", value)
    reader = ArrowReader()
    reader.read(builder.build(), "t", 0)
    batch = reader.finish()
    claimed = LoadFolder.claim(folder, load_id)
    shape = base.shape() or TableShape.of("json", FIELDS)
    wanted = [OffsetRange("t", 0, first, first + len(values))]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(load_tasks, "read_range", lambda *_args, **_options: [batch])
        for attempt in range(2):
            done = write_ranges(wanted, ReadSettings("", {}), WriteSettings(str(claimed.data), {}, shape), attempt)
            assert isinstance(done, TaskWritten)
            shape = shape.grown_by(done.found)
    ledger = base.ledger().advanced({"t": "topic-id"}, wanted)
    complete = Completeness(5, {TopicPartition("t", 0): first})
    properties = {**snapshot_properties(load_id, ledger, wanted, len(values)), COMPLETE: complete.dump()}
    base.commit(done.files, properties, shape)
    claimed.release()


def rows(warehouse: Warehouse) -> list[dict[str, object]]:
    columns = ["topic", "partition", "timestamp", "key", "value", "value_form", "a"]
    found = warehouse.table("t").scan(selected_fields=tuple(columns)).to_arrow()
    sorted_rows: list[dict[str, object]] = found.sort_by([("timestamp", "ascending"), ("a", "ascending")]).to_pylist()
    return sorted_rows


def files(warehouse: Warehouse) -> set[str]:
    return set(warehouse.table("t").inspect.files().column("file_path").to_pylist())


def test_small_files_become_few_with_the_same_rows_and_the_ledger(warehouse: Warehouse) -> None:
    for number in range(4):
        load(warehouse, f"load{number}", number * 2, b'{"a":%d}' % number, b"bad")
    before, status = rows(warehouse), table_status(warehouse, "t")
    assert (status.files, status.small_files, status.records) == (8, 8, 8)
    done = maintain(IcebergMaintainer(warehouse, "t"))
    assert (done.compacted_files, done.new_files) == (8, 2)
    assert rows(warehouse) == before
    after = table_status(warehouse, "t")
    assert (after.files, after.records) == (2, 8)
    assert (after.ledger, after.complete) == (status.ledger, status.complete)
    assert maintain(IcebergMaintainer(warehouse, "t")).compacted_files == 0
    load(warehouse, "more", 8, b'{"a":9}')
    assert warehouse.begin("t").ledger().topics["t"].next_offsets == {0: 9}


def test_files_of_before_and_after_a_new_column_are_put_together(warehouse: Warehouse) -> None:
    load(warehouse, "one", 0, b'{"a":1}')
    load(warehouse, "two", 1, b'{"a":5000000000,"b":{"c":[1]}}')
    assert IcebergMaintainer(warehouse, "t").compact() == (2, 1)
    table = warehouse.table("t").scan().to_arrow().sort_by("a")
    assert table["a"].type == pa.int64()
    assert table["a"].to_pylist() == [1, 5_000_000_000]
    assert table["b"].to_pylist() == [None, '{"c":[1]}']


def test_what_expired_and_what_nobody_names_is_removed_from_the_disk(warehouse: Warehouse, tmp_path: Path) -> None:
    for number in range(3):
        load(warehouse, f"load{number}", number, b'{"a":1}')
    before = rows(warehouse)
    alive = LoadFolder.claim(tmp_path / "warehouse" / "tables" / "default" / "t", "alive")
    (alive.data / "part.parquet").write_bytes(b"x")
    clock = ManualClock(start_ms=2**41)
    done = maintain(IcebergMaintainer(warehouse, "t", clock), snapshot_age=EVERYTHING, orphan_age=EVERYTHING)
    assert done.expired_snapshots == 3
    assert done.removed_files > 0
    assert rows(warehouse) == before
    on_disk = {str(path) for path in tmp_path.rglob("*.parquet")}
    assert on_disk == {path.removeprefix("file://") for path in files(warehouse)} | {str(alive.data / "part.parquet")}
    assert warehouse.begin("t").ledger().topics["t"].next_offsets == {0: 3}
    alive.discard()


def test_young_files_and_snapshots_stay(warehouse: Warehouse, tmp_path: Path) -> None:
    load(warehouse, "one", 0, b'{"a":1}')
    load(warehouse, "two", 1, b'{"a":1}')
    before = set(tmp_path.rglob("*.parquet"))
    done = maintain(IcebergMaintainer(warehouse, "t"))
    assert (done.expired_snapshots, done.removed_files) == (0, 0)
    assert set(tmp_path.rglob("*.parquet")) > before


def test_a_load_that_is_committed_meanwhile_wins(warehouse: Warehouse) -> None:
    load(warehouse, "one", 0, b'{"a":1}')
    load(warehouse, "two", 1, b'{"a":2}')
    base = warehouse.begin("t")
    load(warehouse, "three", 2, b'{"a":3}')
    with pytest.raises(LoadConflictError):
        base.replace([task.file for task in base.table.scan().plan_files()], [], {"barnabas.load-id": "x"})
    assert len(rows(warehouse)) == 3


def commit_before_replacing(monkeypatch: pytest.MonkeyPatch, *steps: Callable[[], object]) -> None:
    """Run a step before each attempt to replace files."""
    replace, left = TableBase.replace, list(steps)

    def replace_later(*arguments: Any) -> int:
        if left:
            left.pop(0)()
        return replace(*arguments)

    monkeypatch.setattr(TableBase, "replace", replace_later)


def test_merge_commits_beside_loads_and_keeps_their_rows_and_offsets(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(2):
        load(warehouse, f"load{number}", number, b'{"a":1}')
    commit_before_replacing(
        monkeypatch,
        lambda: load(warehouse, "meanwhile", 2, b'{"a":2}'),
        lambda: load(warehouse, "again", 3, b'{"a":3}'),
    )
    assert IcebergMaintainer(warehouse, "t").compact() == (2, 1)
    assert [row["a"] for row in rows(warehouse)] == [1, 1, 2, 3]
    assert len(files(warehouse)) == 3
    base = warehouse.begin("t")
    assert base.ledger().topics["t"].next_offsets == {0: 4}
    assert base.last_load["barnabas.load-id"] not in ("meanwhile", "again")
    assert IcebergMaintainer(warehouse, "t").compact() == (3, 1)


def test_merge_gives_up_if_its_files_were_merged_meanwhile(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for number in range(2):
        load(warehouse, f"load{number}", number, b'{"a":1}')
    commit_before_replacing(monkeypatch, lambda: IcebergMaintainer(warehouse, "t").compact())
    with pytest.raises(LoadConflictError):
        IcebergMaintainer(warehouse, "t").compact()
    assert [row["a"] for row in rows(warehouse)] == [1, 1]
    assert len({path.parent for path in tmp_path.rglob("*.parquet")}) == 3  # two loads, one merge


def test_merge_gives_up_if_every_commit_meets_a_load(warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(2):
        load(warehouse, f"load{number}", number, b'{"a":1}')
    commit_before_replacing(
        monkeypatch, *(partial(load, warehouse, f"more{number}", 2 + number, b'{"a":1}') for number in range(5))
    )
    with pytest.raises(LoadConflictError):
        IcebergMaintainer(warehouse, "t").compact()
    assert len(rows(warehouse)) == 7


def test_replaced_snapshot_and_its_files_stay_for_readers_however_old_they_are(warehouse: Warehouse) -> None:
    for number in range(2):
        load(warehouse, f"load{number}", number, b'{"a":1}')
    held = warehouse.table("t")
    clock = ManualClock(start_ms=2**41)  # long after these loads
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("time.time", clock.time_s)
        done = maintain(IcebergMaintainer(warehouse, "t", clock))
    assert (done.compacted_files, done.expired_snapshots) == (2, 1)  # of the first load
    assert held.scan().to_arrow().num_rows == 2


def test_folders_of_ended_loads_are_removed_once_they_are_empty(warehouse: Warehouse, tmp_path: Path) -> None:
    ids = [f"{number:032x}" for number in range(3)]
    for number, load_id in enumerate(ids[:2]):
        load(warehouse, load_id, number, b'{"a":1}')
    data = tmp_path / "warehouse" / "tables" / "default" / "t" / "data"
    alive = LoadFolder.claim(data.parent, ids[2])
    (data / "of another tool").mkdir()
    clock = ManualClock(start_ms=2**41)
    maintain(IcebergMaintainer(warehouse, "t", clock), snapshot_age=EVERYTHING, orphan_age=EVERYTHING)
    left = {path.name for path in data.iterdir()}
    assert left >= {ids[2], "of another tool"}
    assert left.isdisjoint(ids[:2])
    alive.discard()


def test_an_interrupt_behind_the_commit_leaves_the_new_files(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    load(warehouse, "one", 0, b'{"a":1}')
    load(warehouse, "two", 1, b'{"a":2}')
    replace = TableBase.replace

    def replace_and_be_interrupted(*arguments: Any) -> int:
        replace(*arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(TableBase, "replace", replace_and_be_interrupted)
    with pytest.raises(KeyboardInterrupt):
        IcebergMaintainer(warehouse, "t").compact()
    assert [row["a"] for row in rows(warehouse)] == [1, 2]
    monkeypatch.undo()
    load(warehouse, "three", 2, b'{"a":3}')
    assert len(files(warehouse)) == 2
    assert len(rows(warehouse)) == 3


def test_a_table_that_is_not_there_is_told(warehouse: Warehouse) -> None:
    with pytest.raises(WarehouseError, match="does not exist"):
        IcebergMaintainer(warehouse, "t")
    with pytest.raises((WarehouseError, ConfigurationError), match="does not exist"):
        table_status(warehouse, "t")
