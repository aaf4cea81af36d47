"""Delta tables: one version with data and offsets, refused when somebody else was faster; lasting ledgers."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from barnabas.clock import SYSTEM_CLOCK, ManualClock
from barnabas.errors import ConfigurationError
from barnabas.formats.further_columns import further_key
from barnabas.formats.json_fields import JsonRules
from barnabas.model import TopicPartition
from barnabas.records import BatchBuilder
from barnabas.records.arrow import ArrowReader
from barnabas.records.header import stamp
from barnabas.spark import load_tasks
from barnabas.spark.completeness import COMPLETE, Completeness
from barnabas.spark.errors import CommitUnknownError, HistoryExpiredError, LoadConflictError, WarehouseError
from barnabas.spark.ledger import snapshot_properties
from barnabas.spark.load_folder import LoadFolder
from barnabas.spark.load_tasks import ReadSettings, TaskWritten, WriteSettings, write_ranges
from barnabas.spark.offset_ranges import OffsetRange
from barnabas.spark.table_place import TablePlace
from barnabas.spark.table_shape import TableShape
from barnabas.spark.table_status import table_status
from barnabas.spark.table_store import Location, maintain
from barnabas.spark.tables import scan_table
from barnabas.spark.warehouse import local_path

delta_warehouse = pytest.importorskip("barnabas.spark.delta_warehouse", reason="deltalake is not installed")
DeltaMaintainer = pytest.importorskip("barnabas.spark.delta_maintenance").DeltaMaintainer

DAY_MS = 86_400_000
START_MS = 1_400_025_600_000
"""Midnight of 14 May 2014, UTC."""
FIELDS: Any = {"a": "long"}


@pytest.fixture
def place(tmp_path: Path) -> TablePlace:
    return TablePlace.of(tmp_path / "lake", table_format="delta")


@pytest.fixture
def warehouse(place: TablePlace) -> Any:
    return delta_warehouse.DeltaWarehouse.open(place)


def write(
    warehouse: Any, load_id: str, first: int, *values: bytes, base: Any = None, times_ms: Any = None, markers: int = 0
) -> int:
    """Do what a load does, without brokers and Spark: values on two days.

    :param markers: offsets behind them that no record has, as the end of a transaction takes one.
    """
    base = base or warehouse.begin("t")
    builder = BatchBuilder()
    for number, value in enumerate(values):
        time_ms = START_MS + number % 2 * DAY_MS if times_ms is None else times_ms[number]
        builder.append(time_ms, b"key", value, [("id", b"1")])
    reader = ArrowReader()
    built = bytearray(builder.build())
    stamp(built, 0, first, 0)
    reader.read(built, "t", 0)
    batch = reader.finish()
    location = base.location()
    claimed = LoadFolder.claim(location.local_folder, load_id)
    shape = base.shape() or TableShape("json", FIELDS, {"a": "a"}, rules=JsonRules(nested=True), widens_types=False)
    wanted = [OffsetRange("t", 0, first, first + len(values) + markers)]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(load_tasks, "read_range", lambda *_args, **_options: [batch])
        for attempt in range(2):
            writing = WriteSettings(f"{location.uri}/data/{load_id}", {}, shape)
            done = write_ranges(wanted, ReadSettings("", {}), writing, attempt)
            assert isinstance(done, TaskWritten)
            if shape.grown_by(done.found) is shape:
                break
            shape = shape.grown_by(done.found)
            for file in done.files:
                local_path(file.path).unlink()
    ledger = base.ledger().advanced({"t": "topic-id"}, wanted)
    complete = Completeness(5, {TopicPartition("t", 0): first})
    properties = {**snapshot_properties(load_id, ledger, wanted, len(values)), COMPLETE: complete.dump()}
    version: int = base.commit(done.files, properties, shape)
    claimed.release()
    return version


def rows(place: TablePlace, *columns: str, where: str | None = None) -> list[tuple[object, ...]]:
    found = scan_table(place.warehouse, "t", columns=columns, where=where, table_format="delta")
    return sorted((tuple(row.values()) for batch in found for row in batch.to_pylist()), key=repr)


def next_offset(warehouse: Any) -> int:
    offset: int = warehouse.begin("t").ledger().topics["t"].next_offsets[0]
    return offset


def on_disk(tmp_path: Path) -> Iterator[str]:
    return (path.name for path in tmp_path.rglob("*.parquet") if "_delta_log" not in path.parts)


def test_the_first_commit_makes_the_table_partitioned_by_event_day(warehouse: Any, place: TablePlace) -> None:
    assert not warehouse.begin("t").exists
    assert write(warehouse, "one", 0, b'{"a":1}', b"bad", b'{"a":3}') == 0
    assert rows(place, "a", "value", "event_day") == [
        (1, None, date(2014, 5, 14)),
        (3, None, date(2014, 5, 14)),
        (None, b"bad", date(2014, 5, 15)),
    ]
    assert rows(place, "a", where="event_day = '2014-05-15'") == [(None,)]
    (times,) = {row[0] for row in rows(place, "timestamp", where="a = 1")}
    assert times == datetime(2014, 5, 14, tzinfo=UTC)
    shape = warehouse.begin("t").shape()
    assert (shape.value_format, shape.fields, shape.rules) == ("json", FIELDS, JsonRules(nested=True))


def test_data_and_offsets_are_in_one_version_and_columns_come_with_it(warehouse: Any, place: TablePlace) -> None:
    write(warehouse, "one", 0, b'{"a":1}')
    assert write(warehouse, "two", 1, b'{"a":2,"b":{"c":"x"}}') == 1
    assert next_offset(warehouse) == 2
    assert write(warehouse, "three", 2, b'{"a":"no","b":{"d":[1.5]}}') == 2
    base = warehouse.begin("t")
    assert base.last_load["barnabas.added"] == '{"t":[1]}'
    fields = {"a": "long", "b": {"c": "string", "d": ["double"]}, further_key("a", "string"): "string"}
    assert base.shape().fields == fields
    assert rows(place, "a", "b", "a_string") == [
        (1, None, None),
        (2, {"c": "x", "d": None}, None),
        (None, {"c": None, "d": [1.5]}, "no"),
    ]
    assert warehouse.committed_loads("t", ["one", "x"]) == {"one"}


def test_columns_that_others_have_added_stay_whatever_their_type(warehouse: Any, place: TablePlace) -> None:
    write(warehouse, "one", 0, b'{"a":1}')
    deltalake = pytest.importorskip("deltalake")
    warehouse.begin("t").table.alter.add_columns([deltalake.Field("Note", deltalake.schema.PrimitiveType("short"))])
    write(warehouse, "two", 1, b'{"a":2,"b":"x"}')
    assert sorted(rows(place, "a", "b", "Note"), key=str) == [(1, None, None), (2, "x", None)]
    write(warehouse, "three", 2, b'{"a":3,"note":"mine"}')
    assert rows(place, "a", "Note", "value_note") == [(1, None, None), (2, None, None), (3, None, "mine")]
    assert warehouse.begin("t").shape().columns == {"a": "a", "b": "b", "note": "value_note"}


def test_of_two_loads_at_once_the_second_to_commit_is_refused(warehouse: Any, place: TablePlace) -> None:
    first, second = warehouse.begin("t"), warehouse.begin("t")
    write(warehouse, "one", 0, b'{"a":1}', base=first)
    with pytest.raises(LoadConflictError, match=r"another load \(one\) was committed"):
        write(warehouse, "two", 0, b'{"a":1}', base=second)
    for number, grows in enumerate((b'{"a":2}', b'{"a":2,"new":1}')):
        first, second = warehouse.begin("t"), warehouse.begin("t")
        write(warehouse, f"three{number}", 1 + number, b'{"a":2}', base=first)
        with pytest.raises(LoadConflictError, match=rf"another load \(three{number}\)"):
            write(warehouse, f"four{number}", 1 + number, grows, base=second)
    assert rows(place, "a") == [(1,), (2,), (2,)]
    base = warehouse.begin("t")
    DeltaMaintainer(warehouse, "t", SYSTEM_CLOCK).compact()
    with pytest.raises(LoadConflictError, match=r"committed nothing"):
        write(warehouse, "five", 3, b'{"a":3}', base=base)


def test_a_commit_that_was_done_and_told_of_badly_is_found(warehouse: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    create = delta_warehouse.create_table_with_add_actions

    def create_and_fail(*arguments: Any, **options: Any) -> None:
        create(*arguments, **options)
        raise OSError("the connection was reset")

    monkeypatch.setattr(delta_warehouse, "create_table_with_add_actions", create_and_fail)
    assert write(warehouse, "one", 0, b'{"a":1}') == 0
    monkeypatch.undo()
    append = delta_warehouse.DeltaBase._append

    def fail(*_arguments: Any, **_options: Any) -> None:
        raise OSError("no space")

    def append_and_fail(*arguments: Any, **options: Any) -> None:
        append(*arguments, **options)
        raise OSError("the connection was reset")

    monkeypatch.setattr(delta_warehouse.DeltaBase, "_append", fail)
    with pytest.raises(WarehouseError, match=r"is unchanged: no space"):
        write(warehouse, "two", 1, b'{"a":1}')
    monkeypatch.setattr(delta_warehouse.DeltaBase, "_append", append_and_fail)
    assert write(warehouse, "three", 1, b'{"a":1}') == 1
    assert next_offset(warehouse) == 2


def test_of_a_commit_that_a_store_does_not_answer_nobody_knows_whether_it_will_be_done(
    warehouse: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(warehouse, "one", 0, b'{"a":1}')
    table = warehouse.begin("t").table

    def fail(*_arguments: Any, **_options: Any) -> None:
        raise OSError("no answer")

    monkeypatch.setattr(delta_warehouse.DeltaBase, "_append", fail)
    monkeypatch.setattr(delta_warehouse, "_find", lambda _location: table)
    base = delta_warehouse.DeltaBase("t", Location("s3://lake/default/t", {}), table)
    properties = snapshot_properties("two", base.ledger(), [], 0)
    with pytest.raises(CommitUnknownError, match="no answer"):
        base.commit([], properties, base.shape())


def test_the_ledger_is_found_after_compaction_expiry_and_restores(warehouse: Any, tmp_path: Path) -> None:
    for number in range(3):
        write(warehouse, f"load{number}", number, b'{"a":1}')
    status = table_status(warehouse, "t")
    assert (status.files, status.records, status.snapshots) == (3, 3, 3)
    maintain(DeltaMaintainer(warehouse, "t", SYSTEM_CLOCK))
    after = table_status(warehouse, "t")
    assert (after.files, after.records) == (1, 3)
    assert (after.ledger, after.complete) == (status.ledger, status.complete)
    table = warehouse.begin("t").table
    table.restore(0)
    assert next_offset(warehouse) == 1
    write(warehouse, "again", 1, b'{"a":7}')
    assert next_offset(warehouse) == 2
    forget_all_but_the_last_version(warehouse, tmp_path)
    assert next_offset(warehouse) == 2
    warehouse.begin("t").table.optimize.compact()
    forget_all_but_the_last_version(warehouse, tmp_path)
    ledger = warehouse.begin("t").ledger()
    assert (ledger.topics["t"].topic_id, ledger.topics["t"].next_offsets) == ("topic-id", {0: 2})


def forget_all_but_the_last_version(warehouse: Any, tmp_path: Path) -> None:
    """Do what Delta's own clean-up does with versions that are older than a checkpoint, a month later."""
    table = warehouse.begin("t").table
    table.create_checkpoint()
    for path in (tmp_path / "lake/default/t/_delta_log").glob("*.json"):
        if int(path.stem) < table.version():
            path.unlink()


