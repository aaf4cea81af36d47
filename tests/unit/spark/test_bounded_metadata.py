"""A table that is loaded again and again: what commits leave on the disk, and what each of them writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.spark import iceberg_files
from barnabas.spark.iceberg_snapshot_expiry import BOUNDS, SNAPSHOTS_MAX
from barnabas.spark.table_status import table_status
from tests.support.loaded_table import PARTITIONS, LoadedTable

COMMITS_A_DAY, LEFT_BYTES_MAX = 8_640, 100_000_000


@pytest.fixture
def iceberg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LoadedTable:
    """A table that reaches its usual size after some commits, and not only after a hundred."""
    monkeypatch.setitem(BOUNDS, SNAPSHOTS_MAX, "8")
    monkeypatch.setitem(BOUNDS, "write.metadata.previous-versions-max", "3")
    monkeypatch.setattr(iceberg_files, "TIER_MANIFESTS", 4)
    return LoadedTable(tmp_path, "iceberg")


@pytest.fixture
def delta(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LoadedTable:
    """A table whose log is cut after some commits, and not only after two hundred."""
    monkeypatch.setattr("barnabas.spark.delta_log_cleanup.VERSIONS_KEPT", 10)
    monkeypatch.setattr("barnabas.spark.delta_log_cleanup.VERSIONS_BETWEEN_LOOKS", 5)
    table = LoadedTable(tmp_path, "delta")
    table.commit()
    table.table.alter.set_table_properties({"delta.checkpointInterval": "5"})
    return table


def check(table: LoadedTable, count: int, period: int) -> None:
    """Check the last two periods of so many commits: they leave and write the same, but for a list of data files."""
    measured = list(table.measured(count))
    earlier, later = measured[-2 * period : -period], measured[-period:]
    growth = sum(two.left_bytes - one.left_bytes for one, two in zip(earlier, later, strict=True)) / period**2
    assert measured[-1].left_bytes + growth * COMMITS_A_DAY < LEFT_BYTES_MAX
    written = [sum(each.written_bytes for each in part) for part in (earlier, later)]
    assert written[1] < written[0] * 1.1
    assert sum(each.written_files for each in later) <= sum(each.written_files for each in earlier) + 1
    status = table_status(table.store, "clicks")
    assert status.records == table.commits * PARTITIONS
    assert table.next_offsets() == {table.offset_after(table.commits)}


def test_a_day_of_iceberg_commits_leaves_less_than_100_mb(iceberg: LoadedTable) -> None:
    check(iceberg, 36, 12)


def test_a_day_of_delta_commits_leaves_less_than_100_mb(delta: LoadedTable) -> None:
    check(delta, 45, 15)
