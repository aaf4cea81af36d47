"""Which batches of which streams a table has: in its snapshots, after they have expired, after a rollback."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, NestedField

from barnabas.spark.batch_table import BatchFile
from barnabas.spark.errors import LoadConflictError, WarehouseError
from barnabas.spark.iceberg_batch_table import BATCHES, EPOCH_ID, QUERIES_KEPT_MAX, QUERY_ID, IcebergBatchTable
from barnabas.spark.projection import project
from barnabas.spark.tables import scan_table
from barnabas.spark.warehouse import Warehouse

COLUMNS = pa.schema([pa.field("number", pa.int64()), pa.field("at", pa.timestamp("us", tz="UTC"))])
TABLE = "clicks"


class Lake:
    """A warehouse in a folder, and files for its table."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.warehouse = Warehouse.open(folder / "warehouse")
        self.files = 0

    def table(self, columns: pa.Schema = COLUMNS) -> IcebergBatchTable:
        return IcebergBatchTable(self.warehouse, TABLE, columns)

    def file(self, rows: int = 2, columns: pa.Schema = COLUMNS) -> BatchFile:
        self.files += 1
        path = self.folder / f"{self.files}.parquet"
        pq.write_table(pa.Table.from_pylist([{"number": number} for number in range(rows)], schema=columns), path)
        return BatchFile(str(path), path.stat().st_size, rows)

    def write_and_append(self, query: str, batch: int, rows: list[dict[str, Any]], base: IcebergBatchTable) -> int:
        """Append rows as the batches of a stream have them."""
        self.files += 1
        path = self.folder / f"{self.files}.parquet"
        made = project(pa.Table.from_pylist(rows, base.columns).to_batches()[0], base.arrow_schema())
        pq.write_table(pa.Table.from_batches([made]), path)
        return base.append([BatchFile(str(path), path.stat().st_size, len(rows))], f"load-{self.files}", query, batch)

    def append(self, query: str, batch: int, base: IcebergBatchTable | None = None) -> int:
        return (base or self.table()).append([self.file()], f"load-{self.files}", query, batch)

    def has(self, query: str) -> list[int]:
        """Return which of the first batches of a query are there."""
        table = self.table()
        return [batch for batch in range(6) if table.has_batch(query, batch)]


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


def test_a_batch_is_there_when_it_or_a_later_one_of_its_query_was_added(lake: Lake) -> None:
    assert lake.has("a") == []
    lake.append("a", 0)
    lake.append("a", 2)
    lake.append("b", 0)
    assert (lake.has("a"), lake.has("b"), lake.has("c")) == ([0, 1, 2], [0], [])
    table = lake.warehouse.table(TABLE)
    assert table.scan().to_arrow().num_rows == 6
    summary = table.snapshots()[1].summary
    assert summary is not None
    assert (summary[QUERY_ID], summary[EPOCH_ID]) == ("a", "2")


def test_expired_snapshots_leave_the_last_batch_of_each_query_in_the_properties(lake: Lake) -> None:
    for query, batch in (("a", 0), ("a", 1), ("b", 4)):
        lake.append(query, batch)
    table = lake.warehouse.table(TABLE)
    expire = table.maintenance.expire_snapshots()
    expire.by_ids([snapshot.snapshot_id for snapshot in table.snapshots()[:-1]]).commit()
    assert (lake.has("a"), lake.has("b")) == ([0, 1], [0, 1, 2, 3, 4])


def test_a_batch_that_was_rolled_back_is_not_there(lake: Lake) -> None:
    first = lake.append("a", 0)
    lake.append("b", 3)
    lake.append("a", 1)
    lake.warehouse.table(TABLE).manage_snapshots().rollback_to_snapshot(first).commit()
    assert (lake.has("a"), lake.has("b")) == ([0], [])


def test_two_that_append_at_once_do_not_both_succeed(lake: Lake) -> None:
    lake.append("a", 0)
    one, other = lake.table(), lake.table()
    lake.append("a", 1, one)
    with pytest.raises(LoadConflictError):
        lake.append("a", 1, other)
    assert lake.warehouse.table(TABLE).scan().to_arrow().num_rows == 4


def test_a_table_of_somebody_else_is_taken_and_then_refuses_conflicts_too(lake: Lake) -> None:
    lake.warehouse.catalog.create_namespace_if_not_exists("default")
    lake.warehouse.catalog.create_table(("default", TABLE), COLUMNS)
    one, other = lake.table(), lake.table()
    lake.append("a", 0, one)
    with pytest.raises(LoadConflictError):
        lake.append("b", 0, other)


def test_a_table_that_somebody_else_partitioned_is_refused(lake: Lake) -> None:
    lake.warehouse.catalog.create_namespace_if_not_exists("default")
    made = lake.warehouse.catalog.create_table(("default", TABLE), COLUMNS)
    with made.update_spec() as update:
        update.add_identity("number")
    with pytest.raises(WarehouseError, match="is partitioned; streams need an unpartitioned table"):
        lake.table()
    with made.update_spec() as update:
        update.remove_field("number")
    lake.append("a", 0)


def test_types_that_iceberg_lacks_are_refused_in_one_line(lake: Lake) -> None:
    took = pa.schema([pa.field("took", pa.duration("us"))])
    with pytest.raises(WarehouseError, match="Iceberg has no such column: "):
        IcebergBatchTable(lake.warehouse, "other", took).arrow_schema()
    lake.append("a", 0)
    with pytest.raises(WarehouseError, match="Iceberg has no such column: "):
        lake.table(took).arrow_schema()


def rows(lake: Lake) -> list[dict[str, Any]]:
    found = [row for batch in scan_table(lake.folder / "warehouse", TABLE) for row in batch.to_pylist()]
    return sorted(found, key=lambda row: (row["number"], repr(row)))


