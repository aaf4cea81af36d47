"""What many runs came to, as a table in Markdown."""

from __future__ import annotations

import statistics
from collections.abc import Iterable

from tests.faults.runs import Run
from tests.faults.scenarios import SCENARIOS

HEAD = (
    "| scenario | runs | ok | records acknowledged | recovery p50, s | max, s | what befalls it |\n"
    "|---|--:|--:|--:|--:|--:|---|"
)


def table(runs: Iterable[Run]) -> str:
    """Return a line for each scenario: how many runs, how many were well, and how long a recovery took."""
    by_name: dict[str, list[Run]] = {}
    for run in runs:
        by_name.setdefault(run.scenario, []).append(run)
    lines = [_line(name, by_name[name]) for name in SCENARIOS if name in by_name]
    return "\n".join([HEAD, *lines])


def _line(name: str, runs: list[Run]) -> str:
    recoveries_s = [each for run in runs for each in run.result.recoveries_s]
    p50, most = (statistics.median(recoveries_s), max(recoveries_s)) if recoveries_s else (0.0, 0.0)
    ok, records = sum(run.ok for run in runs), sum(run.result.records for run in runs)
    return f"| {name} | {len(runs)} | {ok} | {records:,} | {p50:.1f} | {most:.1f} | {SCENARIOS[name].title} |"


def line(run: Run) -> str:
    """Return what a run came to, in a line."""
    result = run.result
    recoveries = ", ".join(f"{each:.1f}" for each in result.recoveries_s)
    parts = [
        f"scenario {run.scenario}, seed {run.seed}: {'ok' if run.ok else 'FAILED'}",
        f"{result.records:,} records acknowledged, {result.unknown} sends of which nobody knows",
        f"recovered in {recoveries} s" if recoveries else "",
        "; ".join(result.notes),
    ]
    told = "; ".join(part for part in parts if part)
    if run.ok:
        return told
    problems = "".join(f"\n  {problem}" for problem in result.problems)
    return (
        f"{told}{problems}\n  left in {run.folder}; again: make faults SCENARIO={run.scenario} SEED={run.seed} RUNS=1"
    )
