"""The dead-letter table: each bad record once, wherever a load ends, in both formats of tables."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.errors import ConfigurationError
from barnabas.spark.dead_letter_table import DeadLetterTable
from barnabas.spark.errors import LoadConflictError
from barnabas.spark.load_types import LoadProgress
from barnabas.spark.table_load import TableLoader
from barnabas.spark.tables import scan_table
from tests.unit.spark.lake import Lake


@pytest.fixture(params=["iceberg", "delta"])
def lake(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    if request.param == "delta":
        pytest.importorskip("deltalake")
    made = Lake(tmp_path, request.param)
    made.stand_in(monkeypatch)
    return made


def test_bad_records_are_rows_with_reason_and_place(lake: Lake) -> None:
    lake.values = [b'{"a": 1}']
    assert lake.load().dead_letter_rows == 0
    assert not lake.open().look("bad").exists
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


@pytest.mark.parametrize("place", ["before its commit", "between the two commits", "after both"])
def test_wherever_a_load_is_killed_each_bad_record_is_there_once(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    lake.values = [b'{"a": 1}', b"?"]
    lake.load()
    lake.values += [b"!", b'{"a": 2}']
    commit = DeadLetterTable.commit
    with monkeypatch.context() as patched:
        if place == "before its commit":
            patched.setattr(DeadLetterTable, "commit", ends)
        elif place == "between the two commits":
            patched.setattr(TableLoader, "_commit", ends)
        else:
            patched.setattr(TableLoader, "_result", ends)
        # What a process that is killed does not do either.
        patched.setattr("barnabas.spark.leftovers.LoadFolder.discard", lambda folder: folder.lock.close())
        patched.setattr("barnabas.spark.leftovers.LoadFolder.release", lambda folder: folder.lock.close())
        with pytest.raises(SystemExit):
            lake.load()
    assert DeadLetterTable.commit is commit
    lake.values += [b"#"]
    lake.load()
    assert [offset for offset, _ in lake.rows()] == [1, 2, 4]
    assert [offset for offset, _ in lake.rows("t", "topic")] == [0, 1, 2, 3, 4]
    files, locks = lake.files()
    assert locks == 0
    assert len(files) == 5 + 3


def ends(*_arguments: object) -> None:
    raise SystemExit(137)


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


def test_a_topic_that_was_made_again_has_bad_records_of_its_own(lake: Lake) -> None:
    lake.values = [b'{"a": 1}', b"?"]
    lake.load()
    lake.topic_id = "two"
    lake.load("other")
    assert lake.rows() == [(1, "not JSON")] * 2


def test_a_table_of_something_else_is_refused(lake: Lake) -> None:
    lake.values = [b'{"a": 1}', b"?"]
    lake.load()
    with pytest.raises(ConfigurationError, match=r"default\.fresh is the table that is loaded"):
        lake.load("fresh", bad="default.fresh")
    with pytest.raises(ConfigurationError, match=r"default\.t is no dead-letter table"):
        lake.load("other", bad="t")
    with pytest.raises(ConfigurationError, match="was loaded with format dead-letters"):
        lake.load("bad", bad="worse")
    assert lake.files()[1] == 0
