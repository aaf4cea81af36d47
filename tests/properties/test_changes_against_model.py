"""State tables against a dict: random changes, loads, kills, conflicts and maintenance, in both table formats.

`make suites SUITE=changes` runs many more seeds.
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table import Transaction

from barnabas.clock import SYSTEM_CLOCK
from barnabas.spark.errors import LoadConflictError
from barnabas.spark.load_folder import LoadFolder
from barnabas.spark.load_types import LoadProgress
from barnabas.spark.state_merge import StateMerge
from barnabas.spark.table_formats import format_of
from barnabas.spark.table_load import TableLoader
from barnabas.spark.table_place import DELTA, ICEBERG
from tests.support.change_lake import VARIANTS, ChangeLake, ChangeModel, Row

deltalake = pytest.importorskip("deltalake")
RUNS = int(os.environ.get("CHANGES_RUNS", "0"))
STEPS = 40 if RUNS else 8
SAMPLE = {("plain", DELTA), ("two keys", ICEBERG), ("debezium by position", DELTA), ("plain with operations", ICEBERG)}
"""The variants and formats that run outside of the suite."""
Kill = tuple[Any, str]
KILLS: dict[str, list[Kill]] = {
    ICEBERG: [(Transaction, "commit_transaction")],
    DELTA: [(deltalake.DeltaTable, "create_write_transaction"), (deltalake.table.TableAlterer, "add_columns")],
}
KILLS_OF_LOADS: list[Kill] = [
    (TableLoader, "_plan"),
    (TableLoader, "_write"),
    (StateMerge, "run"),
    (TableLoader, "_commit"),
    (LoadFolder, "claim"),
    (LoadFolder, "keep_only"),
    (LoadFolder, "release"),
]


class History:
    """One random history of a topic and its table."""

    def __init__(self, lake: ChangeLake, variant: str, draw: random.Random) -> None:
        self.lake = lake
        self.rules = VARIANTS[variant].rules
        self.model = ChangeModel(lake, VARIANTS[variant], draw)
        self.draw = draw
        self.counts = {"conflicts": 0, "kills": 0}

    def load(self, **more: Any) -> None:
        records = self.draw.choice((None, 5, 50))
        self.lake.load(bad=None, upsert=self.rules, records_per_task=records, **more)

    def step(self) -> None:
        draw = self.draw
        for _ in range(draw.randrange(30)):
            self.model.change()
        if draw.random() < 0.2:
            self.model.grow()
        if draw.random() < 0.2:
            self.model.bad()
        chosen = draw.random()
        if chosen < 0.3:
            self.killed_load()
        elif chosen < 0.45:
            self.two_loads()
        elif chosen < 0.55:
            self.maintenance()
        else:
            self.load()

    def killed_load(self) -> None:
        """Load, and end at one of the steps as a killed process does."""
        owner, name = self.draw.choice([*KILLS_OF_LOADS, *KILLS[self.lake.place.table_format]])
        is_after = self.draw.random() < 0.5
        calls = self.draw.randrange(1, 3)
        with pytest.MonkeyPatch.context() as patched:
            for left in ("discard", "release", "give_up_after"):
                patched.setattr(LoadFolder, left, lambda folder, *_error: folder.lock.close())
            patched.setattr(owner, name, _dying(getattr(owner, name), calls, is_after=is_after))
            try:
                self.load()
            except SystemExit:
                self.counts["kills"] += 1

    def two_loads(self) -> None:
        """Let another load commit while a load runs: one of both has a conflict."""
        step = self.draw.choice(("writing", "merging", "committing"))
        done: list[str] = []

        def on_progress(progress: LoadProgress) -> None:
            if progress.step == step and not done:
                done.append(step)
                self.load()

        try:
            self.load(on_progress=on_progress)
        except LoadConflictError:
            self.counts["conflicts"] += 1

    def maintenance(self) -> None:
        """Merge small files, as `barnabas table maintain` does."""
        store = self.lake.open()
        if store.current_table("t").exists:
            format_of(self.lake.place).maintainer(store, "t", SYSTEM_CLOCK).compact()

    def check(self) -> None:
        """Load all that is left, and compare the table with the dict."""
        self.model.settle()
        self.load()
        found = {tuple(row[name] for name in self.rules.keys): self._own(row) for row in self.lake.table_rows()}
        assert len(found) == len(self.lake.table_rows()), "a key has two rows"
        assert found == {key: self._own(row) for key, row in self.model.rows.items()}

    def _own(self, row: Row) -> Row:
        """Return the fields of a row that have a value."""
        return {name: row[name] for name in self.model.fields if row.get(name) is not None}


def _dying(method: Callable[..., Any], calls: int, *, is_after: bool) -> Callable[..., Any]:
    left = [calls]

    def dying(*arguments: Any, **options: Any) -> Any:
        left[0] -= 1
        if not left[0] and not is_after:
            raise SystemExit
        result = method(*arguments, **options)
        if not left[0]:
            raise SystemExit
        return result

    return dying


@pytest.mark.parametrize("table_format", [ICEBERG, DELTA])
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_state_table_equals_a_dict(
    variant: str, table_format: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not RUNS and (variant, table_format) not in SAMPLE:
        pytest.skip("`make suites SUITE=changes` runs the other variants")
    counts: dict[str, int] = {}
    for seed in range(max(1, RUNS)):
        draw = random.Random(f"{variant} {table_format} {seed}")
        lake = ChangeLake(tmp_path / str(seed), table_format, draw.choice((1, 3)))
        with monkeypatch.context() as patched:
            lake.stand_in(patched)
            history = History(lake, variant, draw)
            try:
                for _ in range(STEPS):
                    history.step()
                    if draw.random() < 0.3:
                        history.check()
                history.check()
            except Exception as error:
                raise AssertionError(f"seed {seed}: {error}") from error
        for name, count in history.counts.items():
            counts[name] = counts.get(name, 0) + count
    sys.stdout.write(f"{variant}, {table_format}: {max(1, RUNS)} histories of {STEPS} steps, {counts}\n")
