"""Commits that replace files of a state table, in both table formats: data, removed files and ledger all or nothing."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from barnabas.errors import ConfigurationError
from barnabas.formats.upsert_rules import UpsertRules
from barnabas.spark.change_files import DELETED, MergeColumns
from barnabas.spark.data_files import DataFile
from barnabas.spark.errors import LoadConflictError, WarehouseError
from barnabas.spark.ledger import Ledger, snapshot_properties
from barnabas.spark.offset_ranges import OffsetRange
from barnabas.spark.state_merge import ChangeRows, Merged, MergeTarget, StateMerge
from barnabas.spark.table_formats import open_place
from barnabas.spark.table_layout import TableLayout
from barnabas.spark.table_place import DELTA, ICEBERG, TablePlace
from barnabas.spark.table_shape import TableShape
from barnabas.spark.table_store import StoredFile
from barnabas.spark.tables import scan_table

SHAPE = replace(TableShape.of("json", {"id": "long", "name": "string"}), upsert=UpsertRules.of("id"))
Rows = list[dict[str, Any]]


class StateTable:
    """The table `orders` in a folder, with commits of rows."""

    def __init__(self, folder: Path, table_format: str) -> None:
        self.folder = folder
        self.format = table_format
        self.store: Any = open_place(TablePlace.of(folder, table_format=table_format))

    def begin(self) -> Any:
        return self.store.begin("orders")

    def commit(self, base: Any, end_offset: int, rows: Rows, replaced: Any = (), shape: TableShape = SHAPE) -> None:
        load_id = uuid.uuid4().hex
        path = self.path_of(base, load_id)
        schema = shape.state_schema()
        table = pa.Table.from_pylist([{"topic": "t", "partition": 0, "offset": 0, **row} for row in rows], schema)
        pq.write_table(table, path)
        file = DataFile(f"file://{path}", len(rows), (), path.stat().st_size)
        loaded = [OffsetRange("t", 0, 0, end_offset)]
        ledger = Ledger().advanced({"t": "id-1"}, loaded)
        properties = snapshot_properties(load_id, ledger, loaded, len(rows))
        base.commit([file] if rows else [], properties, shape, replaced)

    def path_of(self, base: Any, load_id: str) -> Path:
        location = base.location().local_folder
        assert location is not None
        path: Path = location / "data" / load_id / "0.parquet"
        path.parent.mkdir(parents=True)
        return path

    def names(self) -> dict[int, Any]:
        found = scan_table(self.folder, "orders", table_format=self.format)
        rows = [row for batch in found for row in batch.to_pylist()]
        assert len({row["id"] for row in rows}) == len(rows)
        return {row["id"]: row["name"] for row in rows}

    def next_offset(self) -> int:
        offsets: dict[int, int] = self.begin().ledger().topics["t"].next_offsets
        return offsets[0]


@pytest.fixture(params=[ICEBERG, DELTA])
def orders(request: pytest.FixtureRequest, tmp_path: Path) -> StateTable:
    """A table with two files: the orders 1 to 3, and 4 to 6."""
    table = StateTable(tmp_path, request.param)
    for first in (1, 4):
        rows = [{"id": number, "name": f"n{number}"} for number in range(first, first + 3)]
        table.commit(table.begin(), first + 2, rows)
    return table


def file_with(base: Any, order_id: int) -> Any:
    """Return the file whose bounds have an order."""
    (found,) = [file for file in base.data_files(["id"]) if file.bounds["id"][0] <= order_id <= file.bounds["id"][1]]
    return found


def test_files_have_bounds_and_rows(orders: StateTable) -> None:
    base = orders.begin()
    assert sorted(file.bounds["id"] for file in base.data_files(["id"])) == [(1, 3), (4, 6)]
    file = file_with(base, 5)
    schema = pa.schema([("id", pa.int64()), ("later", pa.string()), ("name", pa.string())])
    (rows,) = base.rows_of_file(file, schema)
    assert rows.to_pylist()[1] == {"id": 5, "later": None, "name": "n5"}
    assert (file.records, file.size_bytes > 0) == (3, True)


def test_a_commit_replaces_a_file_with_data_and_offsets_at_once(orders: StateTable) -> None:
    base = orders.begin()
    orders.commit(base, 8, [{"id": 4, "name": "new"}, {"id": 7, "name": "n7"}], [file_with(base, 5)])
    assert orders.names() == {1: "n1", 2: "n2", 3: "n3", 4: "new", 7: "n7"}
    assert orders.next_offset() == 8


def test_a_commit_may_only_remove(orders: StateTable) -> None:
    base = orders.begin()
    orders.commit(base, 9, [], base.data_files(["id"]))
    assert orders.names() == {}
    assert orders.next_offset() == 9


def test_new_columns_are_null_in_the_rows_that_stay(orders: StateTable) -> None:
    base = orders.begin()
    fields = {"id": "long", "name": "string", "city": "string"}
    shape = replace(TableShape.of("json", fields), upsert=SHAPE.upsert)
    orders.commit(base, 9, [{"id": 1, "name": "new", "city": "Bonn"}], [file_with(base, 1)], shape)
    found = scan_table(orders.folder, "orders", table_format=orders.format)
    rows = sorted((row["id"], row["name"], row["city"]) for batch in found for row in batch.to_pylist())
    assert rows == [(1, "new", "Bonn"), (4, "n4", None), (5, "n5", None), (6, "n6", None)]
    assert orders.begin().shape() == replace(shape, widens_types=orders.format == ICEBERG, layout=TableLayout())
    assert orders.next_offset() == 9


@pytest.mark.parametrize("adds_a_column", [False, True])
def test_the_second_of_two_commits_to_one_version_changes_nothing(orders: StateTable, adds_a_column: bool) -> None:
    first, second = orders.begin(), orders.begin()
    orders.commit(first, 8, [{"id": 1, "name": "first"}], [file_with(first, 1)])
    fields = {"id": "long", "name": "string", **({"city": "string"} if adds_a_column else {})}
    shape = replace(TableShape.of("json", fields), upsert=SHAPE.upsert)
    with pytest.raises(LoadConflictError):
        orders.commit(second, 9, [{"id": 1, "name": "second"}], [file_with(second, 1)], shape)
    assert orders.names() == {1: "first", 4: "n4", 5: "n5", 6: "n6"}
    assert orders.next_offset() == 8


def test_delta_conflicts_between_the_version_of_new_columns_and_the_version_of_the_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deltalake = pytest.importorskip("deltalake")
    orders = StateTable(tmp_path, DELTA)
    orders.commit(orders.begin(), 1, [{"id": 1, "name": "n1"}])
    base, add_columns = orders.begin(), deltalake.table.TableAlterer.add_columns

    def add_columns_and_commit(*arguments: Any, **options: Any) -> None:
        add_columns(*arguments, **options)
        monkeypatch.undo()
        other = orders.begin()
        orders.commit(other, 2, [{"id": 1, "name": "other"}], other.data_files(["id"]), grown)

    grown = replace(TableShape.of("json", {"id": "long", "name": "string", "n": "long"}), upsert=SHAPE.upsert)
    monkeypatch.setattr(deltalake.table.TableAlterer, "add_columns", add_columns_and_commit)
    with pytest.raises(LoadConflictError):
        orders.commit(base, 3, [{"id": 1, "name": "late"}], base.data_files(["id"]), grown)
    assert orders.names() == {1: "other"}
    assert orders.next_offset() == 2


def test_delta_kill_between_the_version_of_new_columns_and_the_version_of_the_rows_changes_no_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deltalake = pytest.importorskip("deltalake")
    orders = StateTable(tmp_path, DELTA)
    orders.commit(orders.begin(), 1, [{"id": 1, "name": "n1"}])
    grown = replace(TableShape.of("json", {"id": "long", "name": "string", "n": "long"}), upsert=SHAPE.upsert)
    base = orders.begin()

    def die(*_arguments: Any, **_options: Any) -> None:
        raise SystemExit

    with monkeypatch.context() as patched:
        patched.setattr(deltalake.DeltaTable, "create_write_transaction", die)
        with pytest.raises(SystemExit):
            orders.commit(base, 3, [{"id": 1, "name": "never"}], base.data_files(["id"]), grown)
    assert orders.names() == {1: "n1"}
    assert orders.next_offset() == 1
    base = orders.begin()
    orders.commit(base, 3, [{"id": 1, "name": "new", "n": 7}], base.data_files(["id"]), grown)
    assert orders.names() == {1: "new"}
    assert orders.next_offset() == 3


def test_delta_without_remove_actions_names_the_release_that_has_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    transaction = pytest.importorskip("deltalake.transaction")
    orders = StateTable(tmp_path, DELTA)
    orders.commit(orders.begin(), 1, [{"id": 1, "name": "n1"}])
    monkeypatch.delattr(transaction, "RemoveAction")
    base = orders.begin()
    with pytest.raises(ConfigurationError, match=r"deltalake 1\.6\.6"):
        orders.commit(base, 2, [{"id": 1, "name": "n"}], base.data_files(["id"]))
    assert orders.names() == {1: "n1"}


def test_delta_table_that_another_tool_partitioned_is_refused(tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake")
    orders = StateTable(tmp_path, DELTA)
    orders.commit(orders.begin(), 1, [{"id": 1, "name": "n1"}])
    path = str(tmp_path / "default" / "orders")
    rows = deltalake.DeltaTable(path).to_pyarrow_table()
    schema = deltalake.DeltaTable(path).schema()
    metadata = [pa.field(field.name, field.type, metadata=field.metadata) for field in pa.schema(schema.to_arrow())]
    deltalake.write_deltalake(
        path, rows.cast(pa.schema(metadata)), mode="overwrite", schema_mode="overwrite", partition_by=["name"]
    )
    with pytest.raises(WarehouseError, match="is partitioned"):
        orders.begin()


class OneFile:
    """A version of a table with one file, which has the key column `id` and a row for each key."""

    def __init__(self, keys: pa.Array, bounds: tuple[Any, Any]) -> None:
        self.rows = pa.table({"id": keys, "n": range(len(keys))})
        self.file = StoredFile("old.parquet", len(keys), 1, {"id": bounds}, None)

    def data_files(self, _columns: Any) -> list[StoredFile]:
        return [self.file]

    def rows_of_file(self, _file: StoredFile, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        yield from self.rows.select(schema.names).to_batches()

    def merge(self, folder: Path, key: float) -> Merged:
        rows = self.rows.schema.empty_table().append_column(DELETED, pa.array([], pa.bool_()))
        rows = pa.Table.from_pylist([{"id": key, "n": 99, DELETED: False}], rows.schema)
        columns = MergeColumns(self.rows.schema, ("id",), "n", ())
        return StateMerge(MergeTarget(self, columns, f"file://{folder}", {}), ChangeRows(rows)).run()


def test_key_nan_replaces_the_row_of_a_file_whose_bounds_lack_nan(tmp_path: Path) -> None:
    base = OneFile(pa.array([1.0, float("nan")]), (1.0, 1.0))
    assert base.merge(tmp_path, float("nan")).replaced == (base.file,)


def test_key_minus_zero_replaces_the_row_of_zero(tmp_path: Path) -> None:
    base = OneFile(pa.array([0.0, 3.0]), (-0.0, 3.0))
    merged = base.merge(tmp_path, -0.0)
    assert merged.replaced == (base.file,)
    assert sum(file.records for file in merged.files) == 2


def test_bounds_of_compacted_delta_files_include_keys_with_microseconds(tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake")
    shape = replace(TableShape.of("json", {"id": "timestamp"}), upsert=UpsertRules.of("id"))
    orders = StateTable(tmp_path, DELTA)
    last = datetime(2024, 1, 2, microsecond=123_456, tzinfo=UTC)
    for key in (datetime(2024, 1, 1, tzinfo=UTC), last):
        orders.commit(orders.begin(), 1, [{"id": key}], shape=shape)
    deltalake.DeltaTable(str(tmp_path / "default" / "orders")).optimize.compact()
    (file,) = orders.begin().data_files(["id"])
    assert "id" not in file.bounds or file.bounds["id"][1] >= last
