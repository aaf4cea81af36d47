"""The dead-letter table: each bad record once, wherever a load ends, in both formats of tables."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from barnabas.cli.load import _Loads
from barnabas.errors import ConfigurationError
from barnabas.spark import load
from barnabas.spark.dead_letter_table import DeadLetterTable
from barnabas.spark.errors import HistoryExpiredError, LoadConflictError, WarehouseError
from barnabas.spark.ledger import Ledger
from barnabas.spark.load_types import LoadProgress
from barnabas.spark.offset_ranges import OffsetRange
from barnabas.spark.table_load import TableLoader
from barnabas.spark.table_schema import TOPIC_ID
from barnabas.spark.table_store import Maintained, StoredTable
from barnabas.spark.tables import scan_table
from tests.support.loads_without_spark import Lake

GOOD = b'{"a": 1}'


@pytest.fixture(params=["iceberg", "delta"])
def lake(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    if request.param == "delta":
        pytest.importorskip("deltalake")
    made = Lake(tmp_path, request.param)
    made.stand_in(monkeypatch)
    return made


def test_bad_records_are_rows_with_reason_and_place(lake: Lake) -> None:
    lake.values = [b'{"a": 1}']
    assert lake.load(takes_new_fields=False).dead_letter_rows == 0
    assert not lake.open().current_table("bad").exists
    lake.values += [b"?", b'{"a": "x"}', b"\xff"]
    loaded = lake.load()
    assert (loaded.records, loaded.bad.count, loaded.dead_letter_rows) == (3, 3, 3)
    assert lake.rows() == [(1, "not JSON"), (2, "field 'a' does not fit its column (long)"), (3, "not UTF-8")]
    assert lake.rows(column="value") == [(1, b"?"), (2, b'{"a": "x"}'), (3, b"\xff")]
    (row, *_) = [row for batch in scan_table(lake.folder, "bad", table_format=lake.place.table_format)
                 for row in batch.to_pylist()]  # fmt: skip
    assert {"topic", "partition", "offset", "timestamp", "key", "value", "headers", "reason"} <= set(row)
    assert "value_form" not in row
    lake.values += [b"!"]
    assert lake.load().dead_letter_rows == 1
    assert len(lake.rows()) == 4
    assert lake.files()[1] == 0


def test_a_task_that_is_done_again_puts_its_bad_records_there_once(lake: Lake) -> None:
    lake.values = [b'{"a": 1}']
    lake.load()
    lake.values += [b"?", b'{"a": 2, "new": true}']
    assert lake.load().new_fields == {"new": "boolean"}
    assert lake.rows() == [(1, "not JSON")]
    assert len(lake.files()[0]) == 1 + 2 + 1  # a day each


@pytest.mark.parametrize(
    "place",
    [
        pytest.param((DeadLetterTable, "commit"), id="before its commit"),
        pytest.param((TableLoader, "_commit"), id="between the two commits"),
        pytest.param((TableLoader, "_result"), id="after both"),
    ],
)
def test_wherever_a_load_is_killed_each_bad_record_is_there_once(lake: Lake, place: tuple[type, str]) -> None:
    lake.values = [GOOD, b"?"]
    lake.load()
    lake.values += [b"!", b'{"a": 2}']
    lake.load_killed_before(*place)
    lake.values += [b"#"]
    lake.load()
    assert [offset for offset, _ in lake.rows()] == [1, 2, 4]
    assert [offset for offset, _ in lake.rows("t", "topic")] == [0, 1, 2, 3, 4]
    files, locks = lake.files()
    assert locks == 0
    assert len(files) == 5 + 3


def test_of_two_loads_at_once_one_is_refused_and_nothing_is_twice(lake: Lake) -> None:
    lake.values = [b'{"a": 1}', b"?"]

    def load_in_between(progress: LoadProgress) -> None:
        if progress.step == "writing" and progress.records_done == progress.records_total:
            lake.load()

    with pytest.raises(LoadConflictError):
        lake.load(on_progress=load_in_between)
    assert (lake.rows(), len(lake.rows("t", "topic"))) == ([(1, "not JSON")], 2)
    assert lake.files()[1] == 0


def test_a_load_of_another_table_that_knows_older_ends_does_not_take_the_table_back(lake: Lake) -> None:
    lake.partitions = [[b"?", b"!"], []]
    lake.load()
    # Ends of logs are of several brokers, and not of one moment: of one partition this load knows less, of one more.
    lake.partitions = [[b"?"], [b"#"]]
    assert lake.load("other").dead_letter_rows == 1
    lake.partitions = [[b"?", b"!"], [b"#"]]
    assert lake.load("other").dead_letter_rows == 0
    assert sorted(lake.rows(column="value")) == [(0, b"#"), (0, b"?"), (1, b"!")]


def test_a_range_that_is_loaded_again_adds_what_is_missing_and_nothing_else(lake: Lake) -> None:
    lake.values = [b"?", b'{"a": 1}']
    lake.load(bad=None)
    lake.values += [b"!"]
    assert lake.load().dead_letter_rows == 1
    assert lake.load("again").dead_letter_rows == 1
    assert lake.load("and again").dead_letter_rows == 0
    assert lake.rows(column="value") == [(0, b"?"), (2, b"!")]
    # With columns of other types other records are bad.
    lake.values = [b'{"a": 1}']
    lake.topic_id = "two"
    lake.load("strict", bad=None, takes_new_fields=False)
    lake.values += [b'{"a": "x"}', b"#"]
    assert lake.load("lenient").dead_letter_rows == 1
    assert lake.load("strict").dead_letter_rows == 1
    assert lake.rows(column="value")[1:] == [(1, b'{"a": "x"}'), (2, b"!"), (2, b"#")]


def test_a_table_that_is_rolled_back_loads_its_ranges_again_and_no_bad_record_is_twice(lake: Lake) -> None:
    lake.values = [GOOD, b"?"]
    first = lake.load().snapshot_id
    assert first is not None
    lake.values += [GOOD, b"!"]
    lake.load()
    table = lake.open().begin("t").table
    if lake.place.table_format == "delta":
        table.restore(first)
    else:
        table.manage_snapshots().rollback_to_snapshot(first).commit()
    lake.values += [b"#"]
    loaded = lake.load()
    assert (loaded.records, loaded.bad.count, loaded.dead_letter_rows) == (3, 2, 1)
    assert lake.rows(column="value") == [(1, b"?"), (3, b"!"), (4, b"#")]


def test_topics_of_one_name_that_are_loaded_by_turns_have_each_bad_record_once(lake: Lake) -> None:
    partitions = {"one": [[b"?", GOOD, b"!"]], "two": [[GOOD, b"#"]]}
    for number in range(3):
        for lake.topic_id, lake.partitions in partitions.items():
            lake.load(f"{lake.topic_id}{number}")
    lake.topic_id = ""  # of brokers that tell none, it may be any
    lake.load("last")
    assert lake.rows(column=TOPIC_ID) == [(0, "one"), (1, "two"), (2, "one")]


def test_rows_are_read_only_where_a_range_may_be_loaded_again(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.values = [b"?"]
    lake.load()
    kind, read = type(lake.open().begin("bad")), list[int]()
    rows_of = kind.rows_of

    def counted(base: Any, topic: str, start_offset: int, columns: Any) -> Any:
        read.append(start_offset)
        return rows_of(base, topic, start_offset, columns)

    monkeypatch.setattr(kind, "rows_of", counted)

    def starts_of(table: str) -> list[int]:
        read.clear()
        lake.values = [*lake.values, b"!"]
        lake.load(table)
        return list(read)

    assert [starts_of("t"), starts_of("t"), starts_of("other"), starts_of("other")] == [[], [], [0], []]
    assert starts_of("t") == [3]  # where it ended
    lake.topic_id, lake.values = "two", []
    assert [starts_of("new"), starts_of("new")] == [[0], []]
    assert len(lake.rows()) == 6 + 2


@pytest.mark.parametrize("topic_id", ["one", "two"])
def test_of_many_rows_only_those_in_the_ranges_are_held(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, topic_id: str
) -> None:
    lake.partitions = [[b"?"] * 8, [b"?"]]
    lake.load()
    rows, held, before = 100_000, list[int](), pa.total_allocated_bytes()

    def many_rows(_base: Any, _topic: str, _start_offset: int, _columns: Any) -> Iterator[pa.RecordBatch]:
        for number in range(8):
            held.append(pa.total_allocated_bytes() - before)
            offsets = pc.cumulative_sum(pa.repeat(1, rows))  # 1, 2, ...
            partitions = pc.cast(pc.multiply(pa.repeat(number, rows), 5), pa.int32())
            yield pa.record_batch({"partition": partitions, "offset": pc.add(offsets, 1)})

    monkeypatch.setattr(type(lake.open().begin("bad")), "rows_of", many_rows)
    dead = DeadLetterTable(lake.open(), "bad", "load")
    ranges = [OffsetRange("t", 0, 4, 7), OffsetRange("t", 1, 0, 9), OffsetRange("t", 5, 0, 3)]
    known = dead.claim({"t": topic_id}, ranges).known
    dead.discard()
    assert {str(partition): offsets.tolist() for partition, offsets in known.items()} == {"t-0": [4, 5, 6], "t-5": [2]}
    assert held[-1] < 3 * 12 * rows, "of batches of 12 bytes a row, one or two are there"


def test_where_the_ledger_has_expired_rows_tell_what_is_there(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.values = [b"?", GOOD, GOOD, b"!"]
    lake.load()
    expire_ledger(lake, monkeypatch)
    lake.values = [GOOD, b"#"]
    lake.topic_id = "two"
    lake.load("other")
    assert lake.rows(column="value") == [(0, b"?"), (1, b"#"), (3, b"!")]
    expire_ledger(lake, monkeypatch)
    lake.values = [b"?", GOOD, GOOD, b"!"]
    lake.topic_id = "one"
    lake.load("again")
    assert lake.rows(column="value") == [(0, b"?"), (1, b"#"), (3, b"!")]


def expire_ledger(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the dead-letter table's ledger be gone, until its next commit."""
    gone = lake.open().begin("bad")
    kind, ledger, last = type(gone), type(gone).ledger, dict(gone.last_load)

    def or_expired(base: StoredTable) -> Ledger:
        if base.name == gone.name and base.last_load == last:
            raise HistoryExpiredError("gone")
        found: Ledger = ledger(base)
        return found

    monkeypatch.setattr(kind, "ledger", or_expired)


