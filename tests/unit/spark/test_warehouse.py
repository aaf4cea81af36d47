"""Tables in the embedded warehouse: one commit with data and offsets, refused when somebody else was faster."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.exceptions import CommitFailedException
from requests import ReadTimeout

from barnabas.errors import ConfigurationError
from barnabas.formats.column_names import column_names, sql_key
from barnabas.formats.column_types import ColumnType
from barnabas.model import Header
from barnabas.records import BatchBuilder
from barnabas.records.arrow import ArrowReader
from barnabas.spark.columns import to_record_batches
from barnabas.spark.data_files import PartitionedFiles, create_file
from barnabas.spark.errors import CommitUnknownError, HistoryExpiredError, LoadConflictError, WarehouseError
from barnabas.spark.ledger import Ledger, snapshot_properties
from barnabas.spark.offset_ranges import OffsetRange
from barnabas.spark.table_layout import TableLayout
from barnabas.spark.table_names import parse_table_name, table_name_of_topic, tables_of_topics
from barnabas.spark.table_place import TablePlace
from barnabas.spark.table_schema import KAFKA_COLUMNS, kafka_arrow_columns
from barnabas.spark.table_shape import TableShape
from barnabas.spark.warehouse import TableBase, Warehouse

DAY_MS = 86_400_000
ID_HEADER: list[Header] = [("id", b"1")]


def add_records(
    base: TableBase, load_id: str, first: int, count: int, timestamps_ms: Sequence[int] | None = None
) -> int:
    """Write `count` records a day apart (or with the timestamps given) and commit them as a load would."""
    folder = base.location().local_folder
    assert folder is not None
    (folder / "data" / load_id).mkdir(parents=True)
    builder = BatchBuilder()
    for number in range(count):
        builder.append(timestamps_ms[number] if timestamps_ms else number * DAY_MS, b"key", b"value", ID_HEADER)
    files = PartitionedFiles(
        f"{folder}/data/{load_id}/t-0", lambda path: create_file({}, path), TableLayout.by_day("timestamp")
    )
    reader = ArrowReader()
    reader.read(builder.build(), "t", 0)
    for batch in to_record_batches(reader.finish(), include_headers=True, include_raw_timestamp=True):
        files.add(pa.RecordBatch.from_arrays(kafka_arrow_columns(batch), names=list(KAFKA_COLUMNS)))
    loaded = [OffsetRange("t", 0, first, first + count)]
    ledger = base.ledger().advanced({"t": "topic-id"}, loaded)
    properties = snapshot_properties(load_id, ledger, loaded, count)
    return base.commit(files.finish(), properties, TableShape())


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
    assert snapshots[-1].summary["barnabas.added"] == '{"t":[2]}'
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


def test_a_commit_that_was_done_and_refused_the_second_time_is_found(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = warehouse.catalog.commit_table

    def commit_twice(*arguments: Any) -> Any:
        commit(*arguments)
        raise CommitFailedException("the table has changed")

    monkeypatch.setattr(warehouse.catalog, "commit_table", commit_twice)
    snapshot_id = add_records(warehouse.begin("t"), "one", 0, 2)
    current = warehouse.table("t").current_snapshot()
    assert current is not None
    assert current.snapshot_id == snapshot_id
    assert warehouse.table("t").scan().to_arrow().num_rows == 2


def test_of_a_commit_without_an_answer_nobody_knows_whether_it_will_be_done(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    def commit(*_arguments: Any) -> Any:
        raise ReadTimeout("no answer")

    monkeypatch.setattr(warehouse.catalog, "commit_table", commit)
    with pytest.raises(CommitUnknownError, match="no answer"):
        add_records(warehouse.begin("t"), "one", 0, 2)


def test_a_snapshot_of_somebody_else_leaves_the_ledger_to_those_before(warehouse: Warehouse) -> None:
    add_records(warehouse.begin("t"), "one", 0, 3)
    table = warehouse.table("t")
    table.delete("timestamp >= '1970-01-03T00:00:00+00:00'")
    ledger = warehouse.begin("t").ledger()
    assert ledger.topics["t"].next_offsets == {0: 3}


def expire_all_but_the_current(warehouse: Warehouse) -> None:
    """Do what the table's owner does every night."""
    table = warehouse.table("t")
    current = table.current_snapshot()
    for snapshot in table.snapshots():
        if snapshot != current:
            table.maintenance.expire_snapshots().by_id(snapshot.snapshot_id).commit()


