"""Loads of a scheduler: run ids that load once, loads with an end, and backfills that leave the ledger unchanged."""

from __future__ import annotations

import json
import random
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from barnabas.errors import ConfigurationError
from barnabas.model import TopicPartition
from barnabas.spark.delta_warehouse import DeltaBase
from barnabas.spark.errors import DataLossError, LoadConflictError
from barnabas.spark.load_bounds import check_bounds, resolve
from barnabas.spark.load_plan import TopicState
from barnabas.spark.load_types import Backfill, LoadProgress, TableLoad
from barnabas.spark.run_ids import RUN_ID_LENGTH_MAX, RUNS, RUNS_KEPT_MAX, SLOTS, check_run_id, slot_of, with_run
from barnabas.spark.table_formats import format_of
from barnabas.spark.table_load import TableLoader
from barnabas.spark.table_snapshots import loaded_offsets
from barnabas.spark.table_status import table_status
from barnabas.spark.warehouse import TableBase
from tests.support.loads_without_spark import FIRST_MS, Lake, Timestamps

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
FORMATS = ["iceberg", "delta"]


@pytest.fixture(params=FORMATS)
def lake(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    made = Lake(tmp_path, request.param)
    made.stand_in(monkeypatch)
    return made


def add(lake: Lake, count: int, partition: int = 0) -> None:
    while len(lake.partitions) <= partition:
        lake.partitions.append([])
    values = lake.partitions[partition]
    values += [json.dumps({"n": len(values) + number}).encode() for number in range(count)]


def offsets(lake: Lake, table: str = "t") -> list[int]:
    return [offset for offset, _ in lake.rows(table, "partition")]


def ledger(lake: Lake) -> dict[int, int]:
    topics = lake.open().current_table("t").ledger().topics
    return dict(topics["t"].next_offsets) if "t" in topics else {}


def backfill(lake: Lake, start: int, end: int, **more: Any) -> TableLoad:
    return lake.load(bad=None, backfill=Backfill({T0: start}, {T0: end}), **more)


# --- run ids ------------------------------------------------------------------------------------------------


def test_run_loads_once_and_reports_its_result_again(lake: Lake) -> None:
    add(lake, 3)
    lake.values.append(b"no JSON")
    first = lake.load(run_id="2026-11-28")
    add(lake, 2)
    again = lake.load(run_id="2026-11-28")
    assert (first.is_repeated, again.is_repeated) == (False, True)
    for name in ("table", "snapshot_id", "records", "files", "ranges", "missing"):
        assert getattr(again, name) == getattr(first, name)
    assert again.bad.reasons == first.bad.reasons == {"not JSON": 1}
    assert offsets(lake) == [0, 1, 2, 3]
    assert lake.load(run_id="2026-11-29").records == 2
    assert lake.load(run_id="2026-11-28").snapshot_id == first.snapshot_id
    assert offsets(lake) == [0, 1, 2, 3, 4, 5]


def test_run_without_new_records_is_not_remembered(lake: Lake) -> None:
    add(lake, 1)
    lake.load()
    assert lake.load(run_id="a").snapshot_id is None
    add(lake, 1)
    assert lake.load(run_id="a").records == 1


@pytest.mark.parametrize("is_after_commit", [False, True])
def test_killed_run_loads_once(lake: Lake, *, is_after_commit: bool) -> None:
    add(lake, 4)
    base: type = TableBase if lake.place.table_format == "iceberg" else DeltaBase
    where = (TableLoader, "_result") if is_after_commit else (base, "commit")
    lake.load_killed_before(*where, run_id="a", bad=None)
    add(lake, 1)
    again = lake.load(run_id="a", bad=None)
    assert (again.is_repeated, again.records) == ((True, 4) if is_after_commit else (False, 5))
    assert offsets(lake) == list(range(again.records))


def test_of_two_processes_with_a_run_id_one_loads(lake: Lake) -> None:
    add(lake, 4)

    def other_is_faster(progress: LoadProgress) -> None:
        if progress.step == "committing":
            lake.load(run_id="a", bad=None)

    with pytest.raises(LoadConflictError):
        lake.load(run_id="a", bad=None, on_progress=other_is_faster)
    assert lake.load(run_id="a", bad=None).is_repeated
    assert offsets(lake) == [0, 1, 2, 3]


def expire(lake: Lake) -> None:
    """Expire the history of the table, up to the current version."""
    store = lake.open()
    if lake.place.table_format == "iceberg":
        format_of(lake.place).maintainer(store, "t", LATER).expire(timedelta(0))
        return
    table = store.current_table("t").table
    table.alter.set_table_properties({"delta.logRetentionDuration": "interval 0 days"})
    table.create_checkpoint()
    table.cleanup_metadata()


class Later:
    def time_ms(self) -> int:
        return 4_000_000_000_000


LATER: Any = Later()


def test_run_is_remembered_after_its_commit_has_expired(lake: Lake) -> None:
    for number in range(3):
        add(lake, 2)
        lake.load(run_id=f"run {number}", bad=None)
    first = lake.open().current_table("t").find_run("run 0")
    expire(lake)
    found = lake.open().current_table("t").find_run("run 0")
    assert first is not None
    assert found is not None
    assert "barnabas.load-id" in first.properties
    assert "barnabas.load-id" not in found.properties
    again = lake.load(run_id="run 0", bad=None)
    assert (again.is_repeated, again.records, again.snapshot_id) == (True, 2, first.snapshot_id)
    assert lake.open().current_table("t").find_run("run 3") is None
    assert len(offsets(lake)) == 6


def roll_back_to(lake: Lake, snapshot_id: int | None) -> None:
    table = lake.open().current_table("t").table
    if lake.place.table_format == "iceberg":
        table.manage_snapshots().set_current_snapshot(snapshot_id).commit()
    else:
        table.restore(snapshot_id)


def test_run_that_was_rolled_back_loads_again(lake: Lake) -> None:
    add(lake, 2)
    first = lake.load(run_id="a", bad=None)
    add(lake, 3)
    lake.load(run_id="b", bad=None)
    roll_back_to(lake, first.snapshot_id)
    assert offsets(lake) == [0, 1]
    assert lake.load(run_id="a", bad=None).is_repeated
    again = lake.load(run_id="b", bad=None)
    assert (again.is_repeated, again.records) == (False, 3)
    assert offsets(lake) == [0, 1, 2, 3, 4]


def test_memory_of_runs_is_bounded(lake: Lake) -> None:
    kept: str | None = None
    for number in range(3 * RUNS_KEPT_MAX):
        kept = with_run(kept, f"{number:08}" * 4, number, 2**63 - number, 10**9)
    assert kept is not None
    assert len(json.loads(kept)) == RUNS_KEPT_MAX
    assert len(kept) < 20_000
    assert len({slot_of(str(number))[0] for number in range(5_000)}) == SLOTS
    add(lake, 1)
    lake.load(run_id="a", bad=None)
    if lake.place.table_format == "iceberg":
        assert list(json.loads(lake.open().current_table("t").table.properties[RUNS])) == ["a"]


@pytest.mark.parametrize("run_id", ["", "a\nb", "x" * (RUN_ID_LENGTH_MAX + 1)])
def test_run_id_that_nobody_can_read_is_refused(run_id: str) -> None:
    with pytest.raises(ConfigurationError, match="--run-id"):
        check_run_id(run_id)


# --- the end of a load --------------------------------------------------------------------------------------


def test_load_ends_at_offsets_and_the_next_one_continues_there(lake: Lake) -> None:
    add(lake, 10)
    add(lake, 5, partition=1)
    assert lake.load(bad=None, until={T0: 4}).records == 4
    assert lake.load(bad=None, until={T0: 3}).snapshot_id is None
    assert lake.load(bad=None, until={T0: 4}).snapshot_id is None
    done = lake.load(bad=None, until={T0: 6, T1: 100})
    assert [str(each) for each in done.ranges] == ["t-0 [4, 6)", "t-1 [0, 5)"]
    assert lake.load(bad=None).records == 4
    assert offsets(lake) == sorted([*range(10), *range(5)])


def test_load_ends_at_a_time(lake: Lake) -> None:
    add(lake, 10)
    day_ms = lake.ms_between
    assert lake.load(bad=None, until=FIRST_MS).snapshot_id is None
    assert lake.load(bad=None, until=FIRST_MS + 3 * day_ms).records == 3
    assert lake.load(bad=None, until=FIRST_MS + 3 * day_ms + 1).records == 1
    assert lake.load(bad=None, until=FIRST_MS + 99 * day_ms).records == 6
    assert offsets(lake) == list(range(10))


def test_load_with_an_end_does_not_claim_the_whole_log(lake: Lake) -> None:
    add(lake, 10)
    lake.load(bad=None, until={T0: 4})
    assert table_status(lake.open(), "t").complete.at_ms == 0
    lake.load(bad=None)
    whole = table_status(lake.open(), "t").complete
    assert whole.at_ms > 0
    add(lake, 10)
    lake.load(bad=None, until={T0: 14})
    assert table_status(lake.open(), "t").complete.at_ms == whole.at_ms


# --- backfills ----------------------------------------------------------------------------------------------


def test_backfill_fills_a_gap_and_later_loads_continue_where_they_were(lake: Lake) -> None:
    add(lake, 10)
    lake.load(bad=None, starting_offsets={T0: 6})
    before = lake.open().current_table("t").ledger()
    complete = table_status(lake.open(), "t").complete
    done = backfill(lake, 2, 6)
    assert [str(each) for each in done.ranges] == ["t-0 [2, 6)"]
    assert offsets(lake) == [2, 3, 4, 5, 6, 7, 8, 9]
    now = lake.open().current_table("t")
    assert now.ledger() == before
    assert loaded_offsets(now.last_load) == {"t": {0: (2, 6)}}
    assert table_status(lake.open(), "t").complete == complete
    add(lake, 2)
    assert [str(each) for each in lake.load(bad=None).ranges] == ["t-0 [10, 12)"]
    backfill(lake, 0, 2)
    expire(lake)
    add(lake, 1)
    assert [str(each) for each in lake.load(bad=None).ranges] == ["t-0 [12, 13)"]
    assert offsets(lake) == list(range(13))


def test_backfill_that_would_load_rows_twice_is_refused(lake: Lake) -> None:
    add(lake, 10)
    lake.load(bad=None, starting_offsets={T0: 6})
    files = lake.files()
    with pytest.raises(
        ConfigurationError, match=r"already has rows of the backfill: 2 of t-0 \[4, 8\) \(offsets 6 to 7"
    ):
        backfill(lake, 4, 8)
    backfill(lake, 4, 6)
    with pytest.raises(ConfigurationError, match="already has rows"):
        backfill(lake, 4, 5)
    assert lake.files()[1] == files[1]
    assert offsets(lake) == list(range(4, 10))


def test_backfill_with_a_run_id_loads_once(lake: Lake) -> None:
    add(lake, 10)
    lake.load(bad=None, starting_offsets={T0: 6})
    first = backfill(lake, 0, 6, run_id="day 1")
    again = backfill(lake, 0, 6, run_id="day 1")
    assert (again.is_repeated, again.records, again.ranges) == (True, 6, first.ranges)
    assert offsets(lake) == list(range(10))


def test_backfill_of_offsets_that_loads_have_not_reached_is_refused(lake: Lake) -> None:
    add(lake, 10)
    lake.load(bad=None, until={T0: 5}, starting_offsets={T0: 3})
    with pytest.raises(ConfigurationError, match="have only reached 5"):
        backfill(lake, 0, 7)
    with pytest.raises(ConfigurationError, match="its log ends at 10"):
        backfill(lake, 0, 11)
    assert offsets(lake) == [3, 4]


def test_table_of_backfills_only_may_have_any_ranges_and_a_load_needs_its_start(lake: Lake) -> None:
    add(lake, 10)
    assert backfill(lake, 4, 6).records == 2
    assert backfill(lake, 0, 2).records == 2
    assert backfill(lake, 6, 10).records == 4
    assert ledger(lake) == {}
    with pytest.raises(ConfigurationError, match=r"""--starting-offsets\), for example \{"t": \{"0": 10\}\}"""):
        lake.load(bad=None)
    with pytest.raises(ConfigurationError, match="--starting-offsets"):
        lake.load(bad=None, starting_offsets={T0: 9})
    add(lake, 1)
    assert lake.load(bad=None, starting_offsets={T0: 10}).records == 1
    assert backfill(lake, 2, 4).records == 2
    assert ledger(lake) == {0: 11}
    assert offsets(lake) == list(range(11))


def test_backfill_by_time_reads_neighbouring_ranges_without_gap_or_overlap(lake: Lake) -> None:
    add(lake, 9)
    day_ms = lake.ms_between
    for start in (4, 0, 2):
        span = Backfill(FIRST_MS + start * day_ms - 1, FIRST_MS + (start + 2) * day_ms - 1)
        assert lake.load(bad=None, backfill=span).records == 2
    empty = lake.load(bad=None, backfill=Backfill(FIRST_MS + 90 * day_ms, FIRST_MS + 99 * day_ms))
    assert empty.snapshot_id is None
    assert offsets(lake) == list(range(6))


def test_backfill_of_deleted_records_is_refused_or_tells_them(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    add(lake, 10)

    def describe(*_arguments: object) -> list[TopicState]:
        return [TopicState("t", "one", {0: 3}, {0: 10})]

    monkeypatch.setattr("barnabas.spark.table_load._describe", describe)
    with pytest.raises(DataLossError, match=r"t-0 \[1, 3\)"):
        backfill(lake, 1, 5)
    done = backfill(lake, 1, 5, fail_on_data_loss=False, run_id="a")
    assert [str(each) for each in done.missing] == ["t-0 [1, 3)"]
    assert offsets(lake) == [3, 4]
    assert backfill(lake, 1, 5, run_id="a").missing == done.missing
    assert backfill(lake, 0, 3, fail_on_data_loss=False).snapshot_id is None


def test_bad_records_of_backfills_are_in_the_dead_letter_table_once(lake: Lake) -> None:
    lake.values += [b"?", b"{}", b"?", b"?"]
    lake.load(starting_offsets={T0: 2})
    lake.load(backfill=Backfill({T0: 0}, {T0: 2}))
    lake.values.append(b"?")
    lake.load()
    assert [offset for offset, _ in lake.rows("bad")] == [0, 2, 3, 4]
    assert offsets(lake) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("until", "start", "end", "message"),
    [
        (None, 5, None, "needs both ends"),
        (None, None, 5, "needs both ends"),
        (5, 1, 5, "omit until"),
        (None, 1, 200, "in the future"),
        (None, 5, 5, "is not before"),
        (None, {T0: 1}, {T1: 5}, "only one end of the backfill names t-0, t-1"),
        ({TopicPartition("u", 0): 1}, None, None, "names topic 'u'"),
        ({T0: -1}, None, None, "invalid offset -1 of"),
        ({}, None, None, "names no partition"),
    ],
)
def test_bounds_that_contradict_each_other_are_refused(until: Any, start: Any, end: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        check_bounds(until, start, end, ["t"], now_ms=100)


def test_partition_that_does_not_exist_is_refused(lake: Lake) -> None:
    add(lake, 2)
    with pytest.raises(ConfigurationError, match="there is no partition t-7"):
        lake.load(bad=None, until={TopicPartition("t", 7): 1})


def test_time_of_a_record_that_is_new_since_the_plan_is_the_planned_end(lake: Lake) -> None:
    add(lake, 4)
    planned = lake.describe(None, None)
    add(lake, 4)
    after = FIRST_MS + 6 * lake.ms_between
    assert resolve(after, planned, Timestamps(lake)) == {T0: 4}
    assert resolve(FIRST_MS, planned, Timestamps(lake)) == {T0: 0}


@pytest.mark.parametrize("seed", range(3))
def test_random_loads_backfills_kills_and_repetitions_load_each_record_once(lake: Lake, seed: int) -> None:
    chance = random.Random(seed)
    add(lake, 12)
    known: set[int] = set()
    lake.load(bad=None, starting_offsets={T0: 8}, until={T0: 10})
    known |= {8, 9}
    next_offset, runs = 10, dict[str, int]()
    base: type = TableBase if lake.place.table_format == "iceberg" else DeltaBase
    for number in range(14):
        add(lake, chance.randrange(3))
        run_id = chance.choice([*runs, f"run {number}"])
        start = chance.randrange(next_offset)
        end = chance.randrange(start, next_offset) + 1
        until = chance.randrange(next_offset, len(lake.values) + 1)
        is_backfill = chance.random() < 0.6
        span = set(range(start, end)) if is_backfill else set(range(next_offset, until))
        more: dict[str, Any] = {"backfill": Backfill({T0: start}, {T0: end})} if is_backfill else {"until": {T0: until}}
        if is_backfill and run_id not in runs and span & known:
            with pytest.raises(ConfigurationError, match="already has rows"):
                lake.load(bad=None, run_id=run_id, **more)
            continue
        if chance.random() < 0.3 and span and run_id not in runs:
            lake.load_killed_before(base, "commit", bad=None, run_id=run_id, **more)
        done = lake.load(bad=None, run_id=run_id, **more)
        if run_id in runs:
            assert (done.is_repeated, done.snapshot_id) == (True, runs[run_id])
        else:
            assert done.records == len(span)
            known |= span
            next_offset = next_offset if is_backfill else until
            if done.snapshot_id is not None:
                runs[run_id] = done.snapshot_id
        assert offsets(lake) == sorted(known)
        assert ledger(lake) == {0: next_offset}