def test_a_ledger_that_ends_behind_the_last_row_outlives_the_history(warehouse: Any, tmp_path: Path) -> None:
    write(warehouse, "one", 0, b'{"a":1}', markers=1)
    write(warehouse, "two", 2, b'{"a":1}', b'{"a":2}', markers=1)
    warehouse.begin("t").table.optimize.compact()  # by somebody else, who knows nothing of a ledger
    forget_all_but_the_last_version(warehouse, tmp_path)
    assert next_offset(warehouse) == 5
    write(warehouse, "three", 5, b'{"a":3}', markers=1)
    assert next_offset(warehouse) == 7


@pytest.mark.parametrize("markers", [0, 1])
def test_a_restore_that_has_expired_itself_makes_no_load_skip_records(
    warehouse: Any, tmp_path: Path, markers: int
) -> None:
    for number in range(3):
        write(warehouse, f"load{number}", number * (1 + markers), b'{"a":1}', markers=markers)
    warehouse.begin("t").table.restore(1)
    warehouse.begin("t").table.optimize.compact()  # by somebody else, who knows nothing of a ledger
    forget_all_but_the_last_version(warehouse, tmp_path)
    with pytest.raises(
        HistoryExpiredError, match=rf'rows end before \{{"t": \{{"0": {2 + markers}\}}\}}.*--starting-off'
    ):
        warehouse.begin("t").ledger()