def test_compaction_and_expiry_by_others_leave_the_ledger(warehouse: Warehouse) -> None:
    add_records(warehouse.begin("t"), "one", 0, 3)
    warehouse.table("t").delete("timestamp >= '1970-01-03T00:00:00+00:00'")
    expire_all_but_the_current(warehouse)
    assert warehouse.begin("t").ledger().topics["t"].next_offsets == {0: 3}
    add_records(warehouse.begin("t"), "two", 3, 2)
    expire_all_but_the_current(warehouse)
    assert warehouse.begin("t").ledger().topics["t"].next_offsets == {0: 5}


def test_an_expired_history_is_an_error_that_says_where_the_rows_go_on(warehouse: Warehouse) -> None:
    add_records(warehouse.begin("t"), "one", 0, 3)
    warehouse.table("t").delete("timestamp < '1970-01-02T00:00:00+00:00'")
    expire_all_but_the_current(warehouse)
    with warehouse.table("t").transaction() as transaction:
        transaction.remove_properties("barnabas.ledger")
    with pytest.raises(HistoryExpiredError, match=r'rows end before {"t": {"0": 3}}.*--starting-offsets'):
        warehouse.begin("t").ledger()
    assert warehouse.begin("t").next_offsets_of_rows() == {("t", 0): 3}


def test_a_ledger_that_is_ahead_of_a_table_rolled_back_is_not_believed(warehouse: Warehouse) -> None:
    add_records(warehouse.begin("t"), "one", 0, 3)
    warehouse.table("t").delete("timestamp < '1970-01-02T00:00:00+00:00'")
    before = warehouse.table("t").current_snapshot()
    assert before is not None
    add_records(warehouse.begin("t"), "two", 3, 2)
    warehouse.table("t").manage_snapshots().rollback_to_snapshot(before.snapshot_id).commit()
    expire_all_but_the_current(warehouse)
    with pytest.raises(HistoryExpiredError, match=r'{"t": {"0": 3}}'):
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
    base.commit([], snapshot_properties("one", Ledger().advanced({}, loaded), loaded, 0), TableShape())
    ledger = warehouse.begin("t").ledger()
    assert ledger.topics["t"].next_offsets == {0: 9}


def commit_fields(warehouse: Warehouse, *names: str) -> dict[str, str]:
    """Make a table with string columns for JSON fields, and return them as the next load finds them."""
    loaded = [OffsetRange("t", 0, 0, 1)]
    fields: dict[str, ColumnType] = dict.fromkeys(names, "string")
    ledger = Ledger().advanced({}, loaded)
    warehouse.begin("t").commit([], snapshot_properties("one", ledger, loaded, 0), TableShape.of("json", fields))
    shape = warehouse.begin("t").shape()
    assert shape is not None
    assert (shape.fields, shape.value_format) == (fields, "json")
    return dict(shape.columns)


def test_columns_of_json_fields_that_clash_have_a_prefix(warehouse: Warehouse) -> None:
    columns = commit_fields(warehouse, "origin", "timestamp", "event_day")
    assert columns == {"origin": "origin", "timestamp": "value_timestamp", "event_day": "value_event_day"}
    assert [name for name in warehouse.table("t").schema().column_names if name in columns.values()] == [
        "origin",
        "value_timestamp",
        "value_event_day",
    ]


