"""`merge_into`: a table that streams of changes are merged into equals a dict, whatever was killed at which step."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.errors import ConfigurationError
from barnabas.spark import LoadError, open_table, scan_table
from barnabas.spark.batch_table import BatchTable
from barnabas.spark.delta_batch_table import DeltaBatchTable
from barnabas.spark.iceberg_batch_table import IcebergBatchTable
from barnabas.spark.load_folder import LoadFolder
from barnabas.spark.streams import merge_into
from barnabas.spark.table_place import DELTA, ICEBERG

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.timeout(900)
RUNS = int(os.environ.get("CHANGES_RUNS", "0"))
BATCHES = max(2, RUNS // 5)
TABLE = "orders"
Row = dict[str, Any]
KINDS: dict[str, type[BatchTable]] = {ICEBERG: IcebergBatchTable, DELTA: DeltaBatchTable}


class Orders:
    """A table of orders, and the rows that it must have."""

    def __init__(self, spark: SparkSession, folder: Path, table_format: str) -> None:
        self.folder = folder
        self.format = table_format
        self.rows: dict[int, Row] = {}
        self._spark = spark
        self._newest: dict[int, int] = {}

    def frame(self, changes: list[Row], columns: str = "id long, name string, lsn long, op string") -> DataFrame:
        return self._spark.createDataFrame([tuple(row.values()) for row in changes], columns)

    def merge(self, frame: DataFrame, batch_id: int, **more: Any) -> bool:
        options: Any = {"delete_when": "op = 'd'", "omit": ["op"], "query_id": "a", **more}
        return merge_into(
            frame,
            batch_id,
            table=TABLE,
            warehouse=self.folder,
            table_format=self.format,
            keys="id",
            order_by="lsn",
            **options,
        )

    def expect(self, changes: list[Row]) -> None:
        """Apply changes to the rows; older ones have no effect."""
        for change in changes:
            if change["lsn"] >= self._newest.get(change["id"], 0):
                self._newest[change["id"]] = change["lsn"]
                self.rows.pop(change["id"], None)
                if change["op"] != "d":
                    self.rows[change["id"]] = {name: value for name, value in change.items() if name != "op"}

    def loaded(self) -> dict[int, Row]:
        found = [row for batch in scan_table(self.folder, TABLE, table_format=self.format) for row in batch.to_pylist()]
        assert len({row["id"] for row in found}) == len(found)
        return {row["id"]: {name: value for name, value in row.items() if value is not None} for row in found}

    def data_files(self) -> set[str]:
        return {path.name for path in self.folder.rglob("*.parquet") if "_delta_log" not in path.parts}


@pytest.fixture(params=[ICEBERG, DELTA])
def orders(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Orders:
    return Orders(spark, tmp_path / "warehouse", request.param)


def drawn(draw: random.Random, start: int, count: int, *, deletes: bool = True) -> list[Row]:
    """Return changes of few orders, in random order of their numbers."""
    changes = [
        {
            "id": draw.randrange(30),
            "name": f"n{draw.randrange(1_000)}",
            "lsn": start + number,
            "op": "d" if deletes and draw.random() < 0.25 else "u",
        }
        for number in range(count)
    ]
    draw.shuffle(changes)
    return changes


def test_batches_of_changes_give_the_rows_of_a_dict(orders: Orders) -> None:
    draw = random.Random(f"merge {orders.format}")
    for batch_id in range(BATCHES):
        changes = drawn(draw, batch_id * 100, 40)
        orders.expect(changes)
        assert orders.merge(orders.frame(changes), batch_id)
        assert not orders.merge(orders.frame(changes), batch_id), "a batch is merged once"
        assert orders.loaded() == orders.rows
    late = drawn(draw, 1, 30, deletes=False)
    orders.expect(late)
    orders.merge(orders.frame(late), BATCHES)
    assert orders.loaded() == orders.rows, "neither newer rows nor deletions give way to older changes"
    grown = [{"id": 1, "name": "grown", "lsn": BATCHES * 100, "op": "u", "city": "Bonn"}]
    orders.expect(grown)
    assert orders.merge(orders.frame(grown, "id long, name string, lsn long, op string, city string"), BATCHES + 1)
    assert orders.loaded() == orders.rows
    everything = [{"id": order_id, "name": None, "lsn": BATCHES * 200, "op": "d"} for order_id in orders.rows]
    assert orders.merge(orders.frame(everything), BATCHES + 2)
    assert orders.loaded() == {}
    assert not orders.merge(orders.frame(late), BATCHES + 3)
    assert orders.loaded() == {}


KILLS = {
    "before the deletions are remembered": ("append", 0, False),
    "between the commits": ("append", 1, False),
    "before the locks are released": ("release", 1, True),
}
"""The method that kills, the number of its earlier calls, and whether the batch is in the table then."""
KILLS_IN_CI = {(DELTA, "between the commits"), (ICEBERG, "before the locks are released")}


@pytest.mark.parametrize("place", KILLS)
def test_a_killed_batch_is_merged_once(orders: Orders, place: str) -> None:
    if not RUNS and (orders.format, place) not in KILLS_IN_CI:
        pytest.skip("`make suites SUITE=changes` runs the other combinations")
    first = drawn(random.Random(1), 0, 30)
    orders.expect(first)
    orders.merge(orders.frame(first), 0)
    second = drawn(random.Random(2), 100, 30)
    name, calls, is_there = KILLS[place]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(LoadFolder, "discard", _leave)
        owner = LoadFolder if name == "release" else KINDS[orders.format]
        patched.setattr(owner, name, _dying(getattr(owner, name), calls))
        with pytest.raises(SystemExit):
            orders.merge(orders.frame(second), 1)
    if is_there:
        orders.expect(second)
    assert orders.loaded() == orders.rows
    assert orders.merge(orders.frame(second), 1) is not is_there
    if not is_there:
        orders.expect(second)
    late = drawn(random.Random(3), 50, 30, deletes=False)
    orders.expect(late)
    orders.merge(orders.frame(late), 2)
    assert orders.loaded() == orders.rows
    assert not list(orders.folder.rglob("*.lock"))


def _skip_without_the_suite(orders: Orders, table_format: str) -> None:
    if not RUNS and orders.format == table_format:
        pytest.skip(f"`make suites SUITE=changes` runs this with {table_format}")


def _dying(method: Callable[..., Any], calls: int) -> Callable[..., Any]:
    """Return a method that ends the process at the call after so many calls."""
    done: list[None] = []

    def call(*arguments: Any, **options: Any) -> Any:
        if len(done) == calls:
            raise SystemExit
        done.append(None)
        return method(*arguments, **options)

    return call


def _leave(folder: LoadFolder) -> None:
    folder.lock.close()


def test_a_conflict_merges_again_into_the_new_version(orders: Orders, monkeypatch: pytest.MonkeyPatch) -> None:
    _skip_without_the_suite(orders, ICEBERG)
    first, other = [{"id": 1, "name": "a", "lsn": 1, "op": "u"}], [{"id": 1, "name": "other", "lsn": 5, "op": "u"}]
    orders.merge(orders.frame(first), 0)
    kind = KINDS[orders.format]
    append = kind.append

    def append_after_another(*arguments: Any, **options: Any) -> int:
        monkeypatch.undo()
        assert orders.merge(orders.frame(other), 0, query_id="b")
        return append(*arguments, **options)

    monkeypatch.setattr(kind, "append", append_after_another)
    mine = [{"id": 1, "name": "mine", "lsn": 3, "op": "u"}, {"id": 2, "name": "mine", "lsn": 3, "op": "u"}]
    assert orders.merge(orders.frame(mine), 1)
    assert orders.loaded() == {
        1: {"id": 1, "name": "other", "lsn": 5},
        2: {"id": 2, "name": "mine", "lsn": 3},
    }
    files = open_table(orders.folder, TABLE, table_format=orders.format)
    assert files is not None
    assert not list(orders.folder.rglob("*.lock"))


def test_offsets_may_order_changes(orders: Orders) -> None:
    _skip_without_the_suite(orders, DELTA)
    for batch_id, offsets in enumerate(((0, 2), (1, 3))):
        frame = orders.frame([{"id": 1, "offset": offset} for offset in offsets], "id long, offset long")
        options: Any = {"keys": "id", "order_by": "offset", "query_id": "a", "table_format": orders.format}
        assert merge_into(frame, batch_id, table=TABLE, warehouse=orders.folder, **options)
    assert orders.loaded() == {1: {"id": 1, "offset": 3}}


def test_wrong_arguments_and_rows_are_refused(orders: Orders) -> None:
    _skip_without_the_suite(orders, DELTA)
    good = orders.frame([{"id": 1, "name": "a", "lsn": 1, "op": "u"}])
    for wrong, match in (
        ({"keys": "no"}, "keys: the batch has no column 'no'"),
        ({"keys": []}, "is not a list of different columns"),
        ({"omit": ["lsn"]}, "omit: the table needs the column 'lsn'"),
    ):
        arguments: Any = {"keys": "id", "order_by": "lsn", "query_id": "a", **wrong}
        with pytest.raises(ConfigurationError, match=match):
            merge_into(good, 0, table=TABLE, warehouse=orders.folder, table_format=orders.format, **arguments)
    for row in ({"id": None, "name": "a", "lsn": 1, "op": "u"}, {"id": 1, "name": "a", "lsn": None, "op": "u"}):
        with pytest.raises(LoadError, match="a row has no value in id or lsn"):
            orders.merge(orders.frame([row]), 0)
    with pytest.raises(ConfigurationError, match=r"delete_when: .*nowhere"):
        orders.merge(good, 0, delete_when="nowhere = 1")
    assert not orders.data_files()
