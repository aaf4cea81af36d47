"""The comparison: measures workloads against every peer, and writes docs/benchmarks.md from all results.

    python -m bench                       all workloads; BENCH=quick or full (or --scale) for less or more
    python -m bench W1 W4                 these; the others keep the results that they have
    python -m bench --page                measures nothing, writes the page anew
    python -m bench --list                says what there is

Every server is started on a free port in a folder of its own, and stopped in the end, also after Ctrl-C. What cannot
be had on this machine is left out with a line that says why.
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
    """Return what the command line asks for."""
    parser = argparse.ArgumentParser(
        prog="python -m bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("workloads", nargs="*", metavar="W", help=f"of: {' '.join(WORKLOADS)}")
    parser.add_argument("--scale", choices=[*SCALES], default=os.environ.get("BENCH") or "default")
    parser.add_argument(
        "--folder", type=Path, help="where the servers' folders go, on the disk to be measured [the cache folder]"
    )
    parser.add_argument("--page", action="store_true", help="measure nothing, write the page from the results")
    parser.add_argument("--list", action="store_true", help="say which workloads there are")
    parser.add_argument("--output", type=Path, help="a folder for results and page, instead of those of the project")
    asked = parser.parse_args(arguments)
    asked.workloads = [name.upper() for name in asked.workloads]
    if unknown := set(asked.workloads) - set(WORKLOADS):
        parser.error(f"no such workload: {', '.join(sorted(unknown))}; there are {' '.join(WORKLOADS)}")
    if asked.scale not in SCALES:
        parser.error(f"no such scale: {asked.scale}; there are {' '.join(SCALES)}")
    return asked


def measure(workload: Workload, scale: Scale, folder: Path, progress: Progress, known: dict[str, str]) -> Result:
    """Measure a workload with servers of its own.

    :param known: why servers cannot be had; grows.
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
    """Turn SIGTERM into what Ctrl-C does."""
    raise KeyboardInterrupt


def main() -> int:
    """Do what the command line asks for; return the exit code."""
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
            except Exception as error:  # noqa: BLE001  # one workload that fails must not take the others with it
                failed.append(name)
                progress.say(f"{name} failed: {type(error).__name__}: {error}")
                continue
            results.save(result, kept)
        code = 1 if failed else 0
    except KeyboardInterrupt:
        progress.say("stopped; the workloads that were finished are kept")
        code = EXIT_INTERRUPTED
    progress.say(f"wrote {page.write(written, kept)}")
    return code


if __name__ == "__main__":
    sys.exit(main())
