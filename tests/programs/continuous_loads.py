"""Rounds of `barnabas load --every` with maintenance between them, in a time that a test moves (shifted_time.py).

`python -m tests.programs.continuous_loads FOLDER FORMAT --commits=60480 --every-s=10 --maintain-every-s=3600`: commits
to a table of the embedded warehouse in FOLDER. The rounds, the commits and the maintenance are those of Barnabas; no
broker is read, and each commit adds one small file. Prints JSON lines: what is there after so many commits, and what
each commit cost since the line before.

Between rounds, the program also holds versions of the table: it opens one, and reads it at the end of the time that
docs/explanation/loads.md guarantees. A failure ends the program.
"""

from __future__ import annotations

import argparse
import json
import os
import struct
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from stat import S_ISDIR
from typing import IO, Any

from barnabas.cli.load_rounds import LoadRounds, Round
from barnabas.cli.maintenance_rounds import MaintenanceRounds, Outcome, maintained
from barnabas.clock import ManualClock
from barnabas.spark.load_types import LoadResult, TableLoad
from barnabas.spark.table_formats import format_of
from barnabas.spark.table_store import StoredTable
from tests.support.loaded_table import PARTITIONS, LoadedTable
from tests.support.shifted_time import FILE_VARIABLE, SystemTime

TABLE = "clicks"
UNSTAMPED_BEFORE_S = 1_900_000_000
"""The kernel dates new files by the real time; the time of the program begins after this one."""
COMMITS_TO_PLAN = 45
READ_S = {"iceberg": 36 * 3600, "delta": 72 * 3600}
"""The guaranteed times after a table was opened: its files can be planned for so many loads, and are there for so many
seconds."""


@dataclass
class Held:
    """A version of the table that a reader holds: opened, and then planned."""

    commits: int
    time_s: float
    table: StoredTable
    files: Sequence[str] = ()


class Simulation:
    """The loads, and the versions that readers hold."""

    def __init__(self, folder: Path, table_format: str, every_s: float, maintain_s: float) -> None:
        self._format = table_format
        self._table = LoadedTable(folder, table_format)
        self._log = self._table.folder / "default" / TABLE / "_delta_log"
        self._system = SystemTime(Path(os.environ[FILE_VARIABLE]))
        self._clock = ManualClock(round(time.time() * 1000))
        self._progress: IO[bytes] = (folder / "progress").open("w+b", buffering=0)
        self._every_s = every_s
        self._rounds = LoadRounds(
            self._load,
            every_s,
            self._check,
            self._clock,
            self._wait,
            MaintenanceRounds(self._maintain, maintain_s, self._clock),
        )
        self._began_s = time.time()
        self._maintenance_s = 0.0
        self._opened: deque[Held] = deque()
        self._planned: deque[Held] = deque()
        self._tell_progress()

    def measured(self, commits: int) -> dict[str, object]:
        """Run rounds until the table has so many commits. Return what is there, and what the commits have cost."""
        made = commits - self._table.commits
        began, began_cpu, before = time.monotonic(), time.process_time(), self._maintenance_s
        self._rounds.run(commits)
        wall, cpu, maintenance = time.monotonic() - began, time.process_time() - began_cpu, self._maintenance_s - before
        return {
            "commits": commits,
            "days": round((time.time() - self._began_s) / 86400, 2),
            **sizes(self._table.folder),
            "current_files": len(self._table.store.current_table(TABLE).contents().file_sizes),
            "cpu_s_per_commit": round(cpu / made, 4),
            "wall_s_per_commit": round((wall - maintenance) / made, 4),
            "maintenance_s_per_commit": round(maintenance / made, 4),
        }

    def _check(self, event: Mapping[str, object]) -> None:
        if "error" in event or "maintenance_error" in event:
            raise SystemExit(json.dumps(event))

    def _wait(self, seconds: float) -> None:
        self._clock.advance(seconds)
        self._system.advance(seconds)

    def _load(self) -> Round:
        self._table.commit(round(time.time() * 1000))
        stamp(self._log.glob("*"))  # a checkpoint deletes the files before it that are older than 30 days
        self._tell_progress()
        self._hold()
        return LoadResult((TableLoad(f"default.{TABLE}", self._table.commits, PARTITIONS, ()),)), {}

    def _tell_progress(self) -> None:
        os.pwrite(self._progress.fileno(), struct.pack("=qd", self._table.commits, time.time()), 0)

    def _maintain(self) -> Iterator[Outcome]:
        stamp(self._table.folder.rglob("*"))
        began = time.monotonic()
        yield from maintained(self._table.place, [TABLE])
        self._maintenance_s += time.monotonic() - began

    def _hold(self) -> None:
        """Open a version sometimes, and use those that are held at the end of the guaranteed time."""
        commits, now = self._table.commits, time.time()
        if commits % 97 == 0:
            self._opened.append(Held(commits, now, self._table.store.current_table(TABLE)))
        while self._opened and commits - self._opened[0].commits >= COMMITS_TO_PLAN:
            held = self._opened.popleft()
            self._planned.append(Held(held.commits, held.time_s, held.table, plan(self._format, held.table.table)))
            self._read(held)
        while self._planned and now - self._planned[0].time_s >= READ_S[self._format] - self._every_s:
            held = self._planned.popleft()
            missing = [file for file in held.files if not Path(file).exists()]
            if missing:
                raise SystemExit(f"{len(missing)} files of commit {held.commits} are gone after {now - held.time_s} s")

    def _read(self, held: Held) -> None:
        """Read all rows of a version, and count them."""
        batches = format_of(self._table.place).scan(held.table, ["offset"], None)
        rows = sum(batch.num_rows for batch in batches)
        if rows != held.commits * PARTITIONS:
            raise SystemExit(f"a version of {held.commits} commits has {rows} rows")


def plan(table_format: str, table: Any) -> list[str]:
    """Return the paths of the data files of a version."""
    uris = table.file_uris() if table_format == "delta" else [task.file.file_path for task in table.scan().plan_files()]
    return [uri.removeprefix("file://") for uri in uris]


def stamp(paths: Iterable[Path]) -> None:
    """Date the files and folders that were made since the last call by the time of this program."""
    now = time.time()
    for path in paths:
        if path.stat().st_mtime < UNSTAMPED_BEFORE_S:
            os.utime(path, (now, now))


def sizes(folder: Path) -> dict[str, int]:
    """Return how many files and folders there are, and their bytes, of data and of metadata."""
    counts = dict.fromkeys(("data_files", "data_bytes", "metadata_files", "metadata_bytes", "folders"), 0)
    for path in folder.rglob("*"):
        status = path.stat()
        if S_ISDIR(status.st_mode):
            counts["folders"] += 1
            continue
        kind = "data" if path.suffix == ".parquet" and "_delta_log" not in path.parts else "metadata"
        counts[f"{kind}_files"] += 1
        counts[f"{kind}_bytes"] += status.st_size
    return counts


def main() -> None:
    """Run the simulation, and print a line for each part of it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("format", choices=("iceberg", "delta"))
    parser.add_argument("--commits", type=int, required=True)
    parser.add_argument("--every-s", type=float, default=10.0)
    parser.add_argument("--maintain-every-s", type=float, default=3600.0)
    parser.add_argument("--lines", type=int, default=60)
    given = parser.parse_args()
    simulation = Simulation(given.folder, given.format, given.every_s, given.maintain_every_s)
    step = max(1, given.commits // given.lines)
    for commits in range(step, given.commits + 1, step):
        sys.stdout.write(json.dumps(simulation.measured(commits)) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
