"""Tables in the embedded warehouse: one commit with data and offsets, refused when somebody else was faster."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pyarrow as pa
import pytest

from barnabas.model import Header
from barnabas.records import BatchBuilder
from barnabas.records.arrow import ArrowReader
from barnabas.spark.columns import to_record_batches
from barnabas.spark.day_files import DayFiles, create_file
from barnabas.spark.errors import HistoryExpiredError, LoadConflictError, WarehouseError
from barnabas.spark.json_fields import ColumnType
from barnabas.spark.ledger import Ledger, snapshot_properties
from barnabas.spark.planning import OffsetRange
from barnabas.spark.table_schema import KAFKA_COLUMNS, kafka_arrow_columns
from barnabas.spark.warehouse import TableBase, Warehouse, parse_table_name, table_name_of_topic

DAY_MS = 86_400_000
ID_HEADER: list[Header] = [("id", b"1")]


def add_records(base: TableBase, load_id: str, first: int, count: int) -> int:
    """Write `count` records a day apart and commit them as a load would."""
    folder = base.location().local_folder
    assert folder is not None
    (folder / "data" / load_id).mkdir(parents=True)
    builder = BatchBuilder()
    for number in range(count):
        builder.append(number * DAY_MS, b"key", b"value", ID_HEADER)
    files = DayFiles(f"{folder}/data/{load_id}/t-0", lambda path: create_file({}, path))
    reader = ArrowReader()
    reader.read(builder.build(), "t", 0)
    for batch in to_record_batches(reader.finish(), include_headers=True):
        files.add(pa.RecordBatch.from_arrays(kafka_arrow_columns(batch), names=list(KAFKA_COLUMNS)))
    loaded = [OffsetRange("t", 0, first, first + count)]
    ledger = base.ledger().advanced({"t": "topic-id"}, loaded)
    properties = snapshot_properties(load_id, ledger, loaded, count)
    return base.commit([file.path for file in files.finish()], properties, {}, "raw")


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    return Warehouse.open(tmp_path / "warehouse")


def test_the_first_commit_makes_the_table_partitioned_by_event_day(warehouse: Warehouse) -> None:
    base = warehouse.begin("t")
    assert not base.exists
    assert warehouse.find_table("t") is None
    add_records(base, "one", 0, 3)
    table = warehouse.table("t")
    assert table.scan().to_arrow().num_rows == 3
    assert sorted(row["partition"]["event_day"] for row in table.inspect.partitions().to_pylist()) == [
        date(1970, 1, day) for day in (1, 2, 3)
    ]
    assert table.scan(row_filter="timestamp < '1970-01-02T00:00:00+00:00'").to_arrow().num_rows == 1


def test_data_and_offsets_are_in_one_snapshot(warehouse: Warehouse) -> None:
    add_records(warehouse.begin("t"), "one", 0, 3)
    add_records(warehouse.begin("t"), "two", 3, 2)
    snapshots = warehouse.table("t").snapshots()
    assert len(snapshots) == 2
    assert snapshots[-1].summary is not None
    assert snapshots[-1].summary["barnabas.ranges"] == '{"t": {"0": [3, 5]}}'
    ledger = warehouse.begin("t").ledger()
    assert ledger.topics["t"].next_offsets == {0: 5}


def test_of_two_loads_at_once_the_second_to_commit_is_refused(warehouse: Warehouse) -> None:
    add_records(warehouse.begin("t"), "zero", 0, 1)
    first, second = warehouse.begin("t"), warehouse.begin("t")
    add_records(first, "one", 1, 2)
    with pytest.raises(LoadConflictError, match=r"another load \(one\) was committed"):
        add_records(second, "two", 1, 2)
    assert warehouse.table("t").scan().to_arrow().num_rows == 3


def test_of_two_first_loads_the_second_to_commit_is_refused(warehouse: Warehouse) -> None:
    first, second = warehouse.begin("t"), warehouse.begin("t")
    add_records(first, "one", 0, 2)
    with pytest.raises(LoadConflictError):
        add_records(second, "two", 0, 2)
    assert warehouse.table("t").scan().to_arrow().num_rows == 2


def test_a_table_whose_properties_would_retry_is_refused_all_the_same(warehouse: Warehouse) -> None:
    add_records(warehouse.begin("t"), "zero", 0, 1)
    with warehouse.table("t").transaction() as transaction:
        transaction.set_properties({"commit.retry.num-retries": "4"})
    first, second = warehouse.begin("t"), warehouse.begin("t")
    add_records(first, "one", 1, 2)
    with pytest.raises(LoadConflictError):
        add_records(second, "two", 1, 2)


def test_a_snapshot_of_somebody_else_leaves_the_ledger_to_those_before(warehouse: Warehouse) -> None:
    add_records(warehouse.begin("t"), "one", 0, 3)
    table = warehouse.table("t")
    table.delete("timestamp >= '1970-01-03T00:00:00+00:00'")
    ledger = warehouse.begin("t").ledger()
    assert ledger.topics["t"].next_offsets == {0: 3}


def test_an_expired_history_is_an_error_and_not_a_fresh_start(warehouse: Warehouse) -> None:
    add_records(warehouse.begin("t"), "one", 0, 3)
    table = warehouse.table("t")
    loaded = table.current_snapshot()
    assert loaded is not None
    table.delete("timestamp >= '1970-01-03T00:00:00+00:00'")
    table.maintenance.expire_snapshots().by_id(loaded.snapshot_id).commit()
    with pytest.raises(HistoryExpiredError, match="starting_offsets"):
        warehouse.begin("t").ledger()


def test_loads_are_known_by_their_snapshot_or_by_their_files(warehouse: Warehouse) -> None:
    add_records(warehouse.begin("t"), "one", 0, 3)
    table = warehouse.table("t")
    loaded = table.current_snapshot()
    assert loaded is not None
    assert warehouse.committed_loads("t", ["one", "other"]) == {"one"}
    table.delete("timestamp >= '1970-01-03T00:00:00+00:00'")
    table.maintenance.expire_snapshots().by_id(loaded.snapshot_id).commit()
    assert warehouse.committed_loads("t", ["one", "other"]) == {"one"}
    assert warehouse.committed_loads("none", ["one"]) == set()


def test_a_commit_without_files_still_moves_the_offsets(warehouse: Warehouse) -> None:
    base = warehouse.begin("t")
    loaded = [OffsetRange("t", 0, 0, 9)]
    base.commit([], snapshot_properties("one", Ledger().advanced({}, loaded), loaded, 0), {}, "raw")
    ledger = warehouse.begin("t").ledger()
    assert ledger.topics["t"].next_offsets == {0: 9}


def test_columns_of_json_fields_that_clash_have_a_prefix(warehouse: Warehouse) -> None:
    base = warehouse.begin("t")
    loaded = [OffsetRange("t", 0, 0, 1)]
    fields: dict[str, ColumnType] = {"origin": "string", "timestamp": "long", "event_day": "string"}
    base.commit([], snapshot_properties("one", Ledger().advanced({}, loaded), loaded, 0), fields, "json")
    base = warehouse.begin("t")
    assert base.fields == fields
    assert base.format == "json"
    assert "value_timestamp" in warehouse.table("t").schema().column_names


def test_a_table_that_is_not_for_topics_is_refused(warehouse: Warehouse, tmp_path: Path) -> None:
    add_records(warehouse.begin("t"), "one", 0, 1)
    with warehouse.table("t").update_schema(allow_incompatible_changes=True) as update:
        update.delete_column("headers")
    with pytest.raises(WarehouseError, match="lacks headers"):
        warehouse.begin("t")


def test_a_warehouse_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(WarehouseError, match="cannot open the warehouse"):
        Warehouse.open(tmp_path / "file")
    with pytest.raises(WarehouseError, match="either"):
        Warehouse.open()


def test_names_of_tables() -> None:
    assert parse_table_name("a.b") == ("a", "b")
    assert table_name_of_topic("access.log") == "access_log"
    with pytest.raises(WarehouseError, match="is no table"):
        parse_table_name("a.b.c")
