"""Small files of a day are put together before they are committed, where that leaves far fewer of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from barnabas.spark import small_file_merge
from barnabas.spark.data_files import DataFile
from barnabas.spark.errors import WarehouseError
from barnabas.spark.load_tasks import TaskFailed
from barnabas.spark.small_file_merge import FileGroup, MergeSettings, merge_files, small_file_groups
from barnabas.spark.table_layout import TableLayout
from tests.support.loads_without_spark import Lake

ONE, OTHER = 16_572, 16_573


def files(count: int, day: int | None = ONE, size_bytes: int = 10) -> list[DataFile]:
    return [DataFile(f"{day}-{number}", 1, (day,), size_bytes) for number in range(count)]


@pytest.fixture(params=["iceberg", "delta"])
def lake(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    if request.param == "delta":
        pytest.importorskip("deltalake")
    made = Lake(tmp_path, request.param)
    made.stand_in(monkeypatch)
    return made


def test_each_day_has_files_of_its_own_in_the_order_of_their_records() -> None:
    bundles, left = small_file_groups([*files(20), *files(20, OTHER), *files(1, None)], 100)
    assert left == files(1, None)
    assert [bundle.files for bundle in bundles] == [
        tuple(files(20)[:10]),
        tuple(files(20)[10:]),
        tuple(files(20, OTHER)[:10]),
        tuple(files(20, OTHER)[10:]),
    ]


def test_a_file_is_looked_at_once_however_many_are_in_a_bundle() -> None:
    looked_at = 0

    class Counted(int):
        def __radd__(self, other: int) -> int:
            nonlocal looked_at
            looked_at += 1
            return other + int(self)

        def __rsub__(self, other: int) -> int:
            nonlocal looked_at
            looked_at += 1
            return other - int(self)

    many = [replace(file, size_bytes=Counted(1)) for file in files(1_000)]
    (bundle,), left = small_file_groups(many, 10_000)
    assert (len(bundle.files), left) == (1_000, [])
    assert looked_at == 1_000


def test_what_would_save_little_stays_as_it_is() -> None:
    few, large, of_many_days = (
        files(8),
        files(100, size_bytes=60),
        [file for day in (ONE, OTHER) for file in files(3, day)],
    )
    for each in (few, large, of_many_days, [*files(20, size_bytes=200)], []):
        assert small_file_groups(each, 100) == ([], each)


def test_many_tasks_leave_one_file_a_day_with_all_rows(lake: Lake) -> None:
    lake.partitions = [[b'{"a": %d}' % number, b"?"] for number in range(20)]
    loaded = lake.load(records_per_task=2)
    assert (loaded.records, loaded.files, loaded.dead_letter_rows) == (40, 2, 20)
    on_disk, locks = lake.files()
    assert (len(on_disk), locks) == (3, 0)
    assert sorted(lake.rows("t", "a"), key=str) == sorted([*((0, n) for n in range(20)), *[(1, None)] * 20], key=str)
    assert len(lake.rows()) == 20
    # The next load has one new column, of which only some tasks know.
    for number, values in enumerate(lake.partitions):
        values.append(b'{"a": 1, "b": 2}' if number > 9 else b'{"a": 1}')
    grown = lake.load(records_per_task=1)
    assert (grown.records, grown.files, set(grown.new_fields)) == (20, 2, {"b"})
    assert [b for offset, b in lake.rows("t", "b") if offset == 2].count(2) == 10
    assert len(lake.files()[0]) == 5


def test_a_file_that_cannot_be_read_leaves_the_table_as_it_was(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    failed = merge_files(
        MergeSettings(str(lake.folder), {}, TableLayout.by_day("timestamp"), 100), FileGroup(0, tuple(files(2))), 0
    )
    assert isinstance(failed, TaskFailed)
    assert failed.message.startswith("cannot merge 2 files of 2015-05-17: ")
    lake.partitions = [[b"1"] for _ in range(20)]
    monkeypatch.setattr(small_file_merge, "file_system_of", gone)
    with pytest.raises(WarehouseError, match=r"is unchanged: cannot merge 20 files of .*: no such file"):
        lake.load(records_per_task=1)
    assert lake.files() == (set(), 0)


def gone(*_arguments: object) -> None:
    raise FileNotFoundError("no such file")
