"""The folder of a load: kept while its load lives, removed when it died, never removed when it was committed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from barnabas.spark import table_load
from barnabas.spark.jobs import run_here
from barnabas.spark.load_folder import LoadFolder, RemoteFolder, remove_leftovers
from tests.support.loads_without_spark import Lake


def claim(table: Path, load_id: str) -> LoadFolder:
    folder = LoadFolder.claim(table, load_id)
    (folder.data / "file.parquet").write_bytes(b"data")
    return folder


def test_the_folder_of_a_dead_load_is_removed(tmp_path: Path) -> None:
    claim(tmp_path, "dead").abandon()
    assert remove_leftovers(tmp_path, lambda ids: []) == ["dead"]
    assert not (tmp_path / "data/dead").exists()
    assert list((tmp_path / "loads").iterdir()) == []


def test_the_folder_of_a_load_that_lives_is_not_touched(tmp_path: Path) -> None:
    living = claim(tmp_path, "living")
    assert remove_leftovers(tmp_path, lambda ids: []) == []
    assert (tmp_path / "data/living/file.parquet").exists()
    living.release()


def test_what_was_committed_stays_when_its_load_died_after_the_commit(tmp_path: Path) -> None:
    claim(tmp_path, "committed").abandon()
    assert remove_leftovers(tmp_path, lambda ids: ids) == []
    assert (tmp_path / "data/committed/file.parquet").exists()
    assert list((tmp_path / "loads").iterdir()) == []


def test_a_load_that_ended_well_leaves_its_files_and_no_lock(tmp_path: Path) -> None:
    claim(tmp_path, "good").release()
    assert remove_leftovers(tmp_path, lambda ids: []) == []
    assert (tmp_path / "data/good/file.parquet").exists()


def test_a_load_that_failed_leaves_nothing(tmp_path: Path) -> None:
    claim(tmp_path, "failed").discard()
    assert list((tmp_path / "data").iterdir()) == []
    assert list((tmp_path / "loads").iterdir()) == []


def test_a_table_that_was_never_loaded_has_no_leftovers(tmp_path: Path) -> None:
    assert remove_leftovers(tmp_path / "nothing", lambda ids: []) == []


def test_what_is_not_to_be_committed_is_removed_wherever_the_folder_is(tmp_path: Path) -> None:
    local = claim(tmp_path, "here")
    remote = tmp_path / "data" / "there"
    remote.mkdir()
    for each, folder in ((local, local.data), (RemoteFolder({}, str(remote)), remote)):
        for name in ("file.parquet", "of a killed task.parquet"):
            (folder / name).write_bytes(b"data")
        each.keep_only([f"file://{folder}/file.parquet"])
        assert [path.name for path in folder.iterdir()] == ["file.parquet"]
        each.keep_only([])
        assert not any(folder.iterdir())
    local.release()


@pytest.mark.parametrize("table_format", ["iceberg", "delta"])
def test_a_load_leaves_no_files_of_tasks_that_were_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table_format: str
) -> None:
    if table_format == "delta":
        pytest.importorskip("deltalake")
    lake = Lake(tmp_path, table_format)
    lake.stand_in(monkeypatch)

    def run_again(_spark: object, items: Any, work: Any, **options: Any) -> Any:
        work(items[0], 1_000)  # and its executor is gone, before it can say what it has written
        return run_here(items, work, **options)

    monkeypatch.setattr(table_load, "run_tasks", run_again)
    lake.partitions = [[b'{"a": %d}' % number, b"?"] for number in range(3)]
    loaded = lake.load(records_per_task=2)
    assert (loaded.records, loaded.dead_letter_rows) == (6, 3)
    tables = [lake.open().current_table(name).contents() for name in ("t", "bad")]
    on_disk, locks = lake.files()
    assert (len(on_disk), locks) == (sum(len(table.file_sizes) for table in tables), 0)
    assert len(lake.rows()) == 3
