"""A load is refused before it reads anything where it would load records twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from barnabas.model import TopicPartition
from barnabas.records import BatchBuilder
from barnabas.records.arrow import ArrowReader
from barnabas.spark import load_tasks, table_load
from barnabas.spark.errors import (
    CommitUnknownError,
    DataLossError,
    HistoryExpiredError,
    LoadConflictError,
    LoadError,
)
from barnabas.spark.ledger import Ledger, LoadedTopic, snapshot_properties
from barnabas.spark.load_plan import RECORDS_WORTH_A_TASK, TopicState
from barnabas.spark.load_types import LoadSettings, TableLoad
from barnabas.spark.offset_ranges import OffsetRange
from barnabas.spark.table_load import TableLoader
from barnabas.spark.table_shape import TableShape
from barnabas.spark.warehouse import TableBase, Warehouse

FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)


class Base:
    """A table: with its ledger, or with None once the snapshots that had it are expired."""

    def __init__(self, ledger: Ledger | None) -> None:
        self._ledger = ledger

    def next_offsets_of_rows(self) -> dict[TopicPartition, int]:
        return {FIRST: 7}

    def ledger(self) -> Ledger:
        if self._ledger is None:
            raise HistoryExpiredError("expired")
        return self._ledger


class NoAdmin:
    def __enter__(self) -> None:
        return None

    def __exit__(self, *_error: object) -> None:
        return None


def starts_planned(
    monkeypatch: pytest.MonkeyPatch, ledger: Ledger | None, starts: dict[TopicPartition, int]
) -> list[int]:
    now = TopicState("t", "one", {0: 0, 1: 0}, {0: 10, 1: 10})
    monkeypatch.setattr(table_load, "open_admin", lambda *_arguments: NoAdmin())
    monkeypatch.setattr(table_load, "_describe", lambda _admin, _topics: [now])
    fields = dict.fromkeys(LoadSettings.__dataclass_fields__)
    given: dict[str, Any] = {**fields, "client_options": {}, "starting_offsets": starts, "fail_on_data_loss": True}
    nothing: Any = None
    loader = TableLoader(nothing, nothing, "db.t", LoadSettings(**given), nothing)
    base: Any = Base(ledger)
    _, plan = loader._plan(base, ["t"], loader._ledger(base))
    return [wanted.start_offset for wanted in plan.ranges]


def test_a_lost_history_is_replaced_by_offsets_of_every_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    assert starts_planned(monkeypatch, None, {FIRST: 7, SECOND: 3}) == [7, 3]
    with pytest.raises(HistoryExpiredError, match="t-1"):
        starts_planned(monkeypatch, None, {FIRST: 7})
    with pytest.raises(
        HistoryExpiredError, match=r"would load records that .* t-0 from 5 \(the table has offsets up to 6\)"
    ):
        starts_planned(monkeypatch, None, {FIRST: 5, SECOND: 3})
    with pytest.raises(HistoryExpiredError, match="expired"):
        starts_planned(monkeypatch, None, {})


def test_with_a_history_offsets_may_be_given_for_some_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    assert starts_planned(monkeypatch, Ledger({"t": LoadedTopic("one", {1: 4})}), {FIRST: 7}) == [7, 4]


def test_a_loss_that_is_accepted_stands_in_a_snapshot_even_with_nothing_to_load(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    warehouse = Warehouse.open(tmp_path)
    loaded = [OffsetRange("t", 0, 0, 5)]
    ledger = Ledger().advanced({"t": "one"}, loaded)
    warehouse.begin("t").commit([], snapshot_properties("first", ledger, loaded, 5), TableShape())
    monkeypatch.setattr(table_load, "open_admin", lambda *_arguments: NoAdmin())
    monkeypatch.setattr(table_load, "_describe", lambda _admin, _topics: [TopicState("t", "one", {0: 9}, {0: 9})])

    def no_session() -> Any:
        raise AssertionError("Spark is not needed where there is nothing to load")

    def run(*, fail_on_data_loss: bool) -> TableLoad:
        settings = LoadSettings("nowhere:1", "raw", None, {}, fail_on_data_loss, None, 100, {}, audit=False)
        return TableLoader(no_session, warehouse, "t", settings, lambda _progress: None).run(["t"])

    gap = OffsetRange("t", 0, 5, 9)
    with pytest.raises(DataLossError, match="--no-fail-on-data-loss"):
        run(fail_on_data_loss=True)
    accepted = run(fail_on_data_loss=False)
    assert (accepted.records, accepted.missing) == (0, (gap,))
    snapshot = warehouse.table("t").current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    assert snapshot.snapshot_id == accepted.snapshot_id
    assert snapshot.summary["barnabas.missing"] == '{"t": {"0": [5, 9]}}'
    assert run(fail_on_data_loss=True).missing == ()


class Sessions:
    """Gives no session; `is_this_machine` says where its executors would be."""

    def __init__(self, *, is_this_machine: bool) -> None:
        self.is_this_machine = is_this_machine

    def __call__(self) -> Any:
        raise LoadError("Spark was asked for")


def test_work_for_one_task_needs_no_spark_on_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    builder = BatchBuilder()
    for number in range(3):
        builder.append(0, None, b'{"n": %d}' % number)
    reader = ArrowReader()
    reader.read(builder.build(), "t", 0)
    batch = reader.finish()
    ends = {0: 3}
    monkeypatch.setattr(load_tasks, "read_range", lambda *_args, **_options: [batch])
    monkeypatch.setattr(table_load, "open_admin", lambda *_arguments: NoAdmin())
    monkeypatch.setattr(table_load, "_describe", lambda _admin, _topics: [TopicState("t", "one", {0: 0}, dict(ends))])
    settings = LoadSettings("nowhere:1", "json", None, {}, True, None, 100, {}, audit=False)

    def run(*, is_this_machine: bool = True) -> TableLoad:
        sessions = Sessions(is_this_machine=is_this_machine)
        return TableLoader(sessions, Warehouse.open(tmp_path), "t", settings, lambda _progress: None).run(["t"])

    with pytest.raises(LoadError, match="Spark was asked for"):
        run(is_this_machine=False)
    loaded = run()
    assert (loaded.records, loaded.files) == (3, 1)
    ends[0] = 3 + RECORDS_WORTH_A_TASK + 1
    with pytest.raises(LoadError, match="Spark was asked for"):
        run()
    ends[0] = 6
    monkeypatch.setattr(load_tasks, "read_range", lambda *_args, **_options: [None])
    with pytest.raises(LoadError, match="a task failed: AttributeError: 'NoneType'"):
        run()
    assert len(list(tmp_path.rglob("*.parquet"))) == 1


@pytest.mark.parametrize(
    ("ends_with", "is_kept"),
    [
        (KeyboardInterrupt(), True),
        (SystemExit(143), True),
        (CommitUnknownError("?"), True),
        (LoadConflictError(), False),
    ],
    ids=lambda value: type(value).__name__,
)
def test_files_are_removed_after_a_commit_only_if_it_says_that_it_was_not_done(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, ends_with: BaseException, *, is_kept: bool
) -> None:
    warehouse = Warehouse.open(tmp_path)
    loaded = [OffsetRange("t", 0, 0, 5)]
    ledger = Ledger().advanced({"t": "one"}, loaded)
    warehouse.begin("t").commit([], snapshot_properties("first", ledger, loaded, 5), TableShape())
    monkeypatch.setattr(table_load, "open_admin", lambda *_arguments: NoAdmin())
    monkeypatch.setattr(table_load, "_describe", lambda _admin, _topics: [TopicState("t", "one", {0: 9}, {0: 9})])

    def commit(*_arguments: object) -> int:
        raise ends_with

    monkeypatch.setattr(TableBase, "commit", commit)
    settings = LoadSettings("nowhere:1", "raw", None, {}, False, None, 100, {}, audit=False)
    nothing: Any = None
    with pytest.raises(type(ends_with)):
        TableLoader(nothing, warehouse, "t", settings, lambda _progress: None).run(["t"])
    folder = warehouse.begin("t").location().local_folder
    assert folder is not None
    assert len(list((folder / "data").glob("*"))) == is_kept
    assert len(list((folder / "loads").glob("*.lock"))) == is_kept
