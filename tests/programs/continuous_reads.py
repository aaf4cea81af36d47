"""Readers of a table that `continuous_loads.py` writes meanwhile.

`python -m tests.programs.continuous_reads FOLDER FORMAT` reads the table again and again, in several ways, until
standard input ends. Each reader sees whole commits, none that is older than the last one before it began, and never
fails. Prints how many reads each way has done.

The loads make as many commits in a second as they make in a minute otherwise. A read that took longer than ten commits
may therefore fail; it is counted as late.
"""

from __future__ import annotations

import json
import select
import struct
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from itertools import cycle
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable

from barnabas.spark import open_table, scan_table
from tests.support.loaded_table import PARTITIONS

PAUSE_S = 0.1
COMMITS_TO_READ = 10
"""pyiceberg keeps so many old metadata files, so a reader has so many commits to read the file that the catalog
names."""


def scanned(folder: Path, table_format: str) -> int:
    """Count rows with Barnabas' reader."""
    return sum(batch.num_rows for batch in scan_table(folder, "clicks", columns=["offset"], table_format=table_format))


def counted(folder: Path, _format: str) -> int:
    """Count rows with pyiceberg, from the metadata."""
    return int(open_table(folder, "clicks").scan().count())


def read(folder: Path, _format: str) -> int:
    """Count rows with pyiceberg's reader."""
    return int(open_table(folder, "clicks").scan(selected_fields=("partition",)).to_arrow().num_rows)


def old(folder: Path, _format: str) -> int:
    """Read the oldest version that the table has, and count the rows of the newest."""
    table = open_table(folder, "clicks")
    oldest = min(table.snapshots(), key=lambda each: each.timestamp_ms)
    rows = table.scan(snapshot_id=oldest.snapshot_id, selected_fields=("partition",)).to_arrow().num_rows
    assert rows % PARTITIONS == 0
    return int(table.scan().count())


def delta_dataset(folder: Path, _format: str) -> int:
    """Count rows with deltalake's dataset."""
    return int(DeltaTable(folder / "default" / "clicks").to_pyarrow_dataset().count_rows())


def delta_columns(folder: Path, _format: str) -> int:
    """Count rows with deltalake's table."""
    rows: pa.Table = DeltaTable(folder / "default" / "clicks").to_pyarrow_table(columns=["partition"])
    return int(rows.num_rows)


WAYS: Mapping[str, tuple[Callable[[Path, str], int], ...]] = {
    "iceberg": (scanned, counted, read, old),
    "delta": (scanned, delta_dataset, delta_columns),
}


def commits_in(progress: Path) -> int:
    (commits, _) = struct.unpack("=qd", progress.read_bytes())
    return int(commits)


def main() -> None:
    """Read until standard input ends."""
    folder, table_format = Path(sys.argv[1]), sys.argv[2]
    warehouse, progress = folder / "warehouse", folder / "progress"
    done: Counter[str] = Counter()
    pause_s = 0.0
    ways = cycle(WAYS[table_format])
    while not select.select([sys.stdin], [], [], pause_s)[0]:
        before, began = commits_in(progress), time.monotonic()
        pause_s = PAUSE_S
        if before:
            way = next(ways)
            try:
                rows = way(warehouse, table_format)
            except Exception as error:
                passed = commits_in(progress) - before
                if passed < COMMITS_TO_READ:
                    raise SystemExit(f"{way.__name__} failed after {passed} commits: {error!r}") from error
                done["late"] += 1
                continue
            after = commits_in(progress)
            if rows % PARTITIONS or not before <= rows // PARTITIONS <= after + 1:
                raise SystemExit(f"{way.__name__} saw {rows} rows between commits {before} and {after}")
            done[way.__name__] += 1
            pause_s = max(PAUSE_S, time.monotonic() - began)  # leave the machine to the loads half of the time
    sys.stdout.write(json.dumps(done) + "\n")


if __name__ == "__main__":
    main()
