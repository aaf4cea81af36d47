"""A state table equals a dict: random changes, late and repeated ones, deletions, in loads that are killed anywhere.

Loads run without brokers and Spark; catalog, files and commits are real. The dict is a plain loop over the records.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from barnabas.formats.upsert_rules import UpsertRules
from barnabas.spark.deleted_keys import DeletedKeys
from barnabas.spark.load_folder import LoadFolder
from barnabas.spark.state_merge import StateMerge
from barnabas.spark.table_place import ICEBERG
from barnabas.spark.tables import scan_table
from barnabas.spark.warehouse import TableBase
from tests.support.loads_without_spark import Lake

EXAMPLES = int(os.environ.get("STATE_TABLE_EXAMPLES", "4"))
KILLED_BEFORE = {
    "the merge": (StateMerge, "run", 0),
    "the deletions": (DeletedKeys, "commit", 0),
    "the first commit": (TableBase, "commit", 0),
    "the second commit": (TableBase, "commit", 1),
    "the release of the deletions": (LoadFolder, "release", 0),
    "the end": (LoadFolder, "release", 1),
}


class Change(NamedTuple):
    partition: int
    key: int
    order: int
    kind: str


changes = st.builds(
    Change, st.integers(0, 1), st.integers(0, 3), st.integers(0, 4), st.sampled_from(["row", "row", "d", "tombstone"])
)
steps = st.lists(
    st.tuples(st.lists(changes, min_size=1, max_size=5), st.sampled_from([None, None, *KILLED_BEFORE])), max_size=4
)


def put(lake: Lake, change: Change) -> None:
    log = lake.partitions[change.partition]
    lake.keys[change.partition, len(log)] = b"%d" % change.key
    row = {"id": change.key, "at": change.order, "n": f"{change.partition}-{len(log)}", "op": "u"}
    row |= {"op": "d"} if change.kind == "d" else {}
    log.append(None if change.kind == "tombstone" else json.dumps(row).encode())


def expected(lake: Lake, rules: UpsertRules) -> dict[int, str]:
    """Return the rows, by a loop over the records of each partition."""
    last: dict[int, tuple[Any, str | None]] = {}
    for partition, log in enumerate(lake.partitions):
        highest: dict[int, int] = {}
        for offset, value in enumerate(log):
            row = {"id": int(lake.keys[partition, offset] or b""), "op": "d"} if value is None else json.loads(value)
            key = row["id"]
            highest[key] = max(row.get("at", -1), highest.get(key, -1))
            order = row.get("at", highest[key])
            rank = (offset, partition) if rules.order_by == "offset" else (order, partition, offset)
            if key not in last or rank > last[key][0]:
                last[key] = (rank, None if row["op"] == "d" else row["n"])
    return {key: name for key, (_, name) in last.items() if name is not None}


def state(lake: Lake) -> dict[int, str]:
    found = [row for batch in scan_table(lake.folder, "t", columns=["id", "n"]) for row in batch.to_pylist()]
    assert len({row["id"] for row in found}) == len(found), "each key has one row"
    return {row["id"]: row["n"] for row in found}


def load_killed(lake: Lake, rules: UpsertRules, place: str) -> None:
    """Load, and end as a process does that is killed at a place. A load that does not come there is complete."""
    owner, method, calls = KILLED_BEFORE[place]
    usual, done = getattr(owner, method), []

    def end_or_call(*arguments: Any, **options: Any) -> Any:
        if len(done) == calls:
            raise SystemExit(137)
        done.append(1)
        return usual(*arguments, **options)

    with pytest.MonkeyPatch.context() as patched:
        for given_up in ("discard", "release"):
            patched.setattr(LoadFolder, given_up, lambda folder: folder.lock.close())
        patched.setattr(owner, method, end_or_call)
        with suppress(SystemExit):
            lake.load(bad=None, upsert=rules)


@pytest.mark.parametrize("order_by", ["at", "offset"])
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=steps)
def test_state_table_equals_a_dict_whatever_is_killed(
    order_by: str, steps: list[tuple[list[Change], str | None]]
) -> None:
    rules = UpsertRules.of("id", op="op", order_by=order_by)
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patched:
        lake = Lake(Path(folder), ICEBERG)
        lake.partitions, lake.ms_between = [[], []], 1
        lake.stand_in(patched)
        put(lake, Change(0, 0, 2, "row"))
        for records, killed in [([], None), *steps, ([], None)]:
            for change in records:
                put(lake, change)
            if killed is not None:
                load_killed(lake, rules, killed)
            else:
                lake.load(bad=None, upsert=rules)
                assert state(lake) == expected(lake, rules)
        assert lake.load(bad=None, upsert=rules).snapshot_id is None


@pytest.mark.parametrize("place", KILLED_BEFORE)
def test_load_killed_at_each_step_is_done_or_undone_and_the_next_one_does_the_rest(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules = UpsertRules.of("id", op="op", order_by="at")
    lake = Lake(tmp_path, ICEBERG)
    lake.partitions, lake.ms_between = [[], []], 1
    lake.stand_in(monkeypatch)
    for change in (Change(0, 1, 1, "row"), Change(0, 2, 1, "row")):
        put(lake, change)
    lake.load(bad=None, upsert=rules)
    before = state(lake)
    for change in (Change(0, 1, 5, "d"), Change(1, 2, 3, "row"), Change(1, 3, 3, "row"), Change(1, 1, 2, "row")):
        put(lake, change)
    load_killed(lake, rules, place)
    after = expected(lake, rules)
    assert state(lake) == (after if place == "the end" else before)
    lake.load(bad=None, upsert=rules)
    assert state(lake) == after == {2: "1-0", 3: "1-1"}
    assert len(lake.files()[0]) <= 4, "no data file of the killed load is left"
    assert lake.files()[1] == 0, "no lock is left"
