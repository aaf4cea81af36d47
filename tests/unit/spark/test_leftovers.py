"""The folder of a load: kept while its load lives, removed when it died, never removed when it was committed."""

from __future__ import annotations

from pathlib import Path

from barnabas.spark.leftovers import LoadFolder, remove_leftovers


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
