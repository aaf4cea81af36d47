"""Parquet files by partition: one a day for a task of usual size, rows in order, nothing left out."""

from __future__ import annotations

from pathlib import Path
from typing import IO

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.records import BatchBuilder
from barnabas.records.arrow import ArrowReader
from barnabas.spark import data_files
from barnabas.spark.columns import TIMESTAMP_MS_MAX, TIMESTAMP_MS_MIN, split_timestamps, to_record_batches
from barnabas.spark.data_files import (
    SAMPLE_ROWS,
    PartitionedFiles,
    columns_with_bounds,
    columns_with_dictionaries,
)
from barnabas.spark.table_layout import TableLayout

DAY_MS = 86_400_000
DAYS = TableLayout.by_day("timestamp")
TEXTS = ("a", "b", "\ud7ff", "c")


def batches(timestamps_ms: list[int]) -> list[pa.RecordBatch]:
    builder = BatchBuilder()
    for number, timestamp_ms in enumerate(timestamps_ms):
        builder.append(timestamp_ms, b"key", b"%d" % number, [("id", b"1"), ("none", None)] if number % 2 else ())
    reader = ArrowReader()
    if timestamps_ms:
        reader.read(builder.build(), "t", 3)
    return list(to_record_batches(reader.finish(), include_headers=True, include_raw_timestamp=True, records_max=4))


def create(path: str) -> IO[bytes]:
    return Path(path).open("xb")


def write(folder: Path, timestamps_ms: list[int], buffered_bytes_max: int = 1 << 30) -> dict[str, pa.Table]:
    files = PartitionedFiles(f"{folder}/t-3", create, DAYS, buffered_bytes_max=buffered_bytes_max)
    for batch in batches(timestamps_ms):
        files.add(batch)
    written = files.finish()
    assert sum(file.records for file in written) == len(timestamps_ms)
    return {Path(file.path).name: pq.read_table(file.path) for file in written}


def test_a_task_writes_one_file_a_day_with_the_rows_in_order(tmp_path: Path) -> None:
    tables = write(tmp_path, [0, DAY_MS, 1, DAY_MS + 1, DAY_MS - 1, 5 * DAY_MS, 2])
    assert list(tables) == [
        "t-3-1970-01-01-00000.parquet",
        "t-3-1970-01-02-00001.parquet",
        "t-3-1970-01-06-00002.parquet",
    ]
    offsets = [table.column("offset").to_pylist() for table in tables.values()]
    assert offsets == [[0, 2, 4, 6], [1, 3], [5]]


def test_times_before_1970_fall_on_the_day_they_are_of(tmp_path: Path) -> None:
    assert list(write(tmp_path, [-1, -DAY_MS, -DAY_MS - 1])) == [
        "t-3-1969-12-30-00000.parquet",
        "t-3-1969-12-31-00001.parquet",
    ]


def test_times_that_no_column_holds_have_a_file_of_their_own_with_the_number_sent(tmp_path: Path) -> None:
    now_ms = 1_700_000_000_000
    tables = write(tmp_path, [now_ms * 1_000_000, now_ms, now_ms * 1000, -(2**60), 2**60])
    assert list(tables) == ["t-3-2023-11-14-00000.parquet", "t-3-no-day-00001.parquet"]
    dayless = tables["t-3-no-day-00001.parquet"]
    assert dayless.column("offset").to_pylist() == [0, 2, 3, 4]
    assert dayless.column("timestamp").null_count == 4
    assert dayless.column("raw_timestamp_ms").to_pylist() == [now_ms * 1_000_000, now_ms * 1000, -(2**60), 2**60]


