"""Run a week of `barnabas load --every 10s` with maintenance and readers, and print what is there meanwhile.

    make suites SUITE=week                                           60,480 loads for each format: hours
    .venv/bin/python tools/week_suite.py iceberg --days 1            8,640 loads
    .venv/bin/python tools/week_suite.py delta --days 7 --every 60   fewer loads, the same ages of snapshots and files

The wall clock of the loads jumps from load to load (tests/support/shifted_time.py), so the ages of snapshots, versions
and files are those of a real week. The program fails if a load, a maintenance or a reader fails, or if the files, the
bytes of metadata or the CPU time of the last day exceed those of the day before by a fifth after the fifth day.
docs/explanation/loads.md has results.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean

ROOT = Path(__file__).parents[1]
DAY_S = 86_400
LINES_A_DAY = 12
COLUMNS = (
    *("commits", "days", "data_files", "metadata_files", "folders", "data_bytes", "metadata_bytes", "current_files"),
    *("cpu_s_per_commit", "wall_s_per_commit", "maintenance_s_per_commit"),
)
BOUNDED = ("data_files", "metadata_files", "folders", "metadata_bytes", "cpu_s_per_commit", "maintenance_s_per_commit")
FULL_AFTER_DAYS, GROWTH_MAX = 5, 1.2


def main() -> int:
    """Run the simulations. Return 1 if one of them grows."""
    parser = argparse.ArgumentParser(description="Simulate a week of repeated loads with maintenance and readers.")
    parser.add_argument("formats", nargs="*", default=["iceberg", "delta"], help="iceberg, delta")
    parser.add_argument("--days", type=float, default=7.0)
    parser.add_argument("--every", type=float, default=10.0, help="seconds between loads")
    parser.add_argument("--maintain-every", type=float, default=3600.0, help="seconds between maintenances")
    given = parser.parse_args()
    grown = [name for name in given.formats if not is_bounded(name, given.days, given.every, given.maintain_every)]
    sys.stdout.write(f"not bounded: {', '.join(grown)}\n" if grown else "bounded; no reader failed\n")
    return int(bool(grown))


def is_bounded(table_format: str, days: float, every_s: float, maintain_s: float) -> bool:
    """Run the simulation of a format, and print its lines. Return False if the last day is larger than the day
    before."""
    sys.path.insert(0, str(ROOT))
    # this module is checked by pytest, not by mypy
    simulate = importlib.import_module("tests.support.simulated_weeks").simulate
    arguments = (
        f"--commits={round(days * DAY_S / every_s)}",
        f"--every-s={every_s}",
        f"--maintain-every-s={maintain_s}",
        f"--lines={max(1, round(days * LINES_A_DAY))}",
    )
    sys.stdout.write(f"{table_format}\n{' '.join(COLUMNS)}\n")
    lines: list[Mapping[str, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        for line in simulate(Path(folder), table_format, *arguments):
            if "commits" in line:
                lines.append(line)
                sys.stdout.write(" ".join(f"{line[column]:g}" for column in COLUMNS) + "\n")
            else:
                sys.stdout.write(f"reads: {line}\n")
            sys.stdout.flush()
    grown = growth(lines) if days > FULL_AFTER_DAYS + 1 else {}
    sys.stdout.write("".join(f"{name}: {ratio:.2f} times the day before\n" for name, ratio in grown.items()))
    return all(ratio <= GROWTH_MAX for ratio in grown.values())


def growth(lines: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the means of the last day in relation to those of the day before."""
    day, before = lines[-LINES_A_DAY:], lines[-2 * LINES_A_DAY : -LINES_A_DAY]
    return {name: fmean(line[name] for line in day) / fmean(line[name] for line in before) for name in BOUNDED}


if __name__ == "__main__":
    sys.exit(main())