@pytest.mark.parametrize("told", ["", "null", "2017-07-14T02:40:00Z", None])
def test_a_restore_in_the_words_of_other_writers_is_one_to_a_time(told: str | None) -> None:
    table = SimpleNamespace(
        history=lambda limit=None: [
            {"operation": "OPTIMIZE", "version": 2},
            {"operation": "RESTORE", "version": 1, "operationParameters": {"version": told}},
            {"operation": "WRITE", "version": 0, "barnabas.ledger": "{}"},
        ][:limit]
    )
    assert [entry["version"] for entry in delta_warehouse._line(table)] == [2]


def test_maintenance_that_fails_is_told_in_one_line(warehouse: Any, tmp_path: Path) -> None:
    for number in range(2):
        write(warehouse, f"load{number}", number, b'{"a":1}')
    for path in tmp_path.rglob("*.parquet"):
        path.write_bytes(b"no Parquet")
    with pytest.raises(WarehouseError, match="cannot merge its small files, its rows are unchanged") as caught:
        maintain(DeltaMaintainer(warehouse, "t", SYSTEM_CLOCK))
    assert "\n" not in str(caught.value)


def test_a_history_that_tells_nothing_is_not_taken_for_an_empty_table(warehouse: Any) -> None:
    write(warehouse, "one", 0, b'{"a":1}', b'{"a":2}')
    first_at_ms = warehouse.begin("t").table.history(1)[0]["timestamp"]
    write(warehouse, "two", 2, b'{"a":1}')
    warehouse.begin("t").table.restore(datetime.fromtimestamp((first_at_ms + 1) / 1000, UTC))
    with pytest.raises(HistoryExpiredError, match=r'rows end before \{"t": \{"0": 2\}\}.*--starting-offsets'):
        warehouse.begin("t").ledger()