def test_columns_that_appear_later_come_with_their_rows(lake: Lake) -> None:
    lake.append("a", 0)
    more = pa.schema([pa.field("page", pa.string()), *COLUMNS])
    base = lake.table(more)
    assert base.arrow_schema().names == ["page", "number", "at"]
    lake.write_and_append("a", 1, [{"number": 7, "page": "/"}], base)
    assert lake.warehouse.table(TABLE).schema().column_names == ["number", "at", "page"]
    assert [(row["number"], row["page"]) for row in rows(lake)] == [(0, None), (1, None), (7, "/")]
    lake.append("a", 2)
    assert len(rows(lake)) == 5
    assert len(lake.warehouse.table(TABLE).snapshots()) == 3


def test_types_widen_and_structs_get_fields_and_all_other_types_stay(lake: Lake) -> None:
    first = pa.schema([("number", pa.int32()), ("in", pa.struct([("a", pa.int32())])), ("name", pa.string())])
    lake.write_and_append("a", 0, [{"number": 1, "in": {"a": 1}, "name": "x"}], lake.table(first))
    wider = pa.schema(
        [("number", pa.int64()), ("in", pa.struct([("b", pa.string()), ("a", pa.int32())])), ("name", pa.int64())]
    )
    base = lake.table(wider)
    types = base.arrow_schema()
    assert types.field("number").type == pa.int64()
    assert {each.name for each in types.field("in").type} == {"a", "b"}
    assert "string" in str(types.field("name").type)
    lake.write_and_append("a", 1, [{"number": 5_000_000_000, "in": {"a": 2, "b": "y"}, "name": 3}], base)
    lake.write_and_append("a", 2, [{"number": 9, "in": {"a": 3}, "name": "z"}], lake.table(first))
    assert rows(lake) == [
        {"number": 1, "in": {"a": 1, "b": None}, "name": "x"},
        {"number": 9, "in": {"a": 3, "b": None}, "name": "z"},
        {"number": 5_000_000_000, "in": {"a": 2, "b": "y"}, "name": "3"},
    ]


def test_a_field_that_a_struct_cannot_get_is_refused_and_not_lost(lake: Lake) -> None:
    first = pa.schema([("number", pa.int64()), ("in", pa.struct([("a", pa.int64())]))])
    lake.write_and_append("a", 0, [{"number": 1, "in": {"a": 1}}], lake.table(first))
    changed = pa.schema([("in", pa.struct([("a", pa.string()), ("b", pa.string())]))])
    with pytest.raises(WarehouseError, match=r"cannot store the field in\.b, because the column in has another type"):
        lake.table(changed).arrow_schema()


def test_a_column_that_differs_by_case_alone_is_refused(lake: Lake) -> None:
    lake.append("a", 0)
    with pytest.raises(
        WarehouseError, match="has the column number, which SQL cannot distinguish from Number: select it"
    ):
        lake.table(pa.schema([("Number", pa.int64())])).arrow_schema()


def test_a_column_that_must_not_be_null_stays_so(lake: Lake) -> None:
    lake.warehouse.catalog.create_namespace_if_not_exists("default")
    strict = Schema(NestedField(1, "number", IntegerType(), required=True))
    lake.warehouse.catalog.create_table(("default", TABLE), strict)
    base = lake.table(pa.schema([("number", pa.int64()), ("page", pa.string())]))
    lake.write_and_append("a", 0, [{"number": 1, "page": "/"}], base)
    table = lake.warehouse.table(TABLE)
    assert table.schema().find_field("number").required
    assert table.schema().column_names == ["number", "page"]


def test_of_two_streams_that_bring_columns_at_once_the_second_tries_again_with_those_of_the_first(lake: Lake) -> None:
    lake.append("a", 0)
    one, other = (lake.table(COLUMNS.append(pa.field(name, pa.string()))) for name in ("page", "host"))
    lake.write_and_append("a", 1, [{"number": 2, "page": "/"}], one)
    with pytest.raises(LoadConflictError):
        lake.write_and_append("b", 0, [{"number": 3, "host": "x"}], other)
    lake.write_and_append("b", 0, [{"number": 3, "host": "x"}], lake.table(other.columns))
    assert lake.warehouse.table(TABLE).schema().column_names == ["number", "at", "page", "host"]
    assert [row["number"] for row in rows(lake)] == [0, 1, 2, 3]


def test_some_of_the_columns_are_enough_and_small_numbers_become_ints(lake: Lake) -> None:
    lake.append("a", 0)
    assert lake.table(pa.schema([COLUMNS.field("at")])).arrow_schema().names == ["at"]
    small = pa.schema([pa.field("n", pa.int16())])
    assert IcebergBatchTable(lake.warehouse, "other", small).arrow_schema().field("n").type == pa.int32()


def test_a_new_table_is_where_its_first_files_are_whatever_the_catalog_would_choose(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = (f"file://{lake.folder}/chosen-{number}" for number in count())
    monkeypatch.setattr(
        type(lake.warehouse.catalog), "_resolve_table_location", lambda _self, given, *_name: given or next(chosen)
    )
    base = lake.table()
    written_to = base.location().uri
    base.arrow_schema()
    lake.append("a", 0, base)
    assert lake.warehouse.table(TABLE).location() == written_to


def test_the_properties_keep_a_bounded_number_of_queries(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    assert QUERIES_KEPT_MAX >= 100
    monkeypatch.setattr("barnabas.spark.iceberg_batch_table.QUERIES_KEPT_MAX", 2)
    for query in ("a", "b", "c"):
        lake.append(query, 0)
    kept = lake.warehouse.table(TABLE).properties[BATCHES]
    assert '"a"' not in kept
    assert '"b"' in kept
    assert '"c"' in kept
