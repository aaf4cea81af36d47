"""State tables: each key has the row of its last change, over loads, deletions, and tables of other kinds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from barnabas.audit.account import offsets_of
from barnabas.audit.batch_windows import RecordRange
from barnabas.audit.findings import Kind
from barnabas.clock import SYSTEM_CLOCK
from barnabas.errors import ConfigurationError
from barnabas.formats.upsert_rules import UpsertRules
from barnabas.model import TopicPartition
from barnabas.spark import load_checks, state_merge, table_load, table_shape
from barnabas.spark.deleted_keys import DeletedKeys
from barnabas.spark.errors import LoadConflictError
from barnabas.spark.ledger import LEDGER
from barnabas.spark.state_merge import StateMerge
from barnabas.spark.table_audit import TableAudit
from barnabas.spark.table_formats import format_of
from barnabas.spark.table_place import DELTA, ICEBERG
from barnabas.spark.table_status import table_status
from barnabas.spark.table_store import StoredFile, maintain
from barnabas.spark.tables import scan_table
from barnabas.spark.topic_tables import TopicTables
from barnabas.spark.warehouse import TableBase
from tests.support.loads_without_spark import Lake

BY_ID = UpsertRules.of("id")


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    lake = Lake(tmp_path, ICEBERG)
    lake.ms_between = 1
    lake.stand_in(monkeypatch)
    return lake


def put(lake: Lake, *values: dict[str, Any] | None, key: bytes | None = None, partition: int = 0) -> None:
    """Append records; `key` is the key of all of them."""
    while len(lake.partitions) <= partition:
        lake.partitions.append([])
    log = lake.partitions[partition]
    for value in values:
        if key is not None:
            lake.keys[partition, len(log)] = key
        log.append(None if value is None else json.dumps(value).encode())


def rows(lake: Lake, table: str = "t") -> Iterator[dict[str, Any]]:
    for batch in scan_table(lake.folder, table, table_format=lake.place.table_format):
        yield from batch.to_pylist()


def state(lake: Lake, column: str = "n") -> dict[Any, Any]:
    found = [(row["id"], row[column]) for row in rows(lake)]
    assert len(dict(found)) == len(found), "each key has one row"
    return dict(found)


def load(lake: Lake, rules: UpsertRules = BY_ID, **more: Any) -> Any:
    return lake.load(bad=None, upsert=rules, **more)


def test_state_table_has_last_change_of_each_key_over_loads(lake: Lake) -> None:
    put(lake, {"id": 1, "n": "a"}, {"id": 2, "n": "b"}, {"id": 1, "n": "c"})
    first = load(lake)
    put(lake, {"id": 2, "n": "d"}, {"id": 3, "n": "e"})
    put(lake, None, key=b"1")
    second = load(lake)
    assert state(lake) == {2: "d", 3: "e"}
    assert (first.upserts, second.upserts, second.deletes) == (2, 2, 1)
    assert second.rewritten_files == 1
    assert [(row["id"], row["offset"]) for row in rows(lake, "t__deleted")] == [(1, 5)]
    assert load(lake).snapshot_id is None


def test_data_and_offsets_of_a_state_table_are_in_one_snapshot(lake: Lake) -> None:
    for number in range(3):
        put(lake, {"id": 1, "n": str(number)}, {"id": number, "n": "x"})
        load(lake)
    base: Any = lake.open().current_table("t")
    assert isinstance(base, TableBase)
    assert len(base.table.snapshots()) == 3
    assert all(LEDGER in snapshot.summary.additional_properties for snapshot in base.table.snapshots())


def test_older_change_of_another_partition_does_not_replace_row_or_deletion(lake: Lake) -> None:
    rules = UpsertRules.of("id", op="op", order_by="at")
    put(lake, {"id": 1, "n": "new", "at": 20}, {"id": 2, "n": "old", "at": 5}, {"id": 2, "op": "d", "at": 30})
    load(lake, rules)
    put(
        lake,
        {"id": 1, "n": "late", "at": 10},
        {"id": 2, "n": "late", "at": 10},
        {"id": 3, "n": "x", "at": 1},
        partition=1,
    )
    late = load(lake, rules)
    assert state(lake) == {1: "new", 3: "x"}
    assert late.outdated == 2
    put(lake, {"id": 2, "n": "again", "at": 40}, partition=1)
    load(lake, rules)
    assert state(lake) == {1: "new", 2: "again", 3: "x"}


@pytest.mark.parametrize(("order_by", "counts"), [("offset", (1, 2, 0)), ("ts", (0, 0, 0))])
def test_keys_with_changes_in_several_partitions_are_counted(
    lake: Lake, order_by: str, counts: tuple[int, ...]
) -> None:
    rules = UpsertRules.of("id", order_by=order_by)
    put(lake, {"id": 1, "n": "a"}, {"id": 2, "n": "b"}, {"id": 4, "n": "c"})
    put(lake, {"id": 1, "n": "d"}, {"id": 3, "n": "e"}, partition=1)
    put(lake, None, key=b"4")
    first = load(lake, rules)
    put(lake, {"id": 2, "n": "f"}, {"id": 4, "n": "g"}, {"id": 3, "n": "h"}, partition=1)
    second = load(lake, rules)
    put(lake, {"id": 3, "n": "i"}, {"id": 5, "n": "j"}, {"id": 5, "n": "k"}, partition=1)
    third = load(lake, rules)
    assert tuple(each.keys_in_several_partitions for each in (first, second, third)) == counts


def test_late_change_restores_row_without_delete_memory(lake: Lake) -> None:
    rules = UpsertRules.of("id", op="op", order_by="at")
    put(lake, {"id": 2, "n": "x", "at": 5}, {"id": 2, "op": "d", "at": 30})
    load(lake, rules, delete_memory=timedelta(0))
    put(lake, {"id": 2, "n": "late", "at": 10}, partition=1)
    load(lake, rules, delete_memory=timedelta(0))
    assert state(lake) == {2: "late"}
    assert not lake.open().current_table("t__deleted").exists


@pytest.mark.parametrize("table_format", [ICEBERG, DELTA])
def test_deletions_are_forgotten_after_the_delete_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table_format: str
) -> None:
    lake = Lake(tmp_path, table_format)
    lake.ms_between = 1
    lake.stand_in(monkeypatch)
    put(lake, {"id": 1, "n": "x"}, {"id": 2, "n": "x"})
    put(lake, None, key=b"1")
    load(lake, delete_memory=timedelta(microseconds=1))
    put(lake, None, key=b"2")
    load(lake, delete_memory=timedelta(microseconds=1))
    assert [row["id"] for row in rows(lake, "t__deleted")] == [2]


@pytest.mark.parametrize("table_format", [ICEBERG, DELTA])
def test_key_may_have_the_name_of_the_time_of_deletions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table_format: str
) -> None:
    lake = Lake(tmp_path, table_format)
    lake.ms_between = 1
    lake.stand_in(monkeypatch)
    rules = UpsertRules.of("id,deleted_at", op="op", order_by="at")
    put(lake, {"id": 1, "deleted_at": "noon", "n": "x", "at": 1}, {"id": 2, "deleted_at": "noon", "n": "x", "at": 1})
    put(lake, {"id": 1, "deleted_at": "noon", "op": "d", "at": 5})
    load(lake, rules)
    put(
        lake, {"id": 1, "deleted_at": "noon", "n": "late", "at": 2}, {"id": 2, "deleted_at": "noon", "op": "d", "at": 6}
    )
    load(lake, rules)
    assert list(rows(lake)) == []
    remembered = {row["id"]: row for row in rows(lake, "t__deleted")}
    assert {key: row["deleted_at"] for key, row in remembered.items()} == {1: "noon", 2: "noon"}
    put(lake, {"id": 3, "deleted_at": "noon", "n": "y", "at": 7})
    load(lake, rules, delete_memory=timedelta(microseconds=1))
    assert list(rows(lake, "t__deleted")) == []
    assert state(lake) == {3: "y"}


def test_new_columns_and_wider_types_of_changes_reach_the_table(lake: Lake) -> None:
    put(lake, {"id": 1, "n": 1}, {"id": 2, "n": 2})
    load(lake)
    put(lake, {"id": 1, "n": 2.5, "more": "x"})
    result = load(lake)
    found = {row["id"]: row for row in rows(lake)}
    assert (found[1]["n"], found[1]["n_double"], found[1]["more"]) == (None, 2.5, "x")
    assert (found[2]["n"], found[2]["n_double"], found[2]["more"]) == (2, None, None)
    assert set(result.new_fields) == {"n_double", "more"}


def test_values_that_no_column_takes_are_counted_as_lost(lake: Lake) -> None:
    put(lake, {"id": 1, "n": "a"})
    assert load(lake, takes_new_fields=False).lost_values == 0
    put(lake, {"id": 1, "n": "b", "more": 5}, {"id": 2, "n": "c"}, {"id": 3, "n": "d", "more": None})
    put(lake, {"id": 4, "n": "e", "more": [1]}, {"more": 7})
    result = load(lake, takes_new_fields=False)
    assert state(lake) == {1: "b", 2: "c", 3: "d", 4: "e"}
    assert (result.lost_values, result.bad.count) == (2, 1)


def test_values_beyond_the_maximum_of_columns_are_counted_as_lost(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (table_shape, load_checks):
        monkeypatch.setattr(module, "FIELDS_MAX", 2)
    put(lake, {"id": 1, "n": "a", "more": 1}, {"id": 2, "n": "b"})
    assert load(lake).lost_values == 1
    put(lake, {"id": 1, "n": "c", "yet": 1}, {"id": 2, "n": "d", "more": 1})
    assert load(lake).lost_values == 2
    assert state(lake) == {1: "c", 2: "d"}


def test_lost_values_of_change_events_are_those_of_the_new_rows(lake: Lake) -> None:
    rules = UpsertRules.of("id", envelope="debezium")
    old, new = {"id": 1, "n": "a"}, {"id": 1, "n": "b", "more": 5}
    put(lake, {"op": "c", "before": None, "after": old})
    load(lake, rules, takes_new_fields=False)
    put(lake, {"op": "u", "before": old, "after": new}, {"op": "u", "before": new, "after": old})
    assert load(lake, rules, takes_new_fields=False).lost_values == 1
    put(lake, {"op": "d", "before": new, "after": None})
    assert load(lake, rules, takes_new_fields=False).lost_values == 0
    assert state(lake) == {}


def test_operation_without_a_column_deletes(lake: Lake) -> None:
    rules = UpsertRules.of("id", op="op")
    put(lake, {"id": 1, "n": "a", "op": "c"}, {"id": 2, "n": "b", "op": "c"}, {"id": 1, "op": "d"})
    result = load(lake, rules, fields={"id": "long", "n": "string"})
    assert state(lake) == {2: "b"}
    assert result.deletes == 1


def test_record_without_key_column_is_bad_and_changes_nothing(lake: Lake) -> None:
    put(lake, {"id": 1, "n": "a"}, {"id": None, "n": "b"}, {"n": "c"})
    result = load(lake)
    assert state(lake) == {1: "a"}
    assert result.bad.reasons == {"no key: a column of the key (id) is null": 2}
    assert result.records == 3


def test_key_column_that_no_row_has_comes_from_the_key_of_the_record(lake: Lake) -> None:
    put(lake, {"n": "a"}, key=b"1")
    put(lake, {"n": "b"}, key=b"2")
    assert load(lake).keys_of_records == ("id",)
    put(lake, {"n": "c"}, key=b"2")
    put(lake, None, key=b"1")
    assert load(lake).keys_of_records == ("id",)
    assert state(lake) == {2: "c"}


def test_load_of_changes_that_are_all_outdated_advances_the_offsets(lake: Lake) -> None:
    rules = UpsertRules.of("id", order_by="at")
    put(lake, {"id": 1, "n": "new", "at": 20})
    load(lake, rules)
    put(lake, {"id": 1, "n": "old", "at": 10})
    assert load(lake, rules).outdated == 1
    assert load(lake, rules).snapshot_id is None
    assert state(lake) == {1: "new"}


@pytest.mark.parametrize("rows_per_pass", [3, 1_000])
def test_only_files_with_changed_keys_are_rewritten(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, rows_per_pass: int
) -> None:
    monkeypatch.setattr(state_merge, "ROWS_PER_PASS", rows_per_pass)
    keys = [f"key {number:02}" for number in range(20)]
    put(lake, *({"id": key, "n": "old"} for key in reversed(keys)))
    assert load(lake, target_file_bytes=1).files == 20, "a file for each row"
    before = lake.files()[0]
    put(lake, *({"id": key, "n": "new"} for key in ("key 03", "key 15", "key 04a", "zzz", "")))
    put(lake, None, key=b"key 07")
    changed = load(lake, target_file_bytes=1)
    assert changed.rewritten_files == 3
    assert len(before & lake.files()[0]) == 20, "old files stay for earlier snapshots"
    new = {"key 03", "key 15", "key 04a", "zzz", ""}
    assert state(lake) == {key: "new" if key in new else "old" for key in {*keys, *new} - {"key 07"}}
    named = [Path(file.path).name for file in lake.open().current_table("t").data_files(["id"])]
    assert len(named) == 22


def test_files_that_cannot_have_a_changed_key_are_not_read(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    put(lake, *({"id": number, "n": "old"} for number in range(10)))
    load(lake, target_file_bytes=1)
    read: list[str] = []
    usual = TableBase.rows_of_file

    def noted(base: TableBase, file: StoredFile, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        read.append(file.path)
        return usual(base, file, schema)

    monkeypatch.setattr(TableBase, "rows_of_file", noted)
    put(lake, {"id": 4, "n": "new"}, {"id": 100, "n": "new"})
    load(lake)
    assert len(set(read)) == 1


def test_all_rows_can_be_deleted(lake: Lake) -> None:
    put(lake, {"id": 1, "n": "a"})
    load(lake)
    put(lake, None, key=b"1")
    load(lake)
    assert state(lake) == {}
    put(lake, {"id": 1, "n": "b"})
    load(lake)
    assert state(lake) == {1: "b"}


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        (BY_ID, None, "is a state table: load with --upsert id"),
        (None, BY_ID, "has a row for each record"),
        (BY_ID, replace(BY_ID, order_by="ts"), "has other rules: load with --upsert id --order-by offset"),
    ],
)
def test_load_with_other_rules_is_refused(
    lake: Lake, first: UpsertRules | None, second: UpsertRules | None, message: str
) -> None:
    put(lake, {"id": 1, "n": "a"})
    lake.load(bad=None, upsert=first)
    put(lake, {"id": 1, "n": "b"})
    with pytest.raises(ConfigurationError, match=message):
        lake.load(bad=None, upsert=second)


def test_load_into_memory_of_deleted_keys_is_refused(lake: Lake) -> None:
    put(lake, {"id": 1, "n": "a"})
    put(lake, None, key=b"1")
    load(lake)
    with pytest.raises(ConfigurationError, match="memory of deleted keys"):
        lake.load(table="t__deleted", bad=None)


def test_new_table_without_key_or_order_field_is_refused(lake: Lake) -> None:
    put(lake, {"n": "a"})
    lake.keys[0, 0] = None
    with pytest.raises(ConfigurationError, match="no record has the key column 'id'"):
        load(lake)
    with pytest.raises(ConfigurationError, match="no record has the field 'at'"):
        load(lake, UpsertRules.of("n", order_by="at"))


def test_second_of_two_loads_at_once_fails(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    put(lake, {"id": 1, "n": "a"})
    load(lake)
    put(lake, {"id": 1, "n": "b"})
    commit = TableBase.commit

    def commit_after_another_load(base: TableBase, *arguments: Any) -> int:
        monkeypatch.setattr(TableBase, "commit", commit)
        load(lake)
        return commit(base, *arguments)

    monkeypatch.setattr(TableBase, "commit", commit_after_another_load)
    with pytest.raises(LoadConflictError):
        load(lake)
    assert state(lake) == {1: "b"}
    assert len(lake.files()[0]) == 2, "the data files of both commits"


def make_again(lake: Lake) -> None:
    """Delete a row of the table, and drop both the table and the topic."""
    put(lake, {"id": 1, "n": "a"}, *({"id": 2, "n": str(number)} for number in range(5)))
    put(lake, None, key=b"1")
    load(lake)
    lake.open().catalog.drop_table("default.t")  # type: ignore[attr-defined]
    lake.partitions, lake.keys, lake.topic_id = [[]], {}, "two"


@pytest.mark.parametrize("memory", [{}, {"delete_memory": timedelta(0)}])
def test_table_that_is_made_again_ignores_deletions_of_the_earlier_one(lake: Lake, memory: Any) -> None:
    make_again(lake)
    put(lake, {"id": 2, "n": "first of the new topic"})
    load(lake, **memory)
    put(lake, {"id": 1, "n": "second"})
    load(lake)
    assert state(lake) == {2: "first of the new topic", 1: "second"}


def test_table_that_is_made_again_with_keys_of_another_type_is_refused(lake: Lake) -> None:
    make_again(lake)
    put(lake, {"id": "one", "n": "first of the new topic"})
    with pytest.raises(ConfigurationError, match=r"t__deleted has int64 in the column id, .* need string.*drop it"):
        load(lake)


def test_load_that_loses_the_creation_keeps_the_deletions_of_the_other(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules = UpsertRules.of("id", op="op", order_by="at")
    put(lake, {"id": 1, "n": "a", "at": 1}, {"id": 2, "n": "b", "at": 1})

    def after_other_loads(*arguments: Any) -> DeletedKeys:
        monkeypatch.setattr(table_load, "DeletedKeys", DeletedKeys)
        load(lake, rules)
        put(lake, {"id": 1, "op": "d", "at": 9})
        load(lake, rules)
        return DeletedKeys(*arguments)

    monkeypatch.setattr(table_load, "DeletedKeys", after_other_loads)
    with pytest.raises(LoadConflictError):
        load(lake, rules)
    put(lake, {"id": 1, "n": "late", "at": 5})
    load(lake, rules)
    assert state(lake) == {2: "b"}


def test_audit_counts_the_records_of_the_loads_and_reports_no_row_as_lost(lake: Lake) -> None:
    put(lake, *({"id": 1, "n": str(number)} for number in range(5)))
    load(lake)
    put(lake, {"id": 1, "n": "waiting"})
    audited = TableAudit(lake.place, "t", "t", lake.topic_id, lake.open())
    found = audited.read([], {TopicPartition("t", 0): (0, 6)}, 60_000)
    found.rows.check(offsets_of(0), 0, RecordRange(6, 0))
    found.rows.check_is_over()
    assert {(each.kind, each.records) for each in found.rows.findings} == {(Kind.OPEN, 1)}
    assert found.rows.loaded == {offsets_of(0): 5}


def test_status_of_a_state_table_has_its_rows_and_the_records_of_the_last_load(lake: Lake) -> None:
    put(lake, *({"id": number % 2, "n": str(number)} for number in range(5)))
    load(lake)
    status = table_status(lake.open(), "t")
    assert (status.records, status.last_records, status.files) == (2, 5, 1)
    assert status.upsert == BY_ID
    assert status.ledger.topics["t"].next_offsets == {0: 5}


@pytest.mark.parametrize("table_format", [ICEBERG, DELTA])
def test_pages_show_the_loads_and_files_of_a_state_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table_format: str
) -> None:
    lake = Lake(tmp_path, table_format)
    lake.ms_between = 1
    lake.stand_in(monkeypatch)
    put(lake, {"id": 1, "n": "a"}, {"id": 2, "n": "b"})
    load(lake)
    put(lake, {"id": 1, "n": "c"})
    put(lake, None, key=b"2")
    load(lake)
    tables = TopicTables(lake.place)
    newest, *_, first = [each for each in tables.snapshots_of("t", 0, 10).snapshots if each.loaded]
    assert (first.loaded, newest.loaded) == ({"t": {0: (0, 2)}}, {"t": {0: (2, 4)}})
    assert (newest.added_files, newest.deleted_files) == (1, 1)
    assert (newest.added_records, newest.deleted_records) == (1, 2)
    assert newest.is_current
    files = tables.files_of("t", newest.id, 0, 10)
    assert [file.records for file in files.files] == [1]
    status = tables.status_of("t")
    assert (status.records, status.files, status.last_records) == (1, 1, 2)


def test_signal_during_a_merge_leaves_the_table_and_no_files(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    put(lake, {"id": 1, "n": "a"}, {"id": 2, "n": "b"})
    load(lake)
    before = lake.files()
    put(lake, {"id": 1, "n": "c"})
    put(lake, None, key=b"2")
    run = StateMerge.run

    def end(merge: StateMerge) -> None:
        assert run(merge).files
        raise SystemExit(143)

    with monkeypatch.context() as patched:
        patched.setattr(StateMerge, "run", end)
        with pytest.raises(SystemExit, match="143"):
            load(lake)
    assert (lake.files(), state(lake)) == (before, {1: "a", 2: "b"})
    load(lake)
    assert state(lake) == {1: "c"}


def test_maintenance_keeps_the_state_sorted_by_key(lake: Lake) -> None:
    for number in (3, 1, 2):
        put(lake, {"id": number, "n": "x"})
        load(lake)
    store = lake.open()
    maintain(format_of(lake.place).maintainer(store, "t", SYSTEM_CLOCK))
    assert [row["id"] for row in rows(lake)] == [1, 2, 3]
    put(lake, {"id": 2, "n": "y"})
    load(lake)
    assert state(lake) == {1: "x", 2: "y", 3: "x"}


def test_maintenance_keeps_the_memory_of_deleted_keys(lake: Lake) -> None:
    for number in range(3):
        put(lake, {"id": number, "n": "x"})
        put(lake, None, key=b"%d" % number)
        load(lake)
    before = list(rows(lake, "t__deleted"))
    assert len(before) == 3
    done = maintain(format_of(lake.place).maintainer(lake.open(), "t__deleted", SYSTEM_CLOCK))
    assert done.table == "default.t__deleted"
    assert sorted(rows(lake, "t__deleted"), key=str) == sorted(before, key=str)
    put(lake, {"id": 5, "n": "x"})
    load(lake)
    assert state(lake) == {5: "x"}