def test_what_a_dead_load_left_is_removed_and_what_lives_stays(
    warehouse: Any, place: TablePlace, tmp_path: Path
) -> None:
    for number in range(3):
        write(warehouse, f"load{number}", number, b'{"a":1}')
    base = warehouse.begin("t")
    folder = tmp_path / "lake/default/t"
    alive, dead = LoadFolder.claim(folder, "alive"), LoadFolder.claim(folder, "dead")
    for each in (alive, dead):
        (each.data / "part.parquet").write_bytes(b"x")
    dead.lock.close()
    orphan = folder / "data/nobody/part-x.parquet"
    orphan.parent.mkdir()
    orphan.write_bytes(b"x")
    young = maintain(DeltaMaintainer(warehouse, "t", SYSTEM_CLOCK))
    assert (young.compacted_files, young.new_files, young.removed_files) == (3, 1, 0)
    assert not dead.data.exists()
    assert base.table.version() == 2
    later = ManualClock(start_ms=2**41)
    everything = timedelta(0)
    done = maintain(DeltaMaintainer(warehouse, "t", later), snapshot_age=everything, orphan_age=everything)
    assert done.removed_files == 1
    names = set(on_disk(tmp_path))
    assert "part.parquet" in names
    assert len(names) == 2
    assert rows(place, "a") == [(1,)] * 3
    assert next_offset(warehouse) == 3
    alive.discard()


