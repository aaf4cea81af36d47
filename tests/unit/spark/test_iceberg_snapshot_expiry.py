"""How much history a loaded Iceberg table keeps, and that nothing is deleted which a snapshot left still names."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.exceptions import CommitFailedException

from barnabas.clock import ManualClock
from barnabas.spark import iceberg_files, iceberg_snapshot_expiry
from barnabas.spark import warehouse as warehouse_module
from barnabas.spark.iceberg_batch_table import IcebergBatchTable
from barnabas.spark.iceberg_maintenance import IcebergMaintainer
from barnabas.spark.iceberg_snapshot_expiry import BOUNDS, SNAPSHOTS_MAX, expire_surplus_snapshots, surplus_snapshots
from barnabas.spark.ledger import LEDGER
from barnabas.spark.table_store import maintain
from barnabas.spark.tables import scan_table
from barnabas.spark.warehouse import Warehouse
from tests.support.loaded_table import PARTITIONS, LoadedTable

HOUR_MS, DAY_MS = 3_600_000, 86_400_000
KEPT = 3


@pytest.fixture
def loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LoadedTable:
    monkeypatch.setitem(BOUNDS, SNAPSHOTS_MAX, str(KEPT))
    monkeypatch.setitem(BOUNDS, "write.metadata.previous-versions-max", "3")
    monkeypatch.setattr(iceberg_files, "TIER_MANIFESTS", 4)
    return LoadedTable(tmp_path, "iceberg")


def commit(loaded: LoadedTable, count: int) -> None:
    for _ in range(count):
        loaded.commit()


def names(loaded: LoadedTable, pattern: str) -> set[str]:
    return {path.name for path in loaded.folder.rglob(pattern)}


def base_name(uri: str) -> str:
    return uri.rpartition("/")[2]


def check_all_snapshots_can_be_read(loaded: LoadedTable) -> None:
    table = loaded.table
    for snapshot in table.snapshots():
        rows = table.scan(snapshot_id=snapshot.snapshot_id, selected_fields=("offset",)).to_arrow()
        assert rows.num_rows == int(snapshot.summary["total-records"])


def test_snapshots_beyond_the_count_expire_with_the_files_that_only_they_name(loaded: LoadedTable) -> None:
    commit(loaded, 2)
    metadata = loaded.folder / "tables" / "default" / "clicks" / "metadata"
    (metadata / "snap-of-somebody-else.avro").write_bytes(b"not ours")
    commit(loaded, 14)
    table = loaded.table
    snapshots = table.snapshots()
    assert KEPT <= len(snapshots) <= KEPT * 3 // 2 + 1
    assert snapshots[-1].summary["total-records"] == str(16 * PARTITIONS)
    lists = {base_name(each.manifest_list) for each in snapshots}
    assert names(loaded, "snap-*.avro") == lists | {"snap-of-somebody-else.avro"}
    manifests = {base_name(each.manifest_path) for snapshot in snapshots for each in snapshot.manifests(table.io)}
    assert manifests <= names(loaded, "*-m*.avro")
    assert len(names(loaded, "*-m*.avro") - manifests) <= 3  # those that the last commits have merged at once
    assert len(names(loaded, "*.metadata.json")) == 1 + len(table.metadata.metadata_log) == 4
    assert len(table.current_snapshot().manifests(table.io)) <= 8
    check_all_snapshots_can_be_read(loaded)
    assert loaded.next_offsets() == {loaded.offset_after(16)}


def test_one_snapshot_of_each_hour_and_day_stays_for_time_travel(loaded: LoadedTable) -> None:
    commit(loaded, KEPT + 2)
    metadata = loaded.table.metadata
    newest, some = metadata.snapshots[-1], metadata.snapshots[0]
    ages_ms = [
        *(day * DAY_MS + hour * 6 * HOUR_MS for day in range(40, 1, -1) for hour in range(3, -1, -1)),
        *(minutes * 60_000 for minutes in range(36 * 60, 0, -10)),
    ]
    start_ms = newest.timestamp_ms // DAY_MS * DAY_MS
    made = [
        some.model_copy(
            update={"snapshot_id": number + 1, "sequence_number": number + 1, "timestamp_ms": start_ms - age_ms}
        )
        for number, age_ms in enumerate(ages_ms)
    ]
    last = made[-1].model_copy(update={"snapshot_id": 9999, "sequence_number": 9999, "timestamp_ms": start_ms})
    aged = metadata.model_copy(update={"snapshots": [*made, last], "refs": {}, "current_snapshot_id": 9999})
    gone = {each.snapshot_id for each in surplus_snapshots(aged)}
    left_ms = [start_ms - each.timestamp_ms for each in made if each.snapshot_id not in gone]
    assert {age_ms // HOUR_MS for age_ms in left_ms if age_ms < 36 * HOUR_MS} == set(range(36))
    days = [age_ms // DAY_MS for age_ms in left_ms if age_ms > 3 * DAY_MS]
    assert len(days) == len(set(days)) >= 26
    assert max(left_ms) <= 30 * DAY_MS + 6 * HOUR_MS  # 30 days after the next one
    assert len(left_ms) < 110


def test_snapshots_of_others_tags_and_the_last_ledger_stay(loaded: LoadedTable) -> None:
    commit(loaded, 1)
    table = loaded.table
    tagged = table.current_snapshot().snapshot_id
    table.manage_snapshots().create_tag(tagged, "audited").commit()
    commit(loaded, 1)
    for _ in range(KEPT * 3):
        with loaded.table.transaction() as transaction, transaction.update_snapshot().fast_append():
            pass  # a snapshot of somebody else, without new rows
    before = {each.snapshot_id for each in loaded.table.snapshots()}
    assert surplus_snapshots(loaded.table.metadata) == []
    assert loaded.next_offsets() == {loaded.offset_after(2)}
    commit(loaded, KEPT * 3)
    left = {each.snapshot_id for each in loaded.table.snapshots()}
    assert tagged in left
    assert len(before & left) >= KEPT * 3
    check_all_snapshots_can_be_read(loaded)


def test_a_table_that_was_rolled_back_can_be_read_at_every_snapshot_that_is_left(loaded: LoadedTable) -> None:
    commit(loaded, 5)
    early = loaded.table.current_snapshot().snapshot_id
    loaded.table.manage_snapshots().create_branch(early, "kept").commit()
    commit(loaded, 4)
    loaded.table.manage_snapshots().rollback_to_snapshot(early).commit()
    assert loaded.next_offsets() == {loaded.offset_after(5)}
    commit(loaded, 12)
    assert early in {each.snapshot_id for each in loaded.table.snapshots()}
    check_all_snapshots_can_be_read(loaded)


@pytest.mark.parametrize("chosen", ["0", "1000"])
def test_a_count_that_somebody_has_chosen_stays(loaded: LoadedTable, chosen: str) -> None:
    commit(loaded, 1)
    with loaded.table.transaction() as transaction:
        transaction.set_properties({SNAPSHOTS_MAX: chosen, "write.metadata.previous-versions-max": "50"})
    commit(loaded, KEPT * 2)
    assert loaded.table.properties[SNAPSHOTS_MAX] == chosen
    assert len(loaded.table.snapshots()) == 1 + KEPT * 2
    assert len(loaded.table.metadata.metadata_log) > KEPT


def test_a_table_of_an_older_release_goes_on_and_becomes_small(
    loaded: LoadedTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    bounds = dict(BOUNDS)
    with monkeypatch.context() as patched:
        for name in bounds:
            patched.delitem(BOUNDS, name)
        commit(loaded, KEPT * 4)
    ledger = json.loads(loaded.table.properties[LEDGER])
    ledger["clicks"]["next"] = {str(partition): offset for partition, offset in enumerate(ledger["clicks"]["next"])}
    with loaded.table.transaction() as transaction:
        transaction.set_properties({LEDGER: json.dumps(ledger)})
    assert len(loaded.table.snapshots()) == KEPT * 4
    size = sum(loaded.metadata().values())
    commit(loaded, 3)
    assert {name: loaded.table.properties[name] for name in bounds} == bounds
    assert len(loaded.table.snapshots()) < KEPT * 2
    assert sum(loaded.metadata().values()) < size / 2
    assert loaded.next_offsets() == {loaded.offset_after(KEPT * 4 + 3)}
    check_all_snapshots_can_be_read(loaded)


def test_a_table_of_somebody_else_keeps_its_history(tmp_path: Path) -> None:
    warehouse = Warehouse.open(tmp_path / "warehouse")
    columns = pa.schema([("number", pa.int64())])
    warehouse.catalog.create_namespace_if_not_exists("default")
    theirs = warehouse.catalog.create_table(("default", "clicks"), columns)
    theirs.append(pa.Table.from_pylist([{"number": 1}], schema=columns))
    table = IcebergBatchTable(warehouse, "clicks", columns)
    assert set(BOUNDS).isdisjoint(table.table.properties)
    assert (
        IcebergBatchTable(warehouse, "own", columns)._create_transaction().table_metadata.properties.items()
        >= BOUNDS.items()
    )


def test_an_expiry_that_fails_leaves_the_rows_committed(
    loaded: LoadedTable, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_table: Any) -> int:
        raise RuntimeError("no more\n  at line 2")

    monkeypatch.setattr(warehouse_module, "expire_surplus_snapshots", fail)
    commit(loaded, 2)
    assert "table default.clicks: cannot expire old snapshots: no more; the rows are committed" in caplog.text
    assert loaded.next_offsets() == {loaded.offset_after(2)}


def test_a_kill_between_an_expiry_and_its_deletions_leaves_a_table_that_goes_on(loaded: LoadedTable) -> None:
    def end(*_arguments: object) -> None:
        raise SystemExit(137)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(iceberg_snapshot_expiry, "_delete_unnamed", end)
        with pytest.raises(SystemExit):
            commit(loaded, KEPT * 3)
    check_all_snapshots_can_be_read(loaded)
    done = loaded.commits
    assert loaded.next_offsets() == {loaded.offset_after(done)}
    commit(loaded, KEPT)
    assert loaded.next_offsets() == {loaded.offset_after(done + KEPT)}
    check_all_snapshots_can_be_read(loaded)


def test_an_expiry_is_refused_where_somebody_else_has_committed(loaded: LoadedTable) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(warehouse_module, "expire_surplus_snapshots", lambda _table: 0)
        commit(loaded, KEPT * 2)
        before = loaded.table
        commit(loaded, 1)
    with pytest.raises(CommitFailedException):
        expire_surplus_snapshots(before)
    check_all_snapshots_can_be_read(loaded)


def test_maintenance_beside_expiry_by_count_keeps_rows_and_ledger(loaded: LoadedTable) -> None:
    commit(loaded, KEPT * 3)
    clock = ManualClock(start_ms=2**41)
    done = maintain(
        IcebergMaintainer(Warehouse.open(loaded.place), "clicks", clock),
        snapshot_age=timedelta(0),
        orphan_age=timedelta(0),
    )
    assert done.new_files == 1
    commit(loaded, KEPT * 2)
    assert loaded.next_offsets() == {loaded.offset_after(KEPT * 5)}
    found = scan_table(loaded.place.warehouse, "clicks", columns=["offset"])
    assert sum(batch.num_rows for batch in found) == KEPT * 5 * PARTITIONS
    check_all_snapshots_can_be_read(loaded)
