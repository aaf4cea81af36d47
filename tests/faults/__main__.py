"""`python -m tests.faults`: scenarios with real processes, many times; `make faults`."""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import sys
import tempfile
from pathlib import Path

from tests.faults.runs import Run, Runner
from tests.faults.scenarios import SCENARIOS
from tests.faults.table import line, table
from tests.support.planted_bugs import BUGS

INTERRUPTED = 130


def main() -> int:
    """Run what the arguments say; return 1 if any run failed."""
    given = _arguments()
    seed = random.SystemRandom().randrange(1_000_000) if given.seed is None else given.seed
    names = given.scenario or list(SCENARIOS)
    folder = given.folder or Path(tempfile.mkdtemp(prefix="faults-"))
    _say(f"seeds {seed} to {seed + given.runs - 1}, {given.jobs} at once; what fails stays in {folder}")
    for each in (signal.SIGINT, signal.SIGTERM):  # also where a shell has it ignored
        signal.signal(each, _interrupt)
    wanted = [(name, seed + number) for number in range(given.runs) for name in names]
    done: list[Run] = []
    try:
        with contextlib.closing(
            Runner(folder, given.jobs, is_short=given.short, planted=given.planted).runs(wanted)
        ) as runs:
            for run in runs:
                done.append(run)
                _say(f"{len(done)} of {len(wanted)}: {line(run)}")
    except KeyboardInterrupt:
        _say("interrupted")
        return INTERRUPTED
    finally:
        if done:
            _say("\n" + table(done))
        if folder.exists() and not any(folder.iterdir()):
            folder.rmdir()
    return not all(run.ok for run in done)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description="Brokers and ZooKeeper under faults.")
    parser.add_argument("--scenario", action="append", choices=list(SCENARIOS), help="only this one; may be repeated")
    parser.add_argument("--runs", type=int, default=20, help="of each scenario")
    parser.add_argument("--seed", type=int, default=None, help="of the first run; the next has the next one")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="so many runs at once")
    parser.add_argument("--folder", type=Path, default=None, help="where runs that fail leave what is known of them")
    parser.add_argument("--short", action="store_true", help="as short as the scenarios' meaning allows")
    parser.add_argument("--planted", choices=list(BUGS), default="", help="the bug that the brokers are to have")
    return parser.parse_args()


def _interrupt(_signal: int, _frame: object) -> None:
    raise KeyboardInterrupt


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