def test_old_files_that_a_merge_replaced_stay_for_readers(warehouse: Any, place: TablePlace, tmp_path: Path) -> None:
    for number in range(3):
        write(warehouse, f"{number:032x}", number, b'{"a":1}')
    for file in (tmp_path / "lake").rglob("*.parquet"):
        os.utime(file, (0, 0))
    held = warehouse.begin("t").table
    maintainer = DeltaMaintainer(warehouse, "t", SYSTEM_CLOCK)
    assert maintainer.compact() == (3, 1)
    table = warehouse.begin("t").table
    table.create_checkpoint()
    for version in range(table.version()):  # loads delete old versions of the log
        (tmp_path / f"lake/default/t/_delta_log/{version:020}.json").unlink()
    assert maintainer.remove_orphans() == 0
    assert held.to_pyarrow_table().num_rows == 3


def test_times_that_no_table_can_hold_are_in_a_partition_of_their_own(warehouse: Any, place: TablePlace) -> None:
    write(warehouse, "one", 0, b'{"a":1}', b'{"a":2}', times_ms=[2**60, START_MS])
    write(warehouse, "two", 2, b'{"a":3,"b":4}', times_ms=[2**60])
    assert rows(place, "a", "event_day", "raw_timestamp_ms") == [
        (1, None, 2**60),
        (2, date(2014, 5, 14), None),
        (3, None, 2**60),
    ]
    assert DeltaMaintainer(warehouse, "t", SYSTEM_CLOCK).compact() == (2, 1)


def test_a_table_of_somebody_else_is_refused(warehouse: Any, tmp_path: Path) -> None:
    from deltalake import write_deltalake  # noqa: PLC0415  # it may not be installed

    (tmp_path / "lake/default").mkdir(parents=True)
    write_deltalake(str(tmp_path / "lake/default/t"), pa.table({"topic": ["x"]}))
    with pytest.raises(WarehouseError, match=r"not a table of topics: it lacks headers, key"):
        warehouse.begin("t")
    with pytest.raises(WarehouseError, match="'u' does not exist"):
        table_status(warehouse, "u")
    with pytest.raises(WarehouseError, match="does not exist"):
        DeltaMaintainer(warehouse, "u", SYSTEM_CLOCK)
    with pytest.raises(ConfigurationError, match="no catalog"):
        TablePlace.of("w", catalog="prod", table_format="delta")


def test_the_log_is_one_that_others_understand(warehouse: Any, tmp_path: Path) -> None:
    write(warehouse, "one", 0, b'{"a":1}')
    log = tmp_path / "lake/default/t/_delta_log/00000000000000000000.json"
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    (add,) = [action["add"] for action in actions if "add" in action]
    assert add["partitionValues"] == {"event_day": "2014-05-14"}
    assert not add["path"].startswith(("/", "file:"))
    assert {"appId": "barnabas/t/0", "version": 1}.items() <= next(a["txn"] for a in actions if "txn" in a).items()
    (protocol,) = [action["protocol"] for action in actions if "protocol" in action]
    assert protocol["minReaderVersion"] == 1


def test_a_table_that_gets_its_first_column_of_times_without_a_zone_stays_readable(
    warehouse: Any, place: TablePlace
) -> None:
    write(warehouse, "one", 0, b'{"a":1}')
    base = warehouse.begin("t")
    shape = base.shape()
    fields, columns = {**shape.fields, "local": "timestamp_ntz"}, {**shape.columns, "local": "local"}
    ledger = base.ledger()
    properties = snapshot_properties("two", ledger, [], 0)
    base.commit([], properties, replace(shape, fields=fields, columns=columns))
    assert warehouse.begin("t").shape().fields == fields
    write(warehouse, "three", 1, b'{"a":2}')
    assert rows(place, "a", "local") == [(1, None), (2, None)]
    assert next_offset(warehouse) == 2
