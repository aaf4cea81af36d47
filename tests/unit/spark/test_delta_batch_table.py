"""Delta tables that take the batches of streams: their columns, as the batches change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from barnabas.spark.batch_table import BatchFile
from barnabas.spark.errors import LoadConflictError, WarehouseError
from barnabas.spark.projection import project
from barnabas.spark.table_formats import open_place
from barnabas.spark.table_place import TablePlace
from barnabas.spark.tables import scan_table

DeltaBatchTable = pytest.importorskip("barnabas.spark.delta_batch_table", reason="deltalake").DeltaBatchTable
COLUMNS = pa.schema([("number", pa.int64())])


class Lake:
    """A folder of Delta tables, with one that streams go into."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store: Any = open_place(TablePlace.of(folder, table_format="delta"))
        self.files = 0

    def table(self, columns: pa.Schema = COLUMNS) -> Any:
        return DeltaBatchTable(self.store, "clicks", columns)

    def append(self, batch: int, rows: list[dict[str, Any]], base: Any = None) -> None:
        base = base or self.table()
        self.files += 1
        path = self.folder / "default" / "clicks" / f"{self.files}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        made = project(pa.Table.from_pylist(rows, base.columns).to_batches()[0], base.arrow_schema())
        pq.write_table(pa.Table.from_batches([made]), path)
        file = BatchFile(f"file://{path}", path.stat().st_size, len(rows))
        base.append([file], f"load-{self.files}", "query", batch)

    def rows(self) -> list[dict[str, Any]]:
        found = [row for part in scan_table(self.folder, "clicks", table_format="delta") for row in part.to_pylist()]
        return sorted(found, key=lambda row: row["number"])


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


def test_columns_that_appear_later_are_added_before_their_rows(lake: Lake) -> None:
    lake.append(0, [{"number": 1}])
    more = pa.schema([("page", pa.string()), ("number", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
    lake.append(1, [{"number": 2, "page": "/"}], lake.table(more))
    lake.append(2, [{"number": 3}])
    assert [(row["number"], row["page"], row["at"]) for row in lake.rows()] == [
        (1, None, None),
        (2, "/", None),
        (3, None, None),
    ]
    assert lake.table().has_batch("query", 2)
    assert [field.name for field in lake.table().table.schema().fields] == ["number", "page", "at"]


def test_structs_get_fields_and_other_types_stay(lake: Lake) -> None:
    first = pa.schema([("number", pa.int32()), ("in", pa.struct([("a", pa.int32())])), ("l", pa.list_(pa.int32()))])
    lake.append(0, [{"number": 1, "in": {"a": 1}, "l": [1]}], lake.table(first))
    wider = pa.schema(
        [
            ("number", pa.int64()),
            ("in", pa.struct([("b", pa.struct([("c", pa.string())])), ("a", pa.int32())])),
            ("l", pa.list_(pa.int64())),
        ]
    )
    base = lake.table(wider)
    assert base.arrow_schema().field("number").type == pa.int32()
    lake.append(1, [{"number": 2, "in": {"a": 2, "b": {"c": "x"}}, "l": [2, 3]}], base)
    lake.append(2, [{"number": 3, "in": {"a": 3}, "l": None}], lake.table(first))
    assert lake.rows() == [
        {"number": 1, "in": {"a": 1, "b": None}, "l": [1]},
        {"number": 2, "in": {"a": 2, "b": {"c": "x"}}, "l": [2, 3]},
        {"number": 3, "in": {"a": 3, "b": None}, "l": None},
    ]


def test_a_field_that_a_map_cannot_get_is_refused_and_not_lost(lake: Lake) -> None:
    first = pa.schema([("number", pa.int64()), ("m", pa.map_(pa.string(), pa.struct([("a", pa.int64())])))])
    lake.append(0, [{"number": 1, "m": [("k", {"a": 1})]}], lake.table(first))
    more = pa.schema([("m", pa.map_(pa.string(), pa.struct([("a", pa.int64()), ("b", pa.string())])))])
    with pytest.raises(
        WarehouseError, match=r"cannot store the field m\.value\.b, because the column m has another type"
    ):
        lake.table(more).arrow_schema()


def test_a_column_that_differs_by_case_alone_is_refused(lake: Lake) -> None:
    lake.append(0, [{"number": 1}])
    with pytest.raises(
        WarehouseError, match="has the column number, which SQL cannot distinguish from NUMBER: select it"
    ):
        lake.table(pa.schema([("NUMBER", pa.int64())])).arrow_schema()


def test_an_append_that_brings_columns_is_refused_where_somebody_else_was_faster(lake: Lake) -> None:
    lake.append(0, [{"number": 1}])
    late = lake.table(pa.schema([("number", pa.int64()), ("page", pa.string())]))
    lake.append(1, [{"number": 2}])
    with pytest.raises(LoadConflictError):
        lake.append(1, [{"number": 2, "page": "/"}], late)
    assert [row["number"] for row in lake.rows()] == [1, 2]
    assert late.name == "default.clicks"


def test_types_that_delta_lacks_are_refused_in_one_line(lake: Lake) -> None:
    took = pa.schema([("took", pa.duration("us"))])
    for _ in range(2):
        with pytest.raises(WarehouseError, match="Delta has no such column: ") as refused:
            lake.table(took).arrow_schema()
        assert "\n" not in str(refused.value)
        lake.append(0, [{"number": 1}])
