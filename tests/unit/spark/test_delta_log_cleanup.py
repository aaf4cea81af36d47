"""How many old versions the log of a loaded Delta table keeps, and that those that are left can be read."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from barnabas.spark import delta_log_cleanup, delta_warehouse
from barnabas.spark.batch_table import BatchFile
from barnabas.spark.table_formats import open_place
from barnabas.spark.table_place import TablePlace
from barnabas.spark.tables import scan_table
from tests.support.loaded_table import PARTITIONS, LoadedTable

delta_batch_table = pytest.importorskip("barnabas.spark.delta_batch_table", reason="deltalake is not installed")
DeltaTable = pytest.importorskip("deltalake").DeltaTable
KEPT = 8


@pytest.fixture(autouse=True)
def short_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta_log_cleanup, "VERSIONS_KEPT", KEPT)
    monkeypatch.setattr(delta_log_cleanup, "VERSIONS_BETWEEN_LOOKS", 4)


@pytest.fixture
def loaded(tmp_path: Path) -> LoadedTable:
    made = LoadedTable(tmp_path, "delta")
    made.commit()
    made.table.alter.set_table_properties({"delta.checkpointInterval": "5"})
    return made


def commit(loaded: LoadedTable, count: int) -> None:
    for _ in range(count):
        loaded.commit()


def log_of(folder: Path) -> set[str]:
    return {path.name for path in (folder / "default" / "clicks" / "_delta_log").iterdir()}


def versions(folder: Path) -> list[int]:
    return sorted(int(name[:20]) for name in log_of(folder) if re.fullmatch(r"\d{20}\.json", name))


def test_versions_far_back_are_deleted_and_all_others_can_be_read(loaded: LoadedTable) -> None:
    foreign = loaded.folder / "default" / "clicks" / "_delta_log" / "00000000000000000002.backup.json"
    foreign.write_text("not ours")
    commit(loaded, 30)
    left = versions(loaded.folder)
    newest = left[-1]
    assert left == list(range(left[0], newest + 1))
    assert newest - KEPT - 10 < left[0] <= newest - KEPT
    assert foreign.name in log_of(loaded.folder)
    uri = str(loaded.folder / "default" / "clicks")
    rows = {version: DeltaTable(uri, version=version).to_pyarrow_table(columns=["offset"]).num_rows for version in left}
    assert rows == {version: version * PARTITIONS for version in left}
    assert loaded.next_offsets() == {loaded.offset_after(31)}


def test_the_oldest_version_left_says_how_far_the_table_is_loaded(loaded: LoadedTable) -> None:
    commit(loaded, 3)
    for number in range(20):  # until the next checkpoint no version has a ledger
        loaded.table.alter.set_table_properties({"delta.checkpointInterval": "5", "delta.appendOnly": str(number % 2)})
    commit(loaded, 1)
    before = versions(loaded.folder)[0]
    commit(loaded, 20)
    first = versions(loaded.folder)[0]
    assert first > before
    loaded.table.restore(first)
    rows = loaded.table.to_pyarrow_table(columns=["offset"]).num_rows
    assert loaded.next_offsets() == {loaded.offset_after(rows // PARTITIONS)}


@pytest.mark.parametrize(
    "chosen", [{"delta.logRetentionDuration": "interval 2 days"}, {"delta.enableExpiredLogCleanup": "false"}]
)
def test_a_log_whose_owner_says_how_long_it_is_kept_stays(loaded: LoadedTable, chosen: dict[str, str]) -> None:
    loaded.table.alter.set_table_properties(chosen)
    commit(loaded, 20)
    assert versions(loaded.folder)[0] == 0


def test_a_log_that_cannot_be_cut_leaves_the_rows_committed(
    loaded: LoadedTable, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_arguments: object) -> int:
        raise PermissionError("read only")

    monkeypatch.setattr(delta_warehouse, "delete_old_versions", fail)
    commit(loaded, KEPT + 5)
    assert "table default.clicks: cannot delete old versions from its log: read only" in caplog.text
    found = scan_table(loaded.folder, "clicks", columns=["offset"], table_format="delta")
    assert sum(batch.num_rows for batch in found) == (KEPT + 6) * PARTITIONS


@pytest.mark.parametrize("is_own", [True, False])
def test_tables_of_streams_are_cut_where_a_stream_has_made_them(tmp_path: Path, is_own: bool) -> None:
    columns = pa.schema([("number", pa.int64())])
    store = open_place(TablePlace.of(tmp_path, table_format="delta"))
    folder = tmp_path / "default" / "clicks"
    if not is_own:
        DeltaTable.create(str(folder), pa.schema([("number", pa.int64())]))
    for batch in range(30):
        path = tmp_path / "default" / "clicks" / f"{batch}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"number": [batch]}), path)
        table = delta_batch_table.DeltaBatchTable(store, "clicks", columns)
        table.append([BatchFile(f"file://{path}", path.stat().st_size, 1)], f"load-{batch}", "query", batch)
        if batch == 0:
            table = delta_batch_table.DeltaBatchTable(store, "clicks", columns)
            table.table.alter.set_table_properties({"delta.checkpointInterval": "5"})
    assert (versions(tmp_path)[0] > 0) is is_own
    assert DeltaTable(str(folder)).to_pyarrow_table().num_rows == 30