@pytest.mark.parametrize(
    "names",
    [
        ["userId", "userid", "USERID"],
        ["timestamp", "value_timestamp", "Value_Timestamp", "value_timestamp_2"],
        ["headers.key", "headers", "a.b", "a_b", "value_a_b", "", "`", "a b", "\n"],
        ["value", "key", "Offset", "value_form", "raw_timestamp_ms"],
    ],
)
def test_no_two_columns_have_names_that_sql_cannot_tell_apart(warehouse: Warehouse, names: list[str]) -> None:
    columns = commit_fields(warehouse, *names)
    assert list(columns) == names
    everything = [field.name.lower() for field in warehouse.table("t").schema().fields]
    assert len(set(everything)) == len(everything) == 9 + len(names)
    assert not any("." in name for name in everything)


@given(st.lists(st.text(max_size=3) | st.sampled_from(["s", "\u017f", "value_s", "key", "VALUE_KEY"]), unique=True))
def test_names_of_columns_are_never_the_same_for_sql(names: list[str]) -> None:
    columns = column_names(names)
    assert columns.keys() == set(names)
    keys = [sql_key(column) for column in columns.values()]
    assert len({*keys, *KAFKA_COLUMNS}) == len(keys) + len(KAFKA_COLUMNS)
    assert all(keys)


def test_a_table_of_an_earlier_version_knows_its_fields_by_their_columns(warehouse: Warehouse) -> None:
    commit_fields(warehouse, "timestamp")
    with warehouse.table("t").transaction() as transaction:
        transaction.remove_properties("barnabas.fields")
    shape = warehouse.begin("t").shape()
    assert shape is not None
    assert shape.columns == {"timestamp": "value_timestamp"}


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
    with pytest.raises(ConfigurationError, match="cannot open the catalog nowhere"):
        Warehouse.open(TablePlace.of(catalog="nowhere"))


def test_timestamps_of_any_size_are_committed_and_can_be_read(warehouse: Warehouse) -> None:
    """A producer that counts microseconds or nanoseconds is a nuisance, and no reason to stop."""
    now_ms = 1_700_000_000_000
    sent = [now_ms, now_ms * 1000, now_ms * 1_000_000, -(2**60), 2**60, -1, -62_104_060_800_000, 253_370_764_799_999]
    add_records(warehouse.begin("t"), "one", 0, len(sent), sent)
    rows = {row["offset"]: row for row in warehouse.table("t").scan().to_arrow().to_pylist()}
    read = [rows[offset] for offset in range(len(sent))]
    assert [row["raw_timestamp_ms"] for row in read] == [None, *sent[1:5], None, None, None]
    assert [row["timestamp"] for row in read[1:5]] == [None] * 4
    assert read[0]["timestamp"] == datetime.fromtimestamp(now_ms // 1000, UTC)
    days = [row["partition"]["event_day"] for row in warehouse.table("t").inspect.partitions().to_pylist()]
    assert len(days) == 5
    assert None in days


def test_a_table_of_an_earlier_version_gets_the_column_that_it_lacks(warehouse: Warehouse) -> None:
    add_records(warehouse.begin("t"), "one", 0, 1)
    with warehouse.table("t").update_schema(allow_incompatible_changes=True) as update:
        update.delete_column("raw_timestamp_ms")
    add_records(warehouse.begin("t"), "two", 1, 1, [2**60])
    assert sorted(map(str, warehouse.table("t").scan().to_arrow()["raw_timestamp_ms"].to_pylist())) == [
        str(2**60),
        "None",
    ]


def test_names_of_tables() -> None:
    assert parse_table_name("a.b") == ("a", "b")
    assert table_name_of_topic("access.log") == "access_log"
    assert parse_table_name("prod.a.b", "prod") == ("a", "b")
    assert parse_table_name("a.b.c", "prod") == ("a", "b", "c")
    with pytest.raises(ConfigurationError, match=r"'a\.b\.c': this warehouse has no catalog name.*--catalog NAME"):
        parse_table_name("a.b.c")
    for odd in ("", "a.", "..", "a..b"):
        with pytest.raises(ConfigurationError, match="invalid table name"):
            parse_table_name(odd, "prod")


@pytest.mark.parametrize("other", ["web-clicks", "Web_Clicks"])
def test_two_topics_with_the_same_table_are_refused_with_both_names(other: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"'web\.clicks' and '{other}'.*--table"):
        tables_of_topics(["web.clicks", "views", other])
