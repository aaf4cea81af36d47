"""Files added to an Iceberg table: as pyiceberg adds them, but what all of one schema share is found out once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.manifest import ManifestContent
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table, Transaction
from pyiceberg.transforms import DayTransform
from pyiceberg.types import LongType, NestedField, StringType, TimestamptzType

from barnabas.spark import iceberg_files
from barnabas.spark.iceberg_files import TieredAppend, add_files

SCHEMA = Schema(
    NestedField(1, "number", LongType()), NestedField(2, "text", StringType()), NestedField(3, "at", TimestamptzType())
)
SPEC = PartitionSpec(PartitionField(3, 1000, DayTransform(), "at_day"))

Add = Callable[[Transaction, Sequence[str], dict[str, str]], None]


def with_pyiceberg(transaction: Transaction, paths: Sequence[str], properties: dict[str, str]) -> None:
    transaction.add_files(list(paths), snapshot_properties=properties, check_duplicate_files=False)


def table_in(folder: Path, **properties: str) -> Table:
    folder.mkdir()
    catalog = load_catalog("test", type="sql", uri=f"sqlite:///{folder}/catalog", warehouse=f"file://{folder}")
    catalog.create_namespace("a")
    return catalog.create_table("a.t", SCHEMA, partition_spec=SPEC, properties=properties)


def commit(table: Table, add: Add, paths: Sequence[str]) -> None:
    with table.transaction() as transaction:
        add(transaction, paths, {"by": "us"})


def write_files(folder: Path) -> list[str]:
    """Write files of several days and of two schemas, with nulls, with and without bounds."""
    paths = []
    for number in range(6):
        at = datetime(2013, 1, 1, tzinfo=UTC) + timedelta(days=number)
        rows = pa.table({"number": pa.array([number, None], pa.int64()), "text": ["é" * 40, "b"], "at": [at] * 2})
        rows = rows.drop_columns(["text"]) if number % 3 == 2 else rows
        paths.append(str(folder / f"{number}.parquet"))
        pq.write_table(rows, paths[-1], write_statistics=["at"] if number == 1 else True)
    return paths


def told(table: Table) -> tuple[Any, ...]:
    """Return all that a table says of its files, but for what no two commits have in common."""
    snapshot = table.current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    files = [file for manifest in snapshot.manifests(table.io) for file in manifest.fetch_manifest_entry(table.io)]
    said = [(file.status, [plain(getattr(file.data_file, name)) for name in FIELDS]) for file in files]
    return said, snapshot.summary.operation, snapshot.summary["by"], table.properties, len(snapshot.manifests(table.io))


def plain(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else value


FIELDS = [
    *("content", "file_path", "file_format", "partition", "record_count", "file_size_in_bytes", "column_sizes"),
    *("value_counts", "null_value_counts", "nan_value_counts", "lower_bounds", "upper_bounds"),
    *("key_metadata", "split_offsets", "equality_ids", "sort_order_id", "spec_id"),
]


@pytest.mark.parametrize("merges", ["false", "true"])
def test_table_says_the_same_as_with_pyiceberg(tmp_path: Path, merges: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(iceberg_files, "FOOTERS_AT_ONCE", 4)  # of six files
    paths, said = write_files(tmp_path), []
    for number, add in enumerate((add_files, with_pyiceberg)):
        settings = {"commit.manifest-merge.enabled": merges, "commit.manifest.min-count-to-merge": "2"}
        table = table_in(tmp_path / str(number), **settings)
        commit(table, add, paths[:4])
        commit(table, add, paths[4:])
        said.append(told(table))
        assert table.scan().to_arrow().num_rows == 12
    assert said[0] == said[1]


def test_schema_is_looked_at_once_however_many_files_have_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at: list[list[str]] = []
    check = iceberg_files._check_pyarrow_schema_compatible

    def look(schema: Any, columns: pa.Schema, **options: Any) -> None:
        looked_at.append(columns.names)
        check(schema, columns, **options)

    monkeypatch.setattr(iceberg_files, "_check_pyarrow_schema_compatible", look)
    commit(table_in(tmp_path / "table"), add_files, write_files(tmp_path))
    assert looked_at == [["number", "text", "at"], ["number", "at"]]


def test_file_with_another_column_is_refused_wherever_it_stands(tmp_path: Path) -> None:
    paths, table = write_files(tmp_path), table_in(tmp_path / "table")
    pq.write_table(pa.table({"number": [1], "at": [datetime(2013, 1, 1, tzinfo=UTC)], "more": [1]}), paths[-1])
    with pytest.raises(ValueError, match="more columns: more"):
        commit(table, add_files, paths)
    assert table.refresh().current_snapshot() is None


class Manifest(SimpleNamespace):
    """What a merge looks at: a manifest of so many files."""

    content, manifest_length, partition_spec_id, existing_files_count = ManifestContent.DATA, 6_000, 0, 0


def test_manifests_of_a_day_stay_few_and_an_entry_is_written_once_for_each_tier(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written: list[int] = []

    def merge(_spec_id: int, manifests: Sequence[Manifest]) -> Manifest:
        written.append(sum(each.added_files_count for each in manifests))
        return Manifest(added_files_count=written[-1])

    manager = SimpleNamespace(_create_manifest=merge)
    monkeypatch.setattr(iceberg_files, "_ManifestMergeManager", lambda *_sizes, **_options: manager)
    append: Any = SimpleNamespace(_transaction=SimpleNamespace(table_metadata=SimpleNamespace(properties={})))
    manifests: list[Any] = []
    most = 0
    for _ in range(8_640):
        manifests = TieredAppend._process_manifests(append, [Manifest(added_files_count=1), *manifests])
        most = max(most, len(manifests))
    assert sum(each.added_files_count for each in manifests) == 8_640
    assert most <= 4 * 9
    assert sum(written) <= 3 * 8_640