def test_rows_that_cannot_be_read_leave_both_tables_as_they_were(lake: Lake) -> None:
    lake.values = [b"?"]
    lake.load()
    files, _ = lake.files()
    for file in files:
        Path(file).write_bytes(b"no Parquet")
    with pytest.raises(WarehouseError, match=r"table default\.bad: its rows cannot be read: ") as caught:
        lake.load("other")
    assert "\n" not in str(caught.value)
    assert lake.files() == (files, 0)


def test_a_dead_letter_table_of_before_gets_the_column_that_it_lacks(tmp_path: Path, monkeypatch: Any) -> None:
    lake = Lake(tmp_path, "iceberg")
    lake.stand_in(monkeypatch)
    lake.values = [b"?"]
    lake.load()
    with lake.open().begin("bad").table.update_schema() as update:
        update.delete_column(TOPIC_ID)
    lake.values += [b"!"]
    lake.load("other")
    assert lake.rows(column="value") == [(0, b"?"), (1, b"!")]
    assert lake.rows(column=TOPIC_ID)[1] == (1, "one")


def test_a_load_that_goes_on_maintains_it_too(lake: Lake) -> None:
    lake.partitions = [[b"?"], []]
    lake.load()
    lake.partitions[1] += [b"?"]  # of the same day
    lake.load()
    assert len(lake.files()[0]) == 4
    loads = _Loads(("t", "not there"), "local", lake.place, {"table": None, "dead_letter_table": "bad"})
    done = {
        table: (each.compacted_files, each.new_files)
        for table, each in loads.maintain()
        if isinstance(each, Maintained)
    }
    assert done == {"default.t": (2, 1), "default.bad": (2, 1)}
    lake.partitions[0] += [b"?"]
    assert lake.load().dead_letter_rows == 1
    assert lake.load("other").dead_letter_rows == 0
    assert len(lake.rows()) == 3


def test_a_table_of_something_else_is_refused(lake: Lake) -> None:
    lake.values = [b'{"a": 1}', b"?"]
    lake.load()
    with pytest.raises(ConfigurationError, match=r"default\.fresh is the loaded table itself"):
        load("t", bootstrap="127.0.0.1:1", warehouse=lake.folder, table="fresh", dead_letter_table="default.fresh")
    with pytest.raises(ConfigurationError, match=r"default\.t is not a dead-letter table"):
        lake.load("other", bad="t")
    with pytest.raises(ConfigurationError, match="was loaded with format dead-letters"):
        lake.load("bad", bad="worse")
    assert lake.files()[1] == 0