@given(st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(TIMESTAMP_MS_MIN, TIMESTAMP_MS_MAX), min_size=1))
def test_every_timestamp_is_in_one_of_two_columns_and_on_its_day(timestamps_ms: list[int]) -> None:
    column = pa.array(timestamps_ms, pa.int64()).cast(pa.timestamp("ms", tz="UTC"))
    timestamps, raw = split_timestamps(column)
    microseconds, raw_ms = timestamps.cast(pa.int64()).to_pylist(), raw.to_pylist()
    given_back = [time // 1000 if number is None else number for time, number in zip(microseconds, raw_ms, strict=True)]
    assert given_back == timestamps_ms
    parts = list(DAYS.rows_by_partition(pa.table({"timestamp": timestamps, "row": range(len(timestamps_ms))})))
    for (day,), part in parts:
        for row in part.column("row").to_pylist():
            time = microseconds[row]
            assert day == (None if time is None else time // (DAY_MS * 1000))
    assert sorted(row for _, part in parts for row in part.column("row").to_pylist()) == list(range(len(timestamps_ms)))


def test_a_task_above_the_limit_writes_in_parts_and_loses_nothing(tmp_path: Path) -> None:
    tables = write(tmp_path, list(range(20)), buffered_bytes_max=1)
    (parts,) = [pq.ParquetFile(tmp_path / name).num_row_groups for name in tables]
    assert parts == 5
    assert [value for table in tables.values() for value in table.column("offset").to_pylist()] == list(range(20))


def test_a_task_without_records_writes_nothing(tmp_path: Path) -> None:
    assert write(tmp_path, []) == {}


def test_headers_keep_order_repeats_and_nulls() -> None:
    table = pa.Table.from_batches(batches([1, 2]))
    assert table.column("headers").to_pylist() == [None, [{"key": "id", "value": b"1"}, {"key": "none", "value": None}]]
    assert table.column("timestamp").cast(pa.int64()).to_pylist() == [1000, 2000]


def test_a_day_has_one_file_however_often_memory_is_full_until_that_has_its_size(tmp_path: Path) -> None:
    times = [day * DAY_MS + number for number in range(20) for day in (0, 1)]
    one_each = write(tmp_path, times, buffered_bytes_max=1)
    assert [table.column("offset").to_pylist() for table in one_each.values()] == [
        list(range(0, 40, 2)),
        list(range(1, 40, 2)),
    ]
    (tmp_path / "small").mkdir()
    files = PartitionedFiles(f"{tmp_path}/small/t", create, DAYS, buffered_bytes_max=1, target_bytes=1)
    for batch in batches(times):
        files.add(batch)
    done = files.finish()
    assert len(done) == 20  # a batch has four records, of both days
    assert all(file.size_bytes == Path(file.path).stat().st_size for file in done)
    assert {file.partition for file in done} == {(0,), (1,)}


def test_files_of_many_days_are_not_all_open_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_files, "OPEN_FILES_MAX", 2)
    tables = write(tmp_path, [day * DAY_MS for day in (0, 1, 2, 0, 0, 1, 2, 2)], buffered_bytes_max=1)
    offsets = [offset for table in tables.values() for offset in table.column("offset").to_pylist()]
    assert sorted(offsets) == list(range(8))
    assert len(tables) > 3


def test_a_text_that_has_no_bound_begins_a_new_file(tmp_path: Path) -> None:
    rows = [pa.record_batch({"timestamp": pa.array([0], pa.timestamp("us", "UTC")), "text": [text]}) for text in TEXTS]
    files = PartitionedFiles(f"{tmp_path}/t", create, DAYS, buffered_bytes_max=1)
    for batch in rows:
        files.add(batch)
    told = [pq.ParquetFile(file.path).metadata.row_group(0).column(1).is_stats_set for file in files.finish()]
    assert told == [True, False]


@pytest.mark.parametrize(
    "texts", [["a", None, "z"], ["a", "\u00e4"], ["a", "\ue000"], ["\ud7fe", "\U0001f600"], [None]]
)
def test_texts_in_all_letters_but_one_have_bounds(texts: list[str | None]) -> None:
    assert columns_with_bounds(pa.table({"text": pa.array(texts, pa.string()), "n": [1] * len(texts)})) is True
    odd = pa.table({"text": pa.array([*texts, "\ud7ff" * 2], pa.string()), "n": [1] * (len(texts) + 1)})
    has_greater = max(text or "" for text in texts) > "\ud7ff"
    assert columns_with_bounds(odd) == (True if has_greater else ["n"])


def test_only_columns_whose_values_may_come_again_have_dictionaries(tmp_path: Path) -> None:
    (name,) = write(tmp_path, [0, 1, 2])
    group = pq.ParquetFile(tmp_path / name).metadata.row_group(0)
    columns = [group.column(number) for number in range(group.num_columns)]
    without = {column.path_in_schema for column in columns if not column.has_dictionary_page}
    assert without == {"offset", "timestamp"}


def test_columns_of_ids_have_no_dictionaries(tmp_path: Path) -> None:
    """A dictionary of values that do not come again is larger than they are, takes time to make, and is given up."""
    count = 3 * SAMPLE_ROWS
    rows = pa.record_batch(
        {
            "timestamp": pa.array([0] * count, pa.timestamp("us", "UTC")),
            "id": pa.array(range(count)),
            "name": [f"name {number}" for number in range(count)],
            "some": [number if number % 9 else None for number in range(count)],
            "user": [f"user {number % 100}" for number in range(count)],
            "tags": [[number] for number in range(count)],
        }
    )
    half = count // 2
    for batches_of, wanted in (([rows.slice(0, half), rows.slice(half)], {"id", "name"}), ([rows.slice(0, 99)], set())):
        table = pa.Table.from_batches(batches_of)
        paths = {"id", "name", "some", "user", "tags.list.element"}
        assert paths - set(columns_with_dictionaries(table)) == wanted
