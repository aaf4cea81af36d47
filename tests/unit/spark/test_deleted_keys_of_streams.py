"""The deleted keys that `merge_into` remembers: streams beside each other, and tables that are created again.

Spark is replaced: a batch is a list of dicts. Tables, files and commits are real.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from barnabas.errors import ConfigurationError
from barnabas.spark import batch_merge
from barnabas.spark.batch_table import BatchFile
from barnabas.spark.change_files import DELETED
from barnabas.spark.data_files import create_file
from barnabas.spark.deleted_keys import BatchDeletedKeys
from barnabas.spark.table_place import DELTA, ICEBERG
from barnabas.spark.table_store import Location
from barnabas.spark.tables import scan_table
from barnabas.spark.warehouse import Warehouse

Row = dict[str, Any]
COLUMNS = pa.schema([("id", pa.int64()), ("name", pa.string()), ("lsn", pa.int64()), ("op", pa.string())])
TEXT_KEYS = COLUMNS.set(0, pa.field("id", pa.string()))
DELETES = "op = 'd'"


@dataclass
class Batch:
    """The part of a data frame that `merge_into` uses."""

    rows: list[Row]
    schema: pa.Schema

    @property
    def columns(self) -> list[str]:
        return list(self.schema.names)


def last_changes(
    batch: Batch, keys: Iterable[str], order_by: str, delete_when: str | None, columns: list[str]
) -> pa.Table:
    last: dict[tuple[Any, ...], Row] = {}
    for row in sorted(batch.rows, key=lambda row: row[order_by]):
        last[tuple(row[key] for key in keys)] = row
    deletes = [delete_when is not None and row["op"] == "d" for row in last.values()]
    rows = pa.Table.from_pylist(list(last.values()), batch.schema).select(columns)
    return rows.append_column(DELETED, pa.array(deletes, pa.bool_()))


def write_batch(changes: pa.Table, folder: str, location: Location, schema: pa.Schema) -> list[BatchFile]:
    path = f"{folder}/00000.parquet"
    with create_file(location.properties, path) as file:
        pq.write_table(changes.cast(schema), file)
        return [BatchFile(path, file.tell(), changes.num_rows)]


class Orders:
    """A table of orders in an empty warehouse."""

    def __init__(self, folder: Path, table_format: str) -> None:
        self.folder = folder
        self.format = table_format
        self._batches = 0

    def merge(self, *changes: Row, schema: pa.Schema = COLUMNS, table: str = "orders", **more: Any) -> bool:
        options: Any = {"delete_when": DELETES, "omit": ["op"], "query_id": "a", "order_by": "lsn", **more}
        self._batches += 1
        batch: Any = Batch(list(changes), schema)
        return batch_merge.merge_into(
            batch,
            self._batches,
            table=table,
            keys="id",
            warehouse=self.folder,
            table_format=self.format,
            **options,
        )

    def rows(self, table: str = "orders") -> list[Row]:
        found = [row for batch in scan_table(self.folder, table, table_format=self.format) for row in batch.to_pylist()]
        return sorted(found, key=str)

    def names(self) -> dict[Any, str]:
        return {row["id"]: row["name"] for row in self.rows()}

    def drop(self) -> None:
        if self.format == DELTA:
            shutil.rmtree(self.folder / "default" / "orders")
        else:
            Warehouse.open(self.folder).catalog.drop_table("default.orders")


@pytest.fixture(params=[ICEBERG, DELTA])
def orders(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Orders:
    monkeypatch.setattr(batch_merge, "_last_changes", last_changes)
    monkeypatch.setattr(batch_merge, "_checked", lambda changes, _columns: changes)
    monkeypatch.setattr(batch_merge, "write_batch", write_batch)
    monkeypatch.setattr(batch_merge, "arrow_schema_of", lambda schema: schema)
    return Orders(tmp_path / "warehouse", request.param)


def upsert(order_id: Any, lsn: int, name: str = "x") -> Row:
    return {"id": order_id, "name": name, "lsn": lsn, "op": "u"}


def delete(order_id: Any, lsn: int) -> Row:
    return {"id": order_id, "name": None, "lsn": lsn, "op": "d"}


def test_first_batch_that_only_deletes_is_remembered(orders: Orders) -> None:
    assert not orders.merge(delete(1, 10))
    assert orders.merge(upsert(1, 8), upsert(2, 1))
    assert orders.names() == {2: "x"}


def test_stream_that_deletes_nothing_respects_the_deletions_of_another(orders: Orders) -> None:
    orders.merge(upsert(1, 5), upsert(2, 5))
    orders.merge(delete(1, 10))
    before = orders.rows("orders__deleted")
    assert not orders.merge(upsert(1, 8, "late"), query_id="b", delete_when=None)
    assert orders.names() == {2: "x"}
    orders.merge(upsert(3, 1), query_id="b", delete_when=None, delete_memory=timedelta(microseconds=1))
    assert orders.rows("orders__deleted") == before, "only streams that delete forget deletions"
    assert orders.merge(upsert(1, 8, "late"), query_id="b", delete_memory=timedelta(0)), "0 respects no deletions"


def test_stream_that_deletes_nothing_needs_no_memory(orders: Orders) -> None:
    assert orders.merge(upsert(1, 5), delete_when=None)
    assert orders.merge(upsert(1, 6, "y"), delete_when=None)
    assert not list(orders.folder.rglob("orders__deleted"))
    orders.merge(upsert(2, 5))
    assert not list(orders.folder.rglob("orders__deleted")), "the first deletion creates the memory"


@pytest.mark.parametrize("first", [{"delete_when": None}, {"delete_memory": timedelta(0)}, {}])
def test_table_that_is_created_again_ignores_the_deletions_of_the_earlier_one(orders: Orders, first: Any) -> None:
    orders.merge(upsert(1, 5))
    orders.merge(delete(1, 100))
    orders.drop()
    orders.merge(upsert(2, 1), query_id="new", **first)
    assert orders.merge(upsert(1, 50, "new"), query_id="new")
    orders.merge(delete(2, 60), query_id="new")
    orders.merge(upsert(2, 55, "late"), query_id="new")
    assert orders.names() == {1: "new"}
    assert len({row["table_id"] for row in orders.rows("orders__deleted")}) == 2


def test_table_that_is_created_again_with_other_keys_is_refused(orders: Orders) -> None:
    orders.merge(upsert(1, 5))
    orders.merge(delete(1, 9))
    orders.drop()
    with pytest.raises(ConfigurationError, match=r"has int64 in the column id, .* need string.*drop it"):
        orders.merge(upsert("007", 5), schema=TEXT_KEYS)


def test_other_order_is_refused_with_the_columns_of_the_memory(orders: Orders) -> None:
    schema = COLUMNS.append(pa.field("ts", pa.int64()))
    orders.merge({**upsert(1, 5), "ts": 1}, schema=schema)
    orders.merge({**delete(1, 6), "ts": 2}, schema=schema)
    with pytest.raises(ConfigurationError, match=r"has the columns id, lsn, deleted_at, table_id, .* need id, ts, del"):
        orders.merge({**upsert(2, 5), "ts": 3}, schema=schema, order_by="ts")


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.timestamp("us", tz="UTC"), datetime(2026, 1, 1, tzinfo=UTC)),
        (pa.string(), "2026-01-01"),
        (pa.int64(), 7),
        (pa.date32(), date(2026, 1, 1)),
    ],
)
def test_table_of_a_user_with_the_name_of_the_memory_is_refused(orders: Orders, kind: Any, value: Any) -> None:
    schema = pa.schema([("id", pa.int64()), ("lsn", pa.int64()), ("deleted_at", kind), ("op", pa.string())])
    archive = [{"id": number, "lsn": number, "deleted_at": value, "op": "u"} for number in range(3)]
    orders.merge(*archive, schema=schema, table="orders__deleted", delete_when=None)
    before = orders.rows("orders__deleted")
    with pytest.raises(
        ConfigurationError, match=r"orders__deleted is not the memory of deleted keys of default\.orders"
    ):
        orders.merge(upsert(9, 1))
    assert orders.rows("orders__deleted") == before
    assert orders.merge(upsert(9, 1), delete_memory=timedelta(0))


def test_stream_that_loses_the_creation_keeps_the_deletions_of_the_other(
    orders: Orders, monkeypatch: pytest.MonkeyPatch
) -> None:
    def after_another(*arguments: Any) -> BatchDeletedKeys:
        monkeypatch.setattr(batch_merge, "BatchDeletedKeys", BatchDeletedKeys)
        orders.merge(upsert(1, 5), upsert(2, 5), query_id="b")
        orders.merge(delete(1, 10), query_id="b")
        return BatchDeletedKeys(*arguments)

    monkeypatch.setattr(batch_merge, "BatchDeletedKeys", after_another)
    assert orders.merge(upsert(3, 1))
    assert not orders.merge(upsert(1, 8, "late"))
    assert orders.names() == {2: "x", 3: "x"}


def test_deletions_can_be_remembered_for_ever(orders: Orders) -> None:
    orders.merge(upsert(1, 5), delete_memory=timedelta.max)
    orders.merge(delete(1, 10), delete_memory=timedelta.max)
    assert not orders.merge(upsert(1, 8), delete_memory=timedelta.max)


def test_deletions_are_forgotten_after_the_delete_memory(orders: Orders) -> None:
    memory: Any = {"delete_memory": timedelta(microseconds=1)}
    orders.merge(delete(1, 5), **memory)
    assert not orders.merge(upsert(1, 3, "old"), **memory)
    orders.merge(delete(2, 5), **memory)
    assert orders.merge(upsert(1, 3, "old"), **memory)
    assert orders.names() == {1: "old"}
    assert not orders.rows("orders__deleted")
