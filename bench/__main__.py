"""Measures workloads of all peers for comparison, and writes docs/benchmarks.md from all results.

    python -m bench                     all workloads; BENCH=quick or full (or --scale) changes the sizes
    python -m bench W1 W4               these workloads; the others keep their results
    python -m bench --page              measures nothing, writes the page again
    python -m bench --list              lists the workloads

Each server starts on a free port with its own directory, and stops at the end, even after Ctrl-C. A peer that is not
available on this machine is skipped, and the program prints the reason.
"""

from __future__ import annotations

import argparse
import datetime
import os
import signal
import sys
from pathlib import Path
from types import FrameType

from bench import machine, page, results
from bench.arena import Arena, remove_leftovers
from bench.contest import Contest
from bench.downloads import cache_folder
from bench.progress import Progress
from bench.results import Result
from bench.scale import SCALES, Scale
from bench.workloads import WORKLOADS
from bench.workloads.workload import Workload

EXIT_INTERRUPTED = 130


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("workloads", nargs="*", metavar="W", help=f"of: {' '.join(WORKLOADS)}")
    parser.add_argument("--scale", choices=[*SCALES], default=os.environ.get("BENCH") or "default")
    parser.add_argument(
        "--folder", type=Path, help="parent of the servers' folders, on the disk to measure [the cache folder]"
    )
    parser.add_argument("--page", action="store_true", help="measure nothing, write the page from the results")
    parser.add_argument("--list", action="store_true", help="list the workloads")
    parser.add_argument("--output", type=Path, help="write results and page to this folder instead of the project's")
    asked = parser.parse_args(arguments)
    asked.workloads = [name.upper() for name in asked.workloads]
    if unknown := set(asked.workloads) - set(WORKLOADS):
        parser.error(f"unknown workload: {', '.join(sorted(unknown))}; use {' '.join(WORKLOADS)}")
    if asked.scale not in SCALES:
        parser.error(f"unknown scale: {asked.scale}; use {' '.join(SCALES)}")
    return asked


def measure(workload: Workload, scale: Scale, folder: Path, progress: Progress, known: dict[str, str]) -> Result:
    """Measure a workload with its own servers.

    :param known: the reasons why servers are not available; this function adds new reasons.
    """
    progress.say(f"{workload.name}: {workload.title}")
    with Arena(folder, progress, known) as arena:
        cases = list(workload.measure(Contest(workload.name, arena, scale, progress)))
        versions = dict(arena.versions)
    return Result(
        workload=workload.name,
        date=datetime.datetime.now(datetime.UTC).date().isoformat(),
        scale=scale.name,
        command=f"python -m bench {workload.name}" + ("" if scale.name == "default" else f" --scale {scale.name}"),
        machine=machine.describe(),
        versions=versions | machine.client_versions(),
        cases=cases,
        skipped=[
            f"{case.name}: {row.client} with {row.server}: {row.problem}"
            for case in cases
            for row in case.rows
            if row.problem
        ],
    )


def interrupt(_number: int, _frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt for SIGTERM as well."""
    raise KeyboardInterrupt


def main() -> int:
    """Run the command line. Return the exit code."""
    asked = parse()
    signal.signal(signal.SIGTERM, interrupt)
    if asked.list:
        for workload in WORKLOADS.values():
            sys.stdout.write(f"{workload.name:4} {workload.title} ({workload.published})\n")
        return 0
    kept, written = results.RESULTS, page.PAGE
    if asked.output:
        kept, written = asked.output, asked.output / page.PAGE.name
        page.start(written)
    progress = Progress()
    folder = asked.folder or cache_folder()
    remove_leftovers(folder)
    failed: list[str] = []
    unavailable: dict[str, str] = {}
    try:
        for name in [] if asked.page else asked.workloads or WORKLOADS:
            try:
                result = measure(WORKLOADS[name], SCALES[asked.scale], folder, progress, unavailable)
            except Exception as error:  # noqa: BLE001  # a failed workload must not stop the others
                failed.append(name)
                progress.say(f"{name} failed: {type(error).__name__}: {error}")
                continue
            results.save(result, kept)
        code = 1 if failed else 0
    except KeyboardInterrupt:
        progress.say("stopped; the results of finished workloads are kept")
        code = EXIT_INTERRUPTED
    progress.say(f"wrote {page.write(written, kept)}")
    return code


if __name__ == "__main__":
    sys.exit(main())
