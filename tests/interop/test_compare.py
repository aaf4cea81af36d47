"""The comparison of two commits, tiny: the code of the checkout on both sides, without an installation."""

from __future__ import annotations

from pathlib import Path

import barnabas
from bench.compare.command import require_commands
from bench.compare.experiments import chosen
from bench.compare.report import Row, caption_of, lines
from bench.compare.sides import Side
from bench.compare.turns import Plan, Turns
from bench.progress import Progress

SOURCES = Path(barnabas.__file__).resolve().parents[1]
SHARE = 1 / 1000


def test_both_sides_run_in_pairs_and_all_their_cases_are_measured(tmp_path: Path) -> None:
    sides = (Side("base", "sources", SOURCES), Side("checkout", "sources", SOURCES))
    rows: list[Row] = []
    experiments = chosen(["W1:batch-50", "start"], SHARE)
    sides[0].require_import()
    require_commands(sides[:1], experiments)
    for experiment in experiments:
        added = [Row(experiment.workload, case) for case in experiment.cases]
        rows += added
        Turns(experiment, sides, tmp_path, added, Progress()).run(Plan(pairs=1, uncounted=0))
    assert [row.problem for row in rows] == [""] * len(rows)
    assert [row.pairs for row in rows] == [1] * len(rows)
    assert all(each.value > 0 for row in rows for each in (*row.base, *row.checkout))
    assert rows[0].cpu_ratio
    assert len(list(lines(rows, 1, caption_of(*sides, 1, is_smoke=True)))) == len(rows) + 2
    assert not list(tmp_path.iterdir())
